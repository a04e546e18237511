"""This module defines losses with atoms, such as those of discrete noise, of randomised response and of counts of
messages.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.losses.atom_step import AtomStep
from accounting.losses.atoms import ALLOWANCE, Atoms
from accounting.losses.privacy_loss import PrivacyLoss, ratio_digits
from accounting.losses.support import Support

Array = NDArray[np.float64]


class AtomicLoss(PrivacyLoss):
    """A `PrivacyLoss` of atoms. Subclasses are frozen dataclasses of the numbers that determine the atoms.

    Attributes:
        on_lattice: Whether the losses are equally spaced.
    """

    __slots__ = ()
    has_pair = True
    moments_within: ClassVar[float | None] = 4.0 * ALLOWANCE
    on_lattice: ClassVar[bool] = True

    @abstractmethod
    def find_atoms(self) -> Atoms:
        """Return the atoms in the direction in which the record is removed."""

    @property
    def atoms(self) -> Atoms:
        """The atoms that `find_atoms` returns, which are kept after the first call."""
        return _atoms_of(self)

    @property
    def pure_epsilon(self) -> float:
        losses = self.atoms.losses
        return max(float(losses[-1]), -float(losses[0]))

    def log_moment(self, tilts: Array) -> Array:
        """Return K(x) of the worse direction at every tilt.

        Guarantees: moment_is_exact_and_rounded_up."""
        moments = self.atoms.log_moment(tilts)
        if not self.symmetric:
            moments = np.maximum(moments, self.atoms.swapped.log_moment(tilts))
        return moments * (1.0 + 2.0 * ALLOWANCE)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return delta(eps) - max(0, 1 - e^eps) of one direction.

        Guarantees: profile_is_exact: relatively, for either sign of eps."""
        here = self.atoms if remove else self.atoms.swapped
        excess: Array = np.where(
            epsilons >= 0.0,
            here.profile(np.maximum(epsilons, 0.0)),
            np.exp(np.minimum(epsilons, 0.0)) * here.swapped.profile(np.maximum(-epsilons, 0.0)),
        )
        return excess

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        losses = (self.atoms if remove else self.atoms.swapped).losses
        return Support(min(float(losses[0]), 0.0), max(float(losses[-1]), 0.0), 0.0, 0.0)

    def contour_step(self, log_count: float, *, remove: bool) -> AtomStep:
        atoms = self.atoms if remove else self.atoms.swapped
        return AtomStep(atoms, math.isfinite(self.pure_epsilon), ratio_digits(log_count))


@lru_cache(maxsize=32)
def _atoms_of(loss: AtomicLoss) -> Atoms:
    return loss.find_atoms()
