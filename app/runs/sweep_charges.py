"""The charge of a sweep: all its runs composed, or the selection of the best of them. This module uses no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accounting.accountant import epsilon_for_delta
from accounting.canonical import canonical_bytes, sha256_hex
from accounting.events import (
    Event,
    FullBatch,
    Poisson,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
)
from accounting.guarantees import RenyiDpGuarantee
from accounting.intervals import Answer, Interval
from accounting.relations import NeighboringRelation
from accounting.tuning import PoissonTrials, TruncatedNegativeBinomial, selection_moments
from accounting.tuning.cost import selection_epsilon
from accounting.tuning.drawing import capped_epsilon, capped_moments, delta_before_cap, trials_quantile
from accounting.tuning.selection import Selection
from accounting.tuning.trials import RandomTrials
from app.tables.runs import RunSweep

#: With this probability, a sweep for the best run draws no more trials than its answers state.
QUANTILE = 0.999
#: The sampling schemes for which the steps of several runs cost as much as the same number of steps of one run. For
#: other schemes this is false: two passes over disjoint batches are not one pass over twice as many.
_STEP_BY_STEP = (FullBatch, Poisson, WithoutReplacement, WithReplacement, TruncatedPoisson)


@dataclass(frozen=True)
class SelectionCost:
    """The cost of the best of a random number of runs.

    Attributes:
        epsilon: The epsilon at the requested delta.
        moments: Renyi divergences at the requested orders; None if none were requested.
    """

    epsilon: Answer
    moments: RenyiDpGuarantee | None


def composed(runs: Sequence[Sequence[Event]]) -> tuple[Event, ...]:
    """Return the events of all runs as one list, with equal steps counted together if the cost is the same.

    >>> from accounting.events import DisjointBatches, Gaussian
    >>> one, two = Event(Gaussian(1.0), count=10), Event(Gaussian(2.0), DisjointBatches("independent"), 5)
    >>> [event.count for event in composed([[one, two], [one, two]])]
    [20, 5, 5]
    """
    found = [replace(runs[run][place], count=count) for (run, place), count in _counted_together(runs).items()]
    return tuple(found)


def part_of_composed(runs: Sequence[Sequence[Event]], started: Sequence[bool]) -> tuple[Event, ...]:
    """Return the shortest prefix of `composed` that contains all events of the runs that were started.

    Steps of other runs are left out if they are counted together with those of started runs, or if they are at the end.
    Steps in between are included, because a prefix has no gaps.

    >>> from accounting.events import Gaussian
    >>> runs = [[Event(Gaussian(1.0), count=10)], [Event(Gaussian(2.0), count=5)], [Event(Gaussian(1.0), count=10)]]
    >>> [event.count for event in part_of_composed(runs, [True, False, False])]
    [10]
    """
    whole = _counted_together(runs)
    counts = dict.fromkeys(whole, 0)
    for (run, place), key in _places(runs).items():
        counts[key] += runs[run][place].count * started[run]
    needed = [number for number, count in enumerate(counts.values()) if count]
    last = max(needed, default=-1)
    return tuple(
        replace(runs[run][place], count=counts[run, place] or whole[run, place])
        for run, place in list(whole)[: last + 1]
    )


def selection_cost(
    events: Sequence[Event],
    relation: NeighboringRelation,
    trials: RandomTrials,
    delta: float,
    orders: Sequence[float] | None,
) -> SelectionCost:
    """Return the cost of releasing the best of a random number of runs, drawn by `accounting.tuning.drawing`.

    It also runs in another process, so its arguments and its result can be pickled.

    Args:
        events: Events that bound each run that may be drawn.
        relation: The neighbouring relation.
        trials: The law of the number of runs.
        delta: The delta of epsilon; 0 for pure differential privacy.
        orders: The orders of the Renyi divergences; None to compute none.

    Raises:
        Unsupported: ``no_renyi_divergence``, ``too_many_trials``.
    """
    moments = None if orders is None else selection_moments(events, relation, trials, orders)
    selection = Selection(tuple(events), relation, trials)
    answer, _ = selection_epsilon(selection, delta_before_cap(delta), moments)
    upper = capped_epsilon(answer.value.upper)
    epsilon = replace(answer, value=Interval(0.0, upper, upper), error_budget={"unknown_score": upper})
    return SelectionCost(epsilon, None if moments is None else capped_moments(moments))


def composition_cost(events: Sequence[Event], relation: NeighboringRelation, delta: float) -> Answer:
    """Return the epsilon of all runs together. The function is called in another process."""
    return epsilon_for_delta(events, relation, delta)


def law_of(stored: Mapping[str, Any]) -> RandomTrials:
    """Return the law of the number of trials from its stored form."""
    if stored["kind"] == PoissonTrials.kind:
        return PoissonTrials(stored["expected_trials"])
    return TruncatedNegativeBinomial(stored["eta"], stored["gamma"])


def quantile_of(law: RandomTrials) -> int:
    """Return a number of trials that a sweep does not exceed with probability `QUANTILE`."""
    return trials_quantile(law, QUANTILE)


def hash_of(sweep: RunSweep, plan_hashes: Sequence[str], events: Sequence[Event]) -> str:
    """Return the hash that identifies a sweep by its cells' plans in order, what is released of them, and the
    charge."""
    return sha256_hex(
        canonical_bytes(
            {
                "select": str(sweep.select),
                "plans": list(plan_hashes),
                "trials": sweep.trials,
                "score": sweep.score,
                "events": [event.to_json() for event in events],
            }
        )
    )


_Place = tuple[int, int]


def _places(runs: Sequence[Sequence[Event]]) -> dict[_Place, _Place]:
    """Map each event, by its run and its position there, to the first event with which it is counted together."""
    firsts: dict[Event, _Place] = {}
    found: dict[_Place, _Place] = {}
    for run, events in enumerate(runs):
        for place, event in enumerate(events):
            if isinstance(event.sampling, _STEP_BY_STEP):
                found[run, place] = firsts.setdefault(replace(event, count=1), (run, place))
            else:
                found[run, place] = (run, place)
    return found


def _counted_together(runs: Sequence[Sequence[Event]]) -> dict[_Place, int]:
    """Return the count of each first event, summed over all events that are counted together with it."""
    counts: dict[_Place, int] = {}
    for (run, place), key in _places(runs).items():
        counts[key] = counts.get(key, 0) + runs[run][place].count
    return counts
