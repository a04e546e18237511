"""This module measures our times and those of other libraries in turns, and returns their ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

from accounting.intervals import Answer
from benchmarks.accounting import ours
from benchmarks.accounting.cases import FEW_STEPS, MANY_STEPS, Target, Training
from benchmarks.accounting.peers import PLD, Peer
from benchmarks.accounting.verdicts import contains, failure, verdict
from benchmarks.timing import Comparison, Effort, NoAnswer, compare, in_turns, seconds_of

Case = TypeVar("Case")


def interval(answer: Answer) -> dict[str, Any]:
    """Return our answer in the form in which results are stored."""
    return asdict(answer.value) | {"width": answer.value.width, "method": answer.method}


def beside(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison in which our side is the first, in the form in which results are stored."""
    figures = asdict(comparison)
    return {
        "ours_milliseconds": figures.pop("first_milliseconds"),
        "peer_milliseconds": figures.pop("second_milliseconds"),
    } | figures


def epsilons(trainings: Iterable[Training], peers: Sequence[Peer], effort: Effort) -> list[dict[str, Any]]:
    """Return, for each training run, our epsilon, and each library's epsilon with its time divided by ours."""
    rows = []
    for training in trainings:
        answer = ours.epsilon(training)
        row: dict[str, Any] = {"case": asdict(training), "ours": interval(answer), "peers": {}}
        if training.reference is not None:
            row["ours"]["contains_reference"] = contains(answer.value, training.reference)
        for peer in peers:
            found = ask(peer.epsilon, training, partial(ours.epsilon, training), effort)
            if "value" in found:
                found["verdict"] = verdict(found["value"], answer.value)
            row["peers"][peer.name] = found
        rows.append(row)
    return rows


def calibrations(targets: Iterable[Target], peers: Sequence[Peer], effort: Effort) -> list[dict[str, Any]]:
    """Return, for each target, every side's noise multiplier and its cost by our certified interval."""
    rows = []
    for target in targets:
        found = ours.noise(target)
        row: dict[str, Any] = {
            "case": asdict(target),
            "ours": {"noise_multiplier": found.noise_multiplier} | _use_of(target, found.noise_multiplier),
            "peers": {},
        }
        for peer in peers:
            if peer.noise is None:
                continue
            answer = ask(peer.noise, target, partial(ours.noise, target), effort)
            if "value" in answer:
                answer |= _use_of(target, answer["value"])
            row["peers"][peer.name] = answer
        rows.append(row)
    return rows


def _use_of(target: Target, noise_multiplier: float) -> dict[str, Any]:
    """Return the certified cost of ``noise_multiplier``, and the part of the target's epsilon that it leaves unused."""
    training = Training(noise_multiplier, target.sampling_probability, target.steps, target.delta)
    achieved = ours.epsilon(training).value
    return {
        "achieved": asdict(achieved),
        "unused_epsilon": target.epsilon - achieved.upper,
        "misses": achieved.lower > target.epsilon,
    }


def flatness(targets: Iterable[Target], effort: Effort) -> list[dict[str, Any]]:
    """Return the time of one epsilon at `MANY_STEPS`, divided by the time at `FEW_STEPS` with noise for the same
    epsilon."""
    rows = []
    for target in targets:
        few, many = (_calibrated(replace(target, steps=steps)) for steps in (FEW_STEPS, MANY_STEPS))
        _, comparison = in_turns(
            partial(ours.epsilon, few),
            partial(ours.epsilon, many),
            effort,
            calls_of_first=1,
        )
        figures = asdict(comparison)
        rows.append(
            {
                "case": asdict(target),
                "noise_multipliers": {FEW_STEPS: few.noise_multiplier, MANY_STEPS: many.noise_multiplier},
                "few_milliseconds": figures.pop("first_milliseconds"),
                "many_milliseconds": figures.pop("second_milliseconds"),
            }
            | figures
        )
    return rows


def _calibrated(target: Target) -> Training:
    found = ours.noise(target)
    return Training(found.noise_multiplier, target.sampling_probability, target.steps, target.delta)


def slow_cases(trainings: Iterable[Training], effort: Effort) -> dict[str, Any]:
    """Return our epsilon and delta with few expected participations, beside those of dp-accounting's PLD."""
    rows = []
    for training in trainings:
        answer = ours.epsilon(training)
        of_epsilon, of_delta = partial(ours.epsilon, training), partial(ours.delta, training, answer.value.estimate)
        own = compare([(seconds_of(of_epsilon, 2 * turn), seconds_of(of_delta, 2 * turn + 1)) for turn in range(1, 4)])
        row: dict[str, Any] = {
            "case": asdict(training),
            "ours": interval(answer),
            "epsilon_milliseconds": own.first_milliseconds,
            "delta_milliseconds": own.second_milliseconds,
            "peer": ask(PLD.epsilon, training, partial(ours.epsilon, training), effort),
        }
        if "value" in row["peer"]:
            row["peer"]["verdict"] = verdict(row["peer"]["value"], answer.value)
        rows.append(row)
    methods: dict[str, list[float]] = {}
    for row in rows:
        methods.setdefault(row["ours"]["method"], []).append(row["epsilon_milliseconds"])
    return {
        "cases": len(rows),
        "median_epsilon_milliseconds": statistics.median(row["epsilon_milliseconds"] for row in rows),
        "median_delta_milliseconds": statistics.median(row["delta_milliseconds"] for row in rows),
        "largest_epsilon_milliseconds": max(row["epsilon_milliseconds"] for row in rows),
        "median_ratio": statistics.median([row["peer"]["ratio"] for row in rows if "ratio" in row["peer"]] or [0.0]),
        "by_method": {
            name: {"cases": len(times), "median_epsilon_milliseconds": statistics.median(times)}
            for name, times in sorted(methods.items())
        },
        "rows": rows,
    }


def ask(
    peer: Callable[[Case, int], float], case: Case, our_call: Callable[[int], object], effort: Effort
) -> dict[str, Any]:
    """Return a library's value with its time divided by ours. If the library fails, return ``error``: a failure is a
    result, too, and does not end the run.
    """
    try:
        value, comparison = in_turns(our_call, partial(peer, case), effort)
    except NoAnswer as error:
        return {"error": failure(error.__cause__ or error)}
    return {"value": value} | beside(comparison)
