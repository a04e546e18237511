"""This module puts one step's privacy loss on a lattice, rounded such that the profile can only grow.

"Connect the dots" (Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022): the loss l of an outcome between two lattice
points is split between them so that its P-mass and its Q-mass are kept. Then the profile agrees with the exact one at
every lattice point and lies above it between them. Given the outcome, e^-(rounded loss) has mean e^-l and the rounded
loss is within one lattice step of l; `convolution` needs both facts for its lower bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.losses.privacy_loss import PrivacyLoss

Array = NDArray[np.float64]
MAX_POINTS = 4_000_000


@dataclass(frozen=True)
class LatticeLaw:
    """The law of one step's rounded loss under P: it has mass ``masses[j]`` at (first + j) * step.

    Attributes:
        first: Index of the lowest lattice point.
        step: Lattice step, in loss units.
        masses: P-masses, nonnegative.
        lifted: The mass added, point by point, where rounding had made masses negative.
        infinite_mass: P-mass sent to +infinity.
        lumped_mass: P-mass that was moved up to the lowest point from more than one step below.
        defect: The difference between the sum of the masses and 1: a measure of rounding.
    """

    first: int
    step: float
    masses: Array
    lifted: Array
    infinite_mass: float
    lumped_mass: float
    defect: float

    def log_moments(self, tilts: Array) -> Array:
        """Return log sum of masses e^(x loss) for every x >= 0 in ``tilts``."""
        occupied = self.masses > 0.0
        losses = (self.first + np.flatnonzero(occupied)) * self.step
        logs = np.log(self.masses[occupied])
        return np.array([float(scipy.special.logsumexp(logs + tilt * losses)) for tilt in tilts])


def lattice_law(loss: PrivacyLoss, *, remove: bool, step: float, log_mass: float) -> LatticeLaw:
    """Return the rounded law of one step in one direction.

    Args:
        step: lattice step h > 0.
        log_mass: logarithm of the P-mass that may be moved at either end.

    Guarantees: profile_only_grows; profile_is_exact_on_the_lattice.

    Raises:
        OverflowError: If the loss needs more than `MAX_POINTS` points, or the step is above 1.
    """
    support = loss.support(log_mass, remove=remove)
    first, last = min(-1, math.floor(support.lower / step)), max(1, math.ceil(support.upper / step))
    if last - first >= MAX_POINTS or step > 1.0:
        raise OverflowError("the losses span too wide a range for a lattice")
    epsilons = np.arange(first, last + 1, dtype=np.float64) * step
    # Below 0 the profile less 1 - e^eps is used. The function 1 - e^eps contributes no mass between lattice points, and
    # subtracting it keeps the digits of the rest. At 0 its kink contributes a mass of exactly 1.
    excess = loss.excess(epsilons, remove=remove)
    rise = np.diff(excess)
    growth, growth_minus_one = math.exp(step), math.expm1(step)
    masses = np.empty_like(excess)
    masses[0] = rise[0] / growth_minus_one - excess[0]
    masses[1:-1] = (rise[1:] - growth * rise[:-1]) / growth_minus_one
    masses[-1] = rise[-1] / math.expm1(-step)
    masses[-first] += 1.0
    if not bool(np.all(np.isfinite(masses))):
        raise ArithmeticError("a profile is not finite on the lattice")
    # A mass is negative only by rounding. Lifting it to 0 only adds to the profile.
    lifted = np.maximum(-masses, 0.0)
    masses = np.maximum(masses, 0.0)
    infinite = float(excess[-1])
    return LatticeLaw(
        first=first,
        step=step,
        masses=masses,
        lifted=lifted,
        infinite_mass=infinite,
        lumped_mass=support.lower_mass,
        defect=abs(math.fsum((float(masses.sum()), infinite, -1.0))),
    )
