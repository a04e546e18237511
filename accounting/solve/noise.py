"""Noise for a target: the smallest noise multiplier whose certified cost meets it."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.composition.composition import compose
from accounting.composition.gaussian_dp import mu_of_gaussian
from accounting.intervals import Answer
from accounting.numbers import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from accounting.relations import NeighboringRelation
from accounting.solve.decreasing import smallest_that_meets
from accounting.solve.solution import EventsAt, Range, Solution, close_estimate
from accounting.targets import ApproximateDpTarget, BudgetTarget, Target

#: The relative tolerance in the target's level. Certified numerical bounds are a millionth wide.
_TOLERANCE = 8e-6
_CLOSED_FORM_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A noise multiplier, and the epsilon that it achieves.

    Attributes:
        noise_multiplier: Noise over the contribution bound, as everywhere.
        achieved: The interval of epsilon at the target's delta; its upper end is at most the target's epsilon.
    """

    noise_multiplier: float
    achieved: Answer


def solve_noise_multiplier(
    events_at: EventsAt, relation: NeighboringRelation, *, epsilon: float, delta: float
) -> Calibrated:
    """Return the smallest noise multiplier at which the list is certified (epsilon, delta)-DP.

    Args:
        events_at: the event list as a function of the noise multiplier; more noise must not cost more.
        relation: the neighbouring relation.
        epsilon: The target's epsilon, positive.
        delta: The target's delta, in [0, 1].

    Guarantees, Raises: As `solve_noise`.

    >>> from accounting.events import Event, Gaussian
    >>> relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    >>> found = solve_noise_multiplier(lambda s: [Event(Gaussian(s))], relation, epsilon=1.0, delta=1e-5)
    >>> round(found.noise_multiplier, 4), found.achieved.value.upper <= 1.0
    (3.7306, True)
    """
    found = solve_noise(events_at, relation, ApproximateDpTarget(epsilon, delta))
    return Calibrated(found.value, found.achieved)


def solve_noise(
    events_at: EventsAt, relation: NeighboringRelation, target: Target, *, least: float = MIN_NOISE_MULTIPLIER
) -> Solution:
    """Return the smallest noise multiplier at which the list's certified cost meets the target.

    Args:
        events_at: the event list as a function of the noise multiplier; more noise must not cost more.
        relation: the neighbouring relation.
        target: the target.
        least: The smallest noise multiplier at which the list is accounted.

    Guarantees:
        never_misses: achieved.value.upper <= target.limit, evaluated at the returned number itself.
        target_is_used: the noise is within a relative 1e-5 of the smallest whose certificate meets the target
            (epsilon: achieved.value.upper >= epsilon (1 - 1e-5)), unless the bound jumps there (then the returned
            noise multiplier is within a relative 1e-7 of one that fails).

    Raises:
        InvalidValue: If a number is outside its range.
        NoCostInFilter: If the target is in rho, in mu or a budget, and an event has no proved cost there.
        Unreachable: If no noise multiplier in [``least``, 1e6] meets the target, or every one of them does.

    >>> from accounting.events import Event, Gaussian
    >>> from accounting.targets import ZcdpTarget
    >>> found = solve_noise(lambda s: [Event(Gaussian(s), count=9)], NeighboringRelation.REPLACE_ONE, ZcdpTarget(2.0))
    >>> round(found.value, 9), found.achieved.value.upper <= 2.0
    (3.0, True)
    """
    relation = NeighboringRelation(relation)

    def assess(noise: float) -> Answer:
        return target.assess(events_at(noise), relation)

    def quick(noise: float) -> Answer:
        return target.assess(events_at(noise), relation, quick=True)

    limits = (least, MAX_NOISE_MULTIPLIER)
    words = Range(
        least_private=f"noise multiplier {least:g}",
        most_private=f"noise multiplier {MAX_NOISE_MULTIPLIER:g}",
        everything=f"every noise multiplier from {least:g} on",
        advice=(
            "allow a larger epsilon or delta (or raise the limit that the target states), or take fewer steps or "
            "a smaller batch"
        ),
    )
    tolerance, guess = _TOLERANCE, max(1.0, least)
    # A ledger counts whole units, so the noise for a budget is not solved to the last digits.
    if isinstance(target, BudgetTarget):
        tolerance = max(tolerance, 2.0 * target.filter.price_tolerance)
    else:
        pair = None if target.additive else compose(events_at(guess), relation).gaussian_only
        if target.additive or pair is not None:
            tolerance = _CLOSED_FORM_TOLERANCE
        if pair is not None and isinstance(target, ApproximateDpTarget) and 0.0 < target.delta < 1.0:
            guess *= pair.mu / mu_of_gaussian(target.epsilon * (1.0 - 0.3 * tolerance), target.delta)
    close = close_estimate(target, events_at, relation)
    return smallest_that_meets(assess, quick, target, limits, words, tolerance, guess=guess, close=close)
