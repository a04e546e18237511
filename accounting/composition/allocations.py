"""This module answers lists of several whole allocations with the same noise and bins. It convolves the density of the
loss.

Lists with anything else are answered by contour integrals, whose intervals are wider if there are many bins, little
noise and few allocations. The computation is in `accounting.fourier.allocation_profile`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import scipy

from accounting.composition.composition import Composition
from accounting.composition.fourier import certified, larger, root_of
from accounting.fourier.allocation_profile import AllocationProfile, allocation_profile
from accounting.fourier.effort import renew
from accounting.fourier.log_sums import LOG_LEAST, log_sum
from accounting.intervals import Bounds
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.privacy_loss import Direction, PrivacyLoss
from accounting.losses.random_allocation import AllocationLoss

#: The first number, 16, limits the part that is left out to e^-16 of delta. The mass of one density above its end may
#: be e^-3 of that part. It may be only e^-13 of it if several densities are convolved, because mass above the ends may
#: lie anywhere in the density of the sum.
_LOG_NEGLIGIBLE, _ONE, _SEVERAL = 16.0, 3.0, 13.0
#: The logs of the mass above the ends of the densities, tried one after the other if delta is not known.
_LOGS_ABOVE = (-40.0, -60.0, -80.0, LOG_LEAST)
_DIRECTIONS = (Direction.REMOVE, Direction.ADD)


class AllocationConvolution:
    """The evaluator for lists of several whole allocations.

    Guarantees: interval_contains_truth.
    """

    name = "allocation_convolution"
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        allocation = _allocation(composition)
        if allocation is None:
            return None
        # The range over which a density must be known depends on delta.
        for log_above in _LOGS_ABOVE:
            profiles = _profiles(*allocation, log_above)
            if profiles is None:
                return None
            bounds = larger(*(profile.delta_bounds(epsilon) for profile in profiles))
            if bounds.error_budget["left_out"] <= math.exp(-_LOG_NEGLIGIBLE) * bounds.lower:
                break
        return bounds

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        allocation = _allocation(composition)
        if allocation is None:
            return None
        log_above = math.log(delta) - _LOG_NEGLIGIBLE - (_ONE if allocation[1] == 1 else _SEVERAL)
        profiles = _profiles(*allocation, log_above)
        return None if profiles is None else larger(*(_epsilon(profile, delta) for profile in profiles))


def is_convolved(composition: Composition) -> bool:
    """Return whether `AllocationConvolution` answers this list, unless the number of steps is too large."""
    return _allocation(composition) is not None


def like_poisson(composition: Composition) -> Composition:
    """Return a composition of about the same cost that is quick to evaluate: allocations become Poisson sampling."""
    steps: list[tuple[PrivacyLoss, int]] = [
        (PoissonGaussianLoss(loss.noise_multiplier, 1.0 / loss.bins), count * loss.seen)
        if isinstance(loss, AllocationLoss) and loss.is_inverted
        else (loss, count)
        for loss, count in composition.steps
    ]
    return replace(composition, steps=tuple(steps))


def _allocation(composition: Composition) -> tuple[AllocationLoss, int] | None:
    """Return the allocation and how often it occurs; None unless the list has only whole allocations of one kind."""
    if len(composition.steps) != 1:
        return None
    ((loss, count),) = composition.steps
    if not isinstance(loss, AllocationLoss) or not loss.is_inverted or loss.seen < loss.bins:
        return None
    return loss, count


def _profiles(loss: AllocationLoss, count: int, log_above: float) -> tuple[AllocationProfile, AllocationProfile] | None:
    """Return the profiles of both directions; None if they would take too many points.

    Args:
        log_above: Logarithm of the mass that all densities together may leave out.
    """
    renew()
    law = log_sum(1.0 / loss.noise_multiplier, loss.bins, log_above - math.log(count))
    remove, add = (allocation_profile(law, count, remove=direction is Direction.REMOVE) for direction in _DIRECTIONS)
    return None if remove is None or add is None else (remove, add)


def _epsilon(profile: AllocationProfile, delta: float) -> Bounds:
    if profile.delta_bounds(0.0).upper <= delta:
        return Bounds(0.0, 0.0, 0.0)
    high = 1.0
    while profile.estimate(high)[0] > delta:
        high *= 2.0
    near = scipy.optimize.brentq(lambda epsilon: _excess(profile, epsilon, delta), 0.0, high, xtol=1e-4 * high)
    return certified(profile, root_of(profile, float(near), delta), delta)


def _excess(profile: AllocationProfile, epsilon: float, delta: float) -> float:
    return math.log(max(profile.estimate(epsilon)[0], 1e-300) / delta)
