"""An audit: canaries go through the real trainer, an attacker guesses about them, and the guesses are compared with the
claim.

The rules for guessing are chosen on pilot runs, whose guesses are not counted. There are two findings. The first is the
bound at the given delta; nearly all of the permitted error probability is spent on it. The second compares claim and
bound at one of several deltas; its rule and delta are those that did best in the pilot. The second finding detects
faults for which a bound at a tiny delta would need millions of trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.accountant import epsilons_for_deltas
from accounting.composition.composition import compose
from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events import Event
from accounting.intervals import Interval
from accounting.numbers import read_integer, read_real
from calibrators.plan import Plan
from trainer.audit.canaries import DESIGNS, ORTHOGONAL, dependence, largest_number_of_rows
from trainer.audit.held_out import HELD_OUT, TWO_CLASSES, EvaluationAttack
from trainer.audit.methods import GAUSSIAN_DP, METHODS, Method, best_rule
from trainer.audit.observation import observe
from trainer.audit.result import AuditResult, Finding, verdict_of
from trainer.audit.scores import LIKELIHOOD_RATIO, RELEASED_MODEL, Floats, scores
from trainer.audit.trials import Counts, Trials
from trainer.held_out import Layout

MIN_TRIALS = 10
MAX_TRIALS = 10**7
MAX_CANARIES_OF_ONE_RUN = 4096
#: The most canaries of one run with independent trials. More canaries would not be faster, because their rows form a
#: dense square matrix.
_INDEPENDENT_CANARIES = 512
#: The largest number of coordinates that are kept of the path of one run.
_MAX_PATH = 2 * 10**7
#: Further deltas at which claim and bound may be compared. Only those above the requested delta are used.
_CURVE = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)
#: The share of the permitted error probability for the comparison at further deltas. It is small, because faults worth
#: finding are far from the claim.
_CURVE_SHARE = 0.02
#: The number of counted trials for each pilot trial.
_COUNTED_PER_PILOT = 5


class AuditCancelled(Exception):
    """The audit was asked to stop.

    Attributes:
        runs: The number of runs that had been carried out.
    """

    def __init__(self, runs: int) -> None:
        super().__init__(f"cancelled after {runs} runs")
        self.runs = runs


@dataclass(frozen=True, slots=True)
class Schedule:
    """The numbers of canaries of all runs: first the pilot runs, then the counted ones.

    Attributes:
        pilot: The number of canaries of each pilot run.
        counted: The number of canaries of each counted run.
        note: The reason why a run has few canaries; empty if it has many.
    """

    pilot: tuple[int, ...]
    counted: tuple[int, ...]
    note: str

    @property
    def runs(self) -> int:
        return len(self.pilot) + len(self.counted)


def schedule(plan: Plan, trials: int, method: str, design: str) -> Schedule:
    """Return the runs that an audit would need; each is a full run of the plan.

    Raises:
        InvalidValue: If the method or the design is unknown, or the number of trials is too large for it.
    """
    trials = read_integer("trials", trials, MIN_TRIALS, MAX_TRIALS)
    _known("method", method, METHODS)
    _known("design", design, (*DESIGNS, HELD_OUT))
    if design == HELD_OUT and plan.evaluation is None:
        raise InvalidValue(
            "this plan has no evaluation on held-out rows to attack; attack its training: "
            f"design must be {one_of(sorted(DESIGNS))}",
            pointer=("design",),
        )
    way = METHODS[method]
    widest = max(1, _MAX_PATH // plan.iterations)
    if not way.independent:
        if design != ORTHOGONAL:
            raise InvalidValue(f"one run with many canaries needs the {ORTHOGONAL} design", pointer=("design",))
        most = min(MAX_CANARIES_OF_ONE_RUN, widest, largest_number_of_rows(plan))
        if trials > most:
            raise InvalidValue(f"one run of this plan has room for {most} canaries, not {trials}", pointer=("trials",))
        return Schedule((trials,), (trials,), "")
    reason = dependence(plan) if design == ORTHOGONAL else "this design has only one canary in a run"
    width = 1 if reason else min(_INDEPENDENT_CANARIES, widest)
    note = f"One canary in each run: {reason}." if reason else ""
    return Schedule(_parts(-(-trials // _COUNTED_PER_PILOT), width), _parts(trials, width), note)


def attacked_events(plan: Plan, design: str) -> tuple[Event, ...]:
    """Return the events that a design attacks: those of the training, or that of the evaluation. A row is either
    trained on or held out, so a canary tests the charge of only one of the two."""
    if design == HELD_OUT:
        assert plan.evaluation is not None, "the schedule has refused it"
        return (plan.evaluation.event,)
    return tuple(phase.event for phase in plan.phases)


def audit(
    plan: Plan,
    *,
    delta: float = 1e-5,
    trials: int = 100_000,
    confidence: float = 0.95,
    method: str = "guesses",
    design: str = ORTHOGONAL,
    layout: Layout = TWO_CLASSES,
    seed: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    is_cancelled: Callable[[], bool] | None = None,
) -> AuditResult:
    """Attack the trainer that would run ``plan``, and compare the proved bound with the claim.

    Canaries are the only records: no row of any data set takes part in an audit.

    Args:
        plan: An executable plan.
        delta: The delta of the claim, in (0, 1).
        trials: The number of counted canaries. The pilot has a fifth as many; with the method of one run, it has just
            as many.
        confidence: In (0, 1).
        method: A name in `methods.METHODS`.
        design: A name in `canaries.DESIGNS`, or `held_out.HELD_OUT` for the evaluation of the plan.
        layout: The layout of the evaluation's vector. Only the design that attacks the evaluation reads it.
        seed: A seed that makes the audit repeatable; None draws from the operating system.
        on_progress: A function that is called with (runs done, runs in all) at the start and after each run.
        is_cancelled: A function that is asked before each step of each run whether to stop.

    Guarantees:
        - honest_runs_are_rarely_called_violated: with probability at most 1 - confidence, for the two findings
          together.
        - the_bound_is_rarely_above_the_truth: at the asked delta, with probability at most 1 - confidence.
        - rules_are_chosen_before: on runs that are not counted.
        - the_trainer_is_the_trainer: sampler, bound, noise and update are those that `trainer.run` uses, and the vector
          of an evaluation is that of `trainer.held_out`.
        - the_claim_is_of_what_is_attacked: `attacked_events` under the relation of the plan.

    Requires:
        The trainer's noise is independent between coordinates and runs, if one run has several canaries and the method
        counts independent trials (`canaries.dependence`). The method ``one_run`` requires nothing.

    Raises:
        InvalidValue: If a number is outside its range, a name is unknown, or the plan is not executable.
        Unsupported: If there is no trainer of this name.
        AuditCancelled: If ``is_cancelled`` returned true.

    Source: Steinke, Nasr & Jagielski 2023 (arXiv 2305.08846); Nasr et al. 2021, 2023 (arXiv 2101.04535, 2302.07956).
    """
    delta = read_real("delta", delta, 0.0, 1.0 - 1e-9, open_lower=True)
    error = 1.0 - read_real("confidence", confidence, 0.0, math.nextafter(1.0, 0.0), open_lower=True)
    runs = schedule(plan, trials, method, design)
    events = attacked_events(plan, design)
    if method == GAUSSIAN_DP.name and compose(events, plan.neighboring_relation).gaussian_only is None:
        raise Unsupported(
            "the method gaussian_dp tests a claim of Gaussian DP, which only plans of full-batch Gaussian steps "
            f"make; use {one_of(sorted(METHODS.keys() - {GAUSSIAN_DP.name}))}",
            pointer=("method",),
        )
    way = METHODS[method]
    deltas = [delta, *(other for other in _CURVE if other > delta)] if way.curve else [delta]
    answers = epsilons_for_deltas(events, plan.neighboring_relation, deltas)
    claims = {at: answer.value for at, answer in zip(deltas, answers, strict=True)}

    coins = np.random.default_rng(seed)
    parts: list[Trials] = []

    def stop_if_cancelled() -> None:
        if is_cancelled is not None and is_cancelled():
            raise AuditCancelled(len(parts))

    attack = _attack(plan, design, layout, stop_if_cancelled)
    _tell(on_progress, 0, runs.runs)
    for canaries in (*runs.pilot, *runs.counted):
        members = coins.random(canaries) < 0.5
        key = None if seed is None else int(coins.integers(2**63))
        parts.append(Trials(attack(members, key), members))
        _tell(on_progress, len(parts), runs.runs)
    pilot, counted = Trials.join(parts[: len(runs.pilot)]), Trials.join(parts[len(runs.pilot) :])

    curve_error = _CURVE_SHARE * error if len(deltas) > 1 else 0.0
    finding = _find(way, pilot, counted, claims, {delta: 0.0}, 1.0 - (error - curve_error))
    goals = {at: claim.upper for at, claim in claims.items() if math.isfinite(claim.upper)}
    strongest = _find(way, pilot, counted, claims, goals, 1.0 - curve_error) if curve_error and goals else None
    half, rest = counted.count // 2, counted.count % 2
    perfect = Counts(counted.count, half + rest, half + rest, 0, half, 0, kinds=1)
    most = way.epsilon(perfect, delta, finding.confidence)
    return AuditResult(
        verdict=verdict_of(finding, strongest),
        confidence=1.0 - error,
        finding=finding,
        strongest=strongest,
        method=method,
        design=design,
        trials=counted.count,
        canaries_per_run=max(runs.counted),
        runs=runs.runs,
        largest_provable_epsilon=most,
        notes=_notes(runs.note, most, claims[delta], pilot),
    )


def _attack(
    plan: Plan, design: str, layout: Layout, before_step: Callable[[], None]
) -> Callable[[npt.NDArray[np.bool_], int | None], Mapping[str, Floats]]:
    """Return a function that carries out one run with given members and seed, and scores its canaries."""
    if design != HELD_OUT:
        return lambda members, key: scores(plan, observe(plan, members, design, key, before_step))
    assert plan.evaluation is not None, "the schedule has refused it"
    evaluation = EvaluationAttack(plan.evaluation, plan.neighboring_relation, layout)

    def of_vectors(members: npt.NDArray[np.bool_], key: int | None) -> Mapping[str, Floats]:
        before_step()
        return {LIKELIHOOD_RATIO: np.array([evaluation.score(member=bool(member), seed=key) for member in members])}

    return of_vectors


def _find(
    way: Method,
    pilot: Trials,
    counted: Trials,
    claims: Mapping[float, Interval],
    goals: Mapping[float, float],
    confidence: float,
) -> Finding:
    """Return the finding that the pilot's best rule proves on the counted trials.

    Args:
        goals: The deltas from which the pilot chooses, each with the epsilon that the bound should exceed there.
    """
    rule, delta = best_rule(way, pilot, list(goals.items()), confidence)
    counts = rule.count(counted)
    return Finding(delta, claims[delta], way.epsilon(counts, delta, confidence), confidence, rule, counts)


def _notes(schedule_note: str, most: float, claim: Interval, pilot: Trials) -> tuple[str, ...]:
    notes = [schedule_note] if schedule_note else []
    if most <= claim.upper:
        notes.append(
            f"This number of trials can prove an epsilon of at most {most:.3g} at this delta, but the claim is "
            f"{claim.upper:.6g}: only the comparison at larger deltas can contradict the claim."
        )
    if set(pilot.scores) == {RELEASED_MODEL}:
        notes.append(
            "The attacker saw only the released model. The claim also holds for an attacker who sees every step, "
            "so the bound may be far below the claim."
        )
    return tuple(notes)


def _parts(count: int, width: int) -> tuple[int, ...]:
    whole, rest = divmod(count, width)
    return (width,) * whole + ((rest,) if rest else ())


def _known(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise InvalidValue(f"{what} must be {one_of(sorted(known))}", pointer=(what,))


def _tell(on_progress: Callable[[int, int], None] | None, done: int, total: int) -> None:
    if on_progress is not None:
        on_progress(done, total)
