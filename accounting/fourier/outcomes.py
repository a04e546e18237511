"""This module computes the profile of a loss with finitely many outcomes as a sum of positive terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.effort import spend
from accounting.fourier.steps import UNIT
from accounting.intervals import Bounds

Array = NDArray[np.float64]

#: Laws with more outcomes are left to other methods.
MOST_OUTCOMES = 60_000


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The law of the loss under P, or a part of it.

    Attributes:
        log_masses, losses: One entry per outcome; not sorted, and equal losses may repeat.
        mass_error: Relative error of every mass.
        loss_error: Absolute error of every loss.
    """

    log_masses: Array
    losses: Array
    mass_error: float
    loss_error: float

    @classmethod
    def of_atoms(cls, atoms: Sequence[tuple[float, float]], error: float, count: int) -> Outcomes | None:
        """Return the law of ``count`` equal steps that each take one of a few atoms; None if it has too many outcomes.

        Args:
            atoms: The pair (mass, loss) of each atom; the masses may add up to less than 1.
            error: Relative error of every mass and of every loss.

        >>> law = Outcomes.of_atoms([(0.5, 1.0), (0.25, -1.0)], 0.0, 2)
        >>> sorted(zip(law.losses.tolist(), np.exp(law.log_masses).round(9).tolist()))
        [(-2.0, 0.0625), (0.0, 0.25), (2.0, 0.25)]
        """
        if math.comb(count + len(atoms) - 1, len(atoms) - 1) > MOST_OUTCOMES:
            return None
        # Go through the atoms: enumerate how often each is taken, and add up the logs of the multinomial coefficients
        # and powers.
        left, log_masses, losses = np.array([count]), np.array([math.lgamma(count + 1.0)]), np.zeros(1)
        for place, (mass, loss) in enumerate(atoms):
            if place == len(atoms) - 1:
                taken, origin = left, np.arange(left.size)
            else:
                taken = np.concatenate([np.arange(rest + 1) for rest in left.tolist()])
                origin = np.repeat(np.arange(left.size), left + 1)
            log_masses = log_masses[origin] + taken * math.log(mass) - scipy.special.gammaln(taken + 1.0)
            losses, left = losses[origin] + taken * loss, left[origin] - taken
        spend(40 * losses.size)
        # The largest terms are logarithms of factorials and exponents of powers. Each has an error of a few units in
        # the last place.
        terms = 8.0 * (len(atoms) + 1.0) * math.lgamma(count + 2.0) + 4.0 * count * max(
            1.0 - math.log(m) for m, _ in atoms
        )
        largest = count * max(abs(loss) for _, loss in atoms)
        mass_error = math.expm1(UNIT * (16.0 * terms + 64.0 + losses.size) + 1.01 * count * error)
        return cls(log_masses, losses, mass_error, (UNIT * 4.0 * (len(atoms) + 2.0) + error) * largest)

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return a lower and an upper bound of delta(eps)."""
        return (
            self._at(epsilon + self.loss_error) * (1.0 - self.mass_error),
            # Every term may have underflowed, so the smallest positive number is added for each.
            self._at(epsilon - self.loss_error) * (1.0 + self.mass_error) + 5e-324 * (self.losses.size + 1),
        )

    def slope(self, epsilon: float) -> float:
        """Estimate -d delta / d eps."""
        above = self.losses > epsilon
        return float(np.exp(self.log_masses[above] + epsilon - self.losses[above]).sum())

    def _at(self, epsilon: float) -> float:
        above = self.losses > epsilon
        missed = -np.expm1(epsilon - self.losses[above])
        return float(np.exp(self.log_masses[above]) @ missed)


class Part(Protocol):
    """A part of a step's law with a profile in closed form."""

    def profile(self, epsilons: Array) -> tuple[Array, Array]:
        """Return D(eps) at every real eps, and an estimate of -dD / d eps."""


@dataclass(frozen=True, slots=True)
class OutcomesProfile:
    """The profile of ``count`` steps of which all, or all but one, take atoms; it is used like a `contour.Contour`.

    Attributes:
        outcomes: The law of the atoms of all steps.
        but_one: The law of the atoms of all steps but one.
        parts: The parts of the law outside the atoms, of which one step may take one; empty if another profile covers
            them.
        part_error: Relative error of the parts' profiles.
        tilt: The approximate value of -d log delta / d eps where the profile is used.
    """

    outcomes: Outcomes
    but_one: Outcomes
    parts: tuple[Part, ...]
    part_error: float
    count: int
    tilt: float = math.nan

    def delta_bounds(self, epsilon: float) -> Bounds:
        lower, upper = self.outcomes.delta(epsilon)
        if self.parts:
            error = 1.01 * (self.but_one.mass_error + self.part_error)
            lower += self._with_one(epsilon + self.outcomes.loss_error)[0] * (1.0 - error)
            upper += self._with_one(epsilon - self.outcomes.loss_error)[0] * (1.0 + error)
        return Bounds(lower, upper, 0.5 * (lower + upper), {"rounding": upper - lower})

    def estimate(self, epsilon: float) -> tuple[float, float]:
        """Estimate delta and -d delta / d eps."""
        delta, slope = self._with_one(epsilon)
        return self.outcomes.delta(epsilon)[0] + delta, self.outcomes.slope(epsilon) + slope

    def _with_one(self, epsilon: float) -> tuple[float, float]:
        masses, left = self.count * np.exp(self.but_one.log_masses), epsilon - self.but_one.losses
        profiles = [part.profile(left) for part in self.parts]
        return sum(float(masses @ delta) for delta, _ in profiles), sum(float(masses @ slope) for _, slope in profiles)
