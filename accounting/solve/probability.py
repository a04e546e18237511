"""Sampling for a target: the largest probability with which a record may take part in a step."""

from __future__ import annotations

from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from accounting.solve.decreasing import smallest_that_meets
from accounting.solve.solution import EventsAt, Range, Solution, close_estimate, refuse_if_indifferent
from accounting.targets import Target

MIN_SAMPLING_PROBABILITY = 1e-12
_WORDS = Range(
    least_private="sampling probability 1",
    most_private=f"sampling probability {MIN_SAMPLING_PROBABILITY:g}",
    everything=f"every sampling probability from {MIN_SAMPLING_PROBABILITY:g} to 1",
    advice="take more noise or fewer steps, or allow a larger target",
)
_TOLERANCE = 8e-6


def solve_sampling_probability(events_at: EventsAt, relation: NeighboringRelation, target: Target) -> Solution:
    """Return the largest sampling probability at which the list's certified cost meets the target.

    Args:
        events_at: The event list as a function of the probability; a larger probability must not cost less.
        relation: the neighbouring relation.
        target: the target.

    Guarantees:
        never_misses: achieved.value.upper <= target.limit, evaluated at the returned number itself.
        target_is_used: the target's level is reached within a relative 1e-5, unless the bound jumps there.

    Raises:
        Unsupported: If the cost is the same at every probability: the target makes no use of the sampling.
        Unreachable: If no probability in [1e-8, 1] meets the target, or every one does.

    >>> from accounting.events import Event, Gaussian, Poisson
    >>> from accounting.targets import ApproximateDpTarget
    >>> relation, target = NeighboringRelation.ADD_OR_REMOVE_ONE, ApproximateDpTarget(0.5, 1e-5)
    >>> found = solve_sampling_probability(lambda q: [Event(Gaussian(1.0), Poisson(q))], relation, target)
    >>> 0.0 < found.value < 0.1, found.achieved.value.upper <= 0.5
    (True, True)
    """
    relation = NeighboringRelation(relation)

    def assess(inverse: float) -> Answer:
        return target.assess(events_at(_probability(inverse)), relation)

    def quick(inverse: float) -> Answer:
        return target.assess(events_at(_probability(inverse)), relation, quick=True)

    refuse_if_indifferent(target, relation, "sampling probability", events_at(MIN_SAMPLING_PROBABILITY), events_at(1.0))
    limits = (1.0, 1.0 / MIN_SAMPLING_PROBABILITY)
    close = close_estimate(target, lambda inverse: events_at(_probability(inverse)), relation)
    found = smallest_that_meets(assess, quick, target, limits, _WORDS, _TOLERANCE, close=close)
    return Solution(_probability(found.value), found.achieved)


def _probability(inverse: float) -> float:
    return min(1.0, 1.0 / inverse)
