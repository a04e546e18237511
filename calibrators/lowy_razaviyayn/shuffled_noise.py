"""This module solves for the open quantity of shuffled counts in closed form: the noise bits for a target, or the cost
of given noise.
"""

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

#: Charges are at most this factor times the target's epsilon. This covers the rounding of sums of epsilons.
_BELOW = 1.0 - 1e-12
_LARGEST_DELTA = 0.5
_SMALLEST_LOG_DELTA = -690.0


@dataclass(frozen=True, slots=True)
class Solved:
    """Shuffled counts with nothing left open.

    Attributes:
        counts: The messages of one coordinate.
        coordinate_epsilon: The cost epsilon_hat of a coordinate.
        coordinate_delta: The share delta_hat of delta for a coordinate.
        steps: The single step, with the cost of all coordinates.
    """

    counts: ShuffledSum
    coordinate_epsilon: float
    coordinate_delta: float
    steps: Steps


def check_target(spec: Spec) -> None:
    """Refuse targets for which shuffled counts have no known cost.

    Raises:
        Unsupported: If the target is not (epsilon, delta) with delta between 0 and 1/2.
    """
    target = spec.target
    if not isinstance(target, ApproximateDpTarget | OpenEpsilon | OpenDelta):
        raise Unsupported(
            "the cost of shuffled counts is known only as an epsilon at a delta, because Lemma 56 bounds "
            "likelihood ratios except on an event of probability delta; use an approximate_dp target for "
            "single records",
            code="no_cost_in_filter",
            pointer=("target", "kind"),
        )
    if not isinstance(target, OpenDelta) and not 0.0 < target.delta < _LARGEST_DELTA:
        raise Unsupported("delta must be above 0 and below 1/2 for shuffled counts", pointer=("target", "delta"))


def solve_counts(spec: Spec, users: int, dimension: int, levels: int, reach: float) -> Solved:
    """Return the smallest number of noise bits that meets the target, or the cost of the given noise.

    Args:
        users: The number s of users per sum.
        dimension: The dimension d, which is the number of sums.
        levels: The number g of levels.
        reach: The number K, the l2 distance between the counts of neighbours divided by g.

    Raises:
        Unsupported: If `check_target` refuses the target, or if the epsilon of a coordinate would be larger than Lemma
            56 allows.
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
                f"the target needs {bits:.3g} noise bits for each record and coordinate, but at most "
                f"{MAX_NOISE_BITS:.3g} are allowed: ask for a larger epsilon",
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
            f"this noise_multiplier needs {bits:.3g} noise bits for each record and coordinate, but at most "
            f"{MAX_NOISE_BITS:.3g} are allowed; give a smaller noise_multiplier",
            pointer=("noise_multiplier",),
        )
    return ShuffledSum(users, levels, int(bits))


def _cost(counts: ShuffledSum, dimension: int, reach: float, delta: float) -> float:
    return composed_epsilon(counts.epsilon(share_of_delta(delta, dimension)), 0.5 * delta, reach)


def _least_delta(counts: ShuffledSum, dimension: int, reach: float, epsilon: float) -> float:
    """Return the least delta, rounded up. It is found by bisection of its logarithm, because the cost falls as delta
    rises.
    """
    low, high = _SMALLEST_LOG_DELTA, math.log(_LARGEST_DELTA) * (1.0 + 1e-9)
    if _cost(counts, dimension, reach, math.exp(high)) > epsilon:
        raise Unreachable(
            f"with this noise, no delta below 1/2 can be certified at epsilon {epsilon:g}; use more noise or a "
            "larger epsilon",
            pointer=("target", "epsilon"),
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
        f"the epsilon of a coordinate would be {epsilon:.4g}, but Lemma 56 is proved only up to "
        f"{LARGEST_EPSILON:g}: {remedy}",
        pointer=pointer,
    )
