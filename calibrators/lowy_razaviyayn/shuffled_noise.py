"""The open quantity of shuffled counts in closed form: noise bits for a target, or the cost of given noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import Unreachable, Unsupported
from accounting.events import ApproximateDp, Event
from accounting.solve import solve_delta, solve_epsilon
from accounting.targets import ApproximateDpTarget
from calibrators.lowy_razaviyayn.shuffled_sums import (
    LARGEST_EPSILON,
    MAX_NOISE_BITS,
    ShuffledSum,
    composed_epsilon,
    coordinate_epsilon,
    noise_bits,
    noise_bits_for,
    share_of_delta,
)
from calibrators.noise import Steps
from calibrators.spec import OpenDelta, OpenEpsilon, Spec, Unknown

#: The factor by which charges stay below the target's epsilon. It covers the rounding of sums of epsilons.
_BELOW = 1.0 - 1e-12
_LARGEST_DELTA = 0.5
_SMALLEST_LOG_DELTA = -690.0


@dataclass(frozen=True, slots=True)
class Solved:
    """Counts in which nothing is left open.

    Attributes:
        counts: The messages of one coordinate.
        coordinate_epsilon: The epsilon epsilon_hat of a coordinate.
        coordinate_delta: The delta delta_hat of a coordinate.
        steps: The cost of all coordinates, in one step.
    """

    counts: ShuffledSum
    coordinate_epsilon: float
    coordinate_delta: float
    steps: Steps


def check_target(spec: Spec) -> None:
    """Refuse targets under which shuffled counts have no cost.

    Raises:
        Unsupported: If the target is not (epsilon, delta) with delta between 0 and 1/2.
    """
    target = spec.target
    if not isinstance(target, ApproximateDpTarget | OpenEpsilon | OpenDelta):
        raise Unsupported(
            "the cost of shuffled counts is known as epsilon at a delta: Lemma 56 bounds likelihood ratios up to an "
            "event of probability delta; use an approximate_dp target for single records",
            code="no_cost_in_filter",
            pointer=("target", "kind"),
        )
    if not isinstance(target, OpenDelta) and not 0.0 < target.delta < _LARGEST_DELTA:
        raise Unsupported("shuffled counts need a delta above 0 and below 1/2", pointer=("target", "delta"))


def solve_counts(spec: Spec, users: int, dimension: int, levels: int, reach: float) -> Solved:
    """Return the least noise bits that meet the target, or the cost of the given noise.

    Args:
        users: The number s of users of one sum.
        dimension: The dimension d, which is the number of sums.
        levels: The number g of levels.
        reach: The l2 distance K between the counts of neighbours, over g.

    Raises:
        Unsupported: If `check_target` refuses the target, or if a coordinate would cost more than Lemma 56 is proved
            for.
        Unreachable: If no number of noise bits, or no delta, meets the target.
    """
    check_target(spec)
    target = spec.target
    if isinstance(target, ApproximateDpTarget):
        epsilon = target.epsilon * _BELOW
        delta = target.delta
        asked = coordinate_epsilon(epsilon, delta, reach)
        if asked > LARGEST_EPSILON:
            raise _too_large(asked, ("target", "epsilon"), "ask for a smaller epsilon")
        bits = noise_bits(users, levels, asked, share_of_delta(delta, dimension)) if asked > 0.0 else math.inf
        if bits > MAX_NOISE_BITS:
            raise Unreachable(
                f"{bits:.3g} noise bits for each record and coordinate would meet the target, and messages have at "
                f"most {MAX_NOISE_BITS:.3g}: ask for a larger epsilon",
                pointer=("target",),
            )
        counts = ShuffledSum(users, levels, int(bits))
        event = Event(ApproximateDp(epsilon, delta))
        achieved = target.assess([event], spec.relation)
        steps = Steps(event, counts.noise_multiplier, users, counts.noise_multiplier, achieved)
        return Solved(counts, asked, share_of_delta(delta, dimension), steps)
    counts = _given(spec, users, levels)
    if isinstance(target, OpenEpsilon):
        delta = target.delta
        event = Event(ApproximateDp(_cost(counts, dimension, reach, delta), delta))
        achieved = solve_epsilon([event], spec.relation, delta).achieved
    else:
        assert isinstance(target, OpenDelta), "others were refused"
        delta = _least_delta(counts, dimension, reach, target.epsilon)
        event = Event(ApproximateDp(target.epsilon, delta))
        achieved = solve_delta([event], spec.relation, target.epsilon).achieved
    share = share_of_delta(delta, dimension)
    found = counts.epsilon(share)
    if found > LARGEST_EPSILON:
        raise _too_large(found, ("noise_multiplier",), "give a larger noise_multiplier")
    assert spec.unknown in (Unknown.EPSILON, Unknown.DELTA), "sizes were refused"
    return Solved(counts, found, share, Steps(event, counts.noise_multiplier, users, achieved.value.upper, achieved))


def _given(spec: Spec, users: int, levels: int) -> ShuffledSum:
    assert spec.noise_multiplier is not None, "the spec requires it if another quantity is solved for"
    bits = noise_bits_for(users, levels, spec.noise_multiplier)
    if bits > MAX_NOISE_BITS:
        raise Unreachable(
            f"such noise takes {bits:.3g} bits for each record and coordinate; messages have at most "
            f"{MAX_NOISE_BITS:.3g}",
            pointer=("noise_multiplier",),
        )
    return ShuffledSum(users, levels, int(bits))


def _cost(counts: ShuffledSum, dimension: int, reach: float, delta: float) -> float:
    return composed_epsilon(counts.epsilon(share_of_delta(delta, dimension)), 0.5 * delta, reach)


def _least_delta(counts: ShuffledSum, dimension: int, reach: float, epsilon: float) -> float:
    """Return the least delta by bisection of its logarithm, rounded up: the cost falls as delta rises."""
    low, high = _SMALLEST_LOG_DELTA, math.log(_LARGEST_DELTA) * (1.0 + 1e-9)
    if _cost(counts, dimension, reach, math.exp(high)) > epsilon:
        raise Unreachable(
            f"with this noise no delta below 1/2 is known to go with epsilon {epsilon:g}", pointer=("target", "epsilon")
        )
    while high - low > 1e-12 * abs(high):
        middle = 0.5 * (low + high)
        if _cost(counts, dimension, reach, math.exp(middle)) > epsilon:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _too_large(epsilon: float, pointer: tuple[str, ...], remedy: str) -> Unsupported:
    return Unsupported(
        f"Lemma 56 is proved for a coordinate's epsilon of at most {LARGEST_EPSILON:g}, and it would be "
        f"{epsilon:.4g}: {remedy}",
        pointer=pointer,
    )
