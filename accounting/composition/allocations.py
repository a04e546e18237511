"""Several whole allocations with the same noise and bins: their loss's density, convolved.

Contours answer for lists with anything else. They are wider where there are many bins and little noise, and few
allocations; `accounting.fourier.allocation_profile` has what is computed here.
"""

from __future__ import annotations

import math

import scipy

from accounting.composition.composition import Composition
from accounting.composition.fourier import FourierInversion, certified, larger, root_of
from accounting.fourier.allocation_profile import AllocationProfile, allocation_profile
from accounting.fourier.effort import renew
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Direction
from accounting.losses.random_allocation import AllocationLoss


class AllocationConvolution:
    """Guarantees: interval_contains_truth."""

    name = "allocation_convolution"
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        profiles = _profiles(composition)
        if profiles is None:
            return None
        first, second = (profile.delta_bounds(epsilon) for profile in profiles)
        return larger(first, second)

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        profiles = _profiles(composition)
        if profiles is None:
            return None
        guess = FourierInversion().estimate_epsilon(composition, delta) or 1.0
        first, second = (_epsilon(profile, guess, delta) for profile in profiles)
        return larger(first, second)


def _profiles(composition: Composition) -> tuple[AllocationProfile, AllocationProfile] | None:
    """Both directions; None where the list has anything else than whole allocations of one kind."""
    if len(composition.steps) != 1:
        return None
    ((loss, count),) = composition.steps
    if not isinstance(loss, AllocationLoss) or not loss.is_inverted or loss.seen < loss.bins:
        return None
    renew()
    remove, add = (
        allocation_profile(loss.noise_multiplier, loss.bins, count, remove=direction is Direction.REMOVE)
        for direction in (Direction.REMOVE, Direction.ADD)
    )
    return None if remove is None or add is None else (remove, add)


def _epsilon(profile: AllocationProfile, guess: float, delta: float) -> Bounds:
    if profile.delta_bounds(0.0).upper <= delta:
        return Bounds(0.0, 0.0, 0.0)
    high = guess
    while profile.estimate(high)[0] > delta:
        high *= 2.0
    near = scipy.optimize.brentq(lambda epsilon: _excess(profile, epsilon, delta), 0.0, high, xtol=1e-4 * high)
    return certified(profile, root_of(profile, float(near), delta), delta)


def _excess(profile: AllocationProfile, epsilon: float, delta: float) -> float:
    return math.log(max(profile.estimate(epsilon)[0], 1e-300) / delta)
