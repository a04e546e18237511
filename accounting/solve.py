"""Noise for a target: the smallest noise multiplier whose certified epsilon meets it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accounting.accountant import EVALUATORS, QUICK_EVALUATORS, epsilon_for_delta
from accounting.composition.evaluator import Evaluator
from accounting.errors import Unreachable
from accounting.events import Event
from accounting.intervals import Answer
from accounting.numbers import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER, read_real
from accounting.privacy_loss import compose
from accounting.relations import NeighboringRelation

EventsAt = Callable[[float], Sequence[Event]]

_MAX_EVALUATIONS = 60


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A noise multiplier and what it achieves.

    Attributes:
        noise_multiplier: Noise over the contribution bound, as everywhere.
        achieved: The interval of epsilon at the target's delta; its upper end is at most the target's epsilon.
    """

    noise_multiplier: float
    achieved: Answer


def solve_noise_multiplier(
    events_at: EventsAt, relation: NeighboringRelation, *, epsilon: float, delta: float
) -> Calibrated:
    """The smallest noise multiplier at which the list is certified (epsilon, delta)-DP.

    Args:
        events_at: the event list as a function of the noise multiplier; more noise must not cost more.
        relation: the neighbouring relation.
        epsilon: target, positive.
        delta: target, in [0, 1).

    Guarantees:
        never_misses: achieved.value.upper <= epsilon, evaluated at the returned number itself.
        target_is_used: achieved.value.upper >= epsilon (1 - 1e-5), unless the bound jumps there (then the returned
            noise multiplier is within a relative 1e-7 of one that fails).

    Raises:
        InvalidValue: a target outside its range.
        Unreachable: no noise multiplier in [1e-3, 1e6] meets the target, or every one does.

    >>> from accounting.events import Gaussian
    >>> relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    >>> found = solve_noise_multiplier(lambda s: [Event(Gaussian(s))], relation, epsilon=1.0, delta=1e-5)
    >>> round(found.noise_multiplier, 4), found.achieved.value.upper <= 1.0
    (3.7306, True)
    """
    epsilon = read_real("epsilon", epsilon, 0.0, 1e9, open_lower=True)
    delta = read_real("delta", delta, 0.0, 1.0)
    relation = NeighboringRelation(relation)

    def answer(noise: float, evaluators: Sequence[Evaluator] = EVALUATORS) -> Answer:
        return epsilon_for_delta(events_at(noise), relation, delta, evaluators=evaluators)

    def quick_upper(noise: float) -> float:
        return answer(noise, QUICK_EVALUATORS).value.upper

    noise = _quick_bracket(quick_upper, epsilon)
    start = answer(noise)
    if start.value.upper > epsilon:
        raise Unreachable(_too_small_a_target(start, epsilon, delta))
    closed_form = compose(events_at(noise), relation).gaussian_only is not None
    tolerance = 1e-10 if closed_form else 8e-6
    return _search(answer, Calibrated(noise, start), epsilon, tolerance)


def _too_small_a_target(answer: Answer, epsilon: float, delta: float) -> str:
    if math.isinf(answer.value.upper):
        return f"no noise multiplier gives a finite epsilon at delta {delta:g}: the mechanism's loss is unbounded"
    return (
        f"even noise multiplier {MAX_NOISE_MULTIPLIER:g} costs epsilon {answer.value.upper:.6g} at delta {delta:g}, "
        f"more than the target {epsilon:g}; allow a larger epsilon or delta, fewer steps or a smaller batch"
    )


def _quick_bracket(upper: Callable[[float], float], epsilon: float) -> float:
    """A noise multiplier at which the quick bound meets the target, within 3 % of the smallest; or the largest one."""
    low, high = math.log(MIN_NOISE_MULTIPLIER), math.log(MAX_NOISE_MULTIPLIER)
    if upper(MAX_NOISE_MULTIPLIER) > epsilon:
        return MAX_NOISE_MULTIPLIER
    while high - low > 0.03:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if upper(math.exp(middle)) <= epsilon else (middle, high)
    return min(math.exp(high), MAX_NOISE_MULTIPLIER)


def _search(answer: Callable[[float], Answer], start: Calibrated, epsilon: float, tolerance: float) -> Calibrated:
    """Down from ``start``, which meets the target: secant steps in the logarithms inside a bracket.

    ``best`` is always a number whose own certificate meets the target; only such a number is returned.
    """
    best, failing = start, 0.0
    aim = math.log(epsilon) + math.log1p(-0.3 * tolerance)
    points = [_point(start)]
    for _ in range(_MAX_EVALUATIONS):
        if best.achieved.value.upper >= epsilon * (1.0 - tolerance):
            return best
        if best.noise_multiplier <= MIN_NOISE_MULTIPLIER * (1.0 + 1e-12):
            raise Unreachable(
                f"every noise multiplier from {MIN_NOISE_MULTIPLIER:g} on meets epsilon {epsilon:g}; the target asks "
                "for less noise than this engine calibrates. Take a smaller epsilon"
            )
        if failing > 0.0 and best.noise_multiplier < failing * (1.0 + 1e-7):
            return best
        noise = _next_noise(points, aim, failing, best.noise_multiplier)
        tried = Calibrated(noise, answer(noise))
        if tried.achieved.value.upper <= epsilon:
            best = tried
        else:
            failing = noise
        points = [points[-1], _point(tried)]
    return best


def _point(tried: Calibrated) -> tuple[float, float]:
    """(log noise, log epsilon); -inf where epsilon is 0."""
    upper = tried.achieved.value.upper
    return math.log(tried.noise_multiplier), math.log(upper) if upper > 0.0 else -math.inf


def _next_noise(points: list[tuple[float, float]], aim: float, failing: float, passing: float) -> float:
    """The secant's proposal where it falls inside the bracket, else a step that halves the bracket."""
    slope = -1.0
    if len(points) == 2 and points[0][0] != points[1][0]:
        slope = (points[1][1] - points[0][1]) / (points[1][0] - points[0][0])
    x, y = points[-1]
    proposal = math.nan
    if math.isfinite(y) and math.isfinite(slope) and slope < -1e-3:
        proposal = x + (aim - y) / slope
    low = math.log(failing) if failing > 0.0 else max(math.log(passing) - 1.0, math.log(MIN_NOISE_MULTIPLIER))
    high = math.log(passing)
    if not low < proposal < high:
        proposal = low if failing == 0.0 else 0.5 * (low + high)
    return max(math.exp(proposal), MIN_NOISE_MULTIPLIER)
