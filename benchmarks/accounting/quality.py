"""This module measures the quality of the numbers of both sides: widths of intervals, tightness and mistakes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

from accounting.relations import NeighboringRelation
from benchmarks.accounting import ours, peers
from benchmarks.accounting.cases import FixedSize, Target, Training
from benchmarks.accounting.speed import ask, interval
from benchmarks.accounting.verdicts import failure, verdict
from benchmarks.timing import Effort, time_limit

#: Up to `LARGE_EPSILON`, an interval is narrow if its width is at most `NARROW` times the larger of 1 and epsilon.
#: Beyond it, the width may be `NARROW_BEYOND` times epsilon.
LARGE_EPSILON = 200.0
NARROW, NARROW_BEYOND = 1e-6, 1e-3


def widths(draw: Iterable[Training], *, peer_cases: int, limit: float) -> dict[str, Any]:
    """Return how many of our intervals for random training runs are narrow, which are not, and how often a Rényi
    accountant has no finite number.

    Args:
        draw: The training runs.
        peer_cases: The number of runs under add_or_remove_one about which dp-accounting's Rényi accountant is asked.
        limit: The time in seconds for one answer of this accountant.
    """
    count, finite, methods = 0, 0, dict[str, int]()
    missed: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    for training in draw:
        count += 1
        try:
            answer = ours.epsilon(training)
        except Exception as error:
            failed.append({"case": asdict(training), "error": failure(error)})
            continue
        methods[answer.method] = methods.get(answer.method, 0) + 1
        finite += math.isfinite(answer.value.upper)
        if not is_narrow(answer.value.upper, answer.value.width):
            missed.append({"case": asdict(training), "ours": interval(answer)})
        if len(beside) < peer_cases and training.relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            beside.append(_renyi(training, limit) | {"ours_upper": answer.value.upper})
    return {
        "specs": count,
        "narrow": count - len(missed) - len(failed),
        "finite": finite,
        "exceptions": failed,
        "by_method": dict(sorted(methods.items())),
        "missed": missed,
        "peer": _summary(beside),
    }


def is_narrow(upper: float, width: float) -> bool:
    """Return whether an interval that ends at ``upper`` is as narrow as promised.

    >>> is_narrow(10.0, 9e-6), is_narrow(10.0, 2e-5), is_narrow(300.0, 0.2), is_narrow(math.inf, math.nan)
    (True, False, True, False)
    """
    if upper <= LARGE_EPSILON:
        return width <= max(NARROW, NARROW * upper)
    return width <= NARROW_BEYOND * upper and math.isfinite(upper)


def _renyi(training: Training, limit: float) -> dict[str, Any]:
    try:
        with time_limit(limit):
            return {"value": peers.DP_ACCOUNTING_RDP.epsilon(training, 0)}
    except Exception as error:
        return {"error": failure(error)}


def _summary(answers: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = [answer for answer in answers if math.isfinite(answer.get("value", math.nan))]
    excess = [answer["value"] / answer["ours_upper"] for answer in numbers if answer["ours_upper"] > 0.0]
    return {
        "name": peers.DP_ACCOUNTING_RDP.name,
        "specs": len(answers),
        "without_a_finite_number": len(answers) - len(numbers),
        "median_epsilon_over_ours": statistics.median(excess) if excess else None,
    }


def fixed_sizes(cases: Iterable[FixedSize], effort: Effort) -> list[dict[str, Any]]:
    """Return, for fixed-size batches, the epsilon of dp-accounting's own event divided by our certified upper bound."""
    rows = []
    for case in cases:
        answer = ours.fixed_size_epsilon(case)
        peer = ask(peers.dp_accounting_fixed_size, case, partial(ours.fixed_size_epsilon, case), effort)
        row = {"case": asdict(case), "ours": interval(answer), "peer": peer}
        if "value" in peer:
            row["epsilon_over_ours"] = peer["value"] / answer.value.upper
        rows.append(row)
    return rows


def target_use(targets: Iterable[Target]) -> dict[str, Any]:
    """Evaluate calibrations again. Return how many miss their target, of which there must be none, and how much epsilon
    is left unused."""
    rows, unused = [], []
    for target in targets:
        found = ours.noise(target)
        training = Training(found.noise_multiplier, target.sampling_probability, target.steps, target.delta)
        upper = ours.epsilon(training).value.upper
        rows.append({"case": asdict(target), "noise_multiplier": found.noise_multiplier, "upper": upper})
        unused.append(target.epsilon - upper)
    return {
        "targets": len(rows),
        "missed": sum(left < 0.0 for left in unused),
        "largest_unused_epsilon": max(unused),
        "rows": rows,
    }


def disputes(limit: float) -> list[dict[str, Any]]:
    """Return the answers of other libraries that are outside our certified interval, for questions with a closed form
    or a published attack.
    """
    replace_one = NeighboringRelation.REPLACE_ONE
    single = ours.full_batch_epsilon(1.0, replace_one, 1e-5)
    tiny = Training(4.0, 0.01, 1000, 1e-18)
    tiny_answer = ours.epsilon(tiny)
    questions: list[tuple[str, str, Any, Callable[[], float]]] = [
        (
            "dp-accounting's two accountants on one event, a Gaussian with noise 1 under replace_one, delta 1e-5",
            f"dp-accounting {name}",
            single,
            partial(peers.dp_accounting_full_batch, accountant, 1.0, replace_one, 1e-5),
        )
        for name, accountant in (("PLD", "PLDAccountant"), ("RDP", "RdpAccountant"))
    ]
    questions += [
        ("noise 4, q 0.01, 1000 steps, delta 1e-18", peer.name, tiny_answer, partial(peer.epsilon, tiny, 0))
        for peer in peers.PEERS
    ]
    rows = []
    for question, name, answer, call in questions:
        row: dict[str, Any] = {"question": question, "peer": name, "ours": interval(answer)}
        try:
            with time_limit(limit):
                value = call()
            row |= {"value": value, "verdict": verdict(value, answer.value)}
        except Exception as error:
            row["error"] = failure(error)
        rows.append(row)
    return rows


def unavailable(limit: float) -> dict[str, str]:
    """Return the accountants that fail in this environment, with their errors. Each is called once."""
    try:
        with time_limit(limit):
            peers.autodp_fourier_epsilon(Training(4.0, 0.01, 100, 1e-5), 0)
    except Exception as error:
        return {"autodp analytical Fourier accountant": failure(error)}
    return {}
