"""This module handles steps whose loss has only atoms, such as randomised response on many categories and discrete
noise.

M(c + it) is a finite sum. Its modulus keeps returning to its largest value (the phases of losses on a lattice meet
again), so a composition of such steps alone converges only with a window; exact sums on the lattice
(`accounting.composition.exact_lattice`) answer first if all steps are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.effort import TILT, spend
from accounting.fourier.moments import moments_at
from accounting.fourier.steps import FAR_ABOVE, TERM_ROUNDING, UNIT, StepLine, TiltTable
from accounting.losses.atoms import Atoms

Array = NDArray[np.float64]

#: The most atoms of a line. The sums of a line take (points x atoms) operations.
MAX_LINE_ATOMS = 30_000
#: Relative accuracy of masses and losses.
_ATOM_ERROR = 16.0 * UNIT


@dataclass(frozen=True, slots=True)
class AtomStep:
    """One step, as `steps.Step`.

    Attributes:
        atoms: The atoms of the direction.
        bounded: Whether ``atoms`` has all atoms. If not, the missing atoms have no mass in double precision.
        digits: Tilted masses below e^-digits are left out of a line, and bounded.
        error: The relative error of P's and Q's masses.
    """

    atoms: Atoms
    bounded: bool
    digits: float
    error: float = _ATOM_ERROR

    participation = 1.0

    @property
    def largest_loss(self) -> float:
        return float(self.atoms.losses[-1]) if self.bounded else math.inf

    def table(self, tilts: Array) -> TiltTable:
        """Return K and its derivatives at real tilts.

        Guarantees: moment_within_its_error."""
        none = np.zeros(self.atoms.losses.size)
        spend(TILT * tilts.size * none.size)
        moments, means, variances, rounding = moments_at(
            self.atoms.log_masses, none, self.atoms.losses, 0.0, tilts, True, 0.0
        )
        wrong = np.array([self._wrong(tilt) for tilt in tilts]) if self.error > _ATOM_ERROR else 0.0
        return TiltTable.of(tilts, moments, means, variances, UNIT * rounding + wrong)

    def _wrong(self, tilt: float) -> float:
        """Return the relative error of a tilted mass. The error of a loss is twice the relative error of the masses."""
        return self.error * (1.0 + 2.0 * abs(tilt))

    def line(self, tilt: float, decay: float) -> StepLine:
        """Return M on the line Re z = ``tilt``.

        Guarantees: line_within_its_error."""
        log_masses, losses = self.atoms.log_masses, self.atoms.losses
        table = self.table(np.array([tilt]))
        log_moment, log_moment_error = float(table.moments[0]), float(table.errors[0])
        log_weights = log_masses + tilt * losses - log_moment
        kept = log_weights > -self.digits - 6.0
        left_out = float(np.exp(log_weights[~kept]).sum())
        if int(kept.sum()) > MAX_LINE_ATOMS:
            raise OverflowError("the line would need too many atoms")
        weights, places = np.exp(log_weights[kept]), losses[kept]
        size = float((np.abs(log_masses[kept]) + tilt * np.abs(places)).max())
        none, wrong = np.zeros((1, 0)), self._wrong(tilt)
        return StepLine(
            weights=weights.astype(np.complex128),
            losses=places.astype(np.complex128),
            log_moment=log_moment,
            log_moment_error=log_moment_error,
            relative_error=2.0 * left_out,
            rounding=UNIT * (weights.size + TERM_ROUNDING + 8.0 * size + 8.0 * abs(log_moment)) + wrong,
            mass=float(weights.sum()),
            first_moment=float(weights @ np.abs(places)),
            envelope=(none, none, math.exp(min(log_moment_error, 700.0)) * (1.0 + left_out)),
        )

    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Bound the tilt by the highest atom."""
        if not self.bounded:
            return math.inf
        log_mass, loss = float(self.atoms.log_masses[-1]), float(self.atoms.losses[-1])
        room = loss * count - epsilon
        return (level - count * log_mass) / room if room > 0.0 else math.inf
