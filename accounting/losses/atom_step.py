"""Steps whose loss has atoms alone: randomised response on many categories, discrete noise.

M(c + it) is a finite sum, the same for every t but for rounding. Its modulus does not fall for good (losses on a
lattice meet again), so that a composition of such steps alone converges with a window only; exact sums on the lattice
(`accounting.composition.exact_lattice`) answer first where steps are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.steps import FAR_ABOVE, UNIT, StepLine, TiltTable, summation
from accounting.losses.atoms import Atoms

Array = NDArray[np.float64]

#: Atoms of a line; the sums take points times atoms operations.
MAX_LINE_ATOMS = 30_000
#: Tilts times atoms that are held at once.
_BLOCK = 2_000_000
#: Relative accuracy of masses and losses.
_ATOM_ERROR = 16.0 * UNIT


@dataclass(frozen=True, slots=True)
class AtomStep:
    """One step, as `steps.Step`.

    Attributes:
        atoms: Of the direction.
        bounded: Whether the atoms are all there are; otherwise what is missing has no mass in double precision.
        digits: Tilted masses below e^-digits are left out of a line, and bounded.
    """

    atoms: Atoms
    bounded: bool
    digits: float

    participation = 1.0

    @property
    def largest_loss(self) -> float:
        return float(self.atoms.losses[-1]) if self.bounded else math.inf

    def table(self, tilts: Array) -> TiltTable:
        """Guarantees: moment_within_its_error."""
        rows = max(1, _BLOCK // self.atoms.losses.size)
        parts = [self._table(tilts[start : start + rows]) for start in range(0, tilts.size, rows)]
        moments, means, variances, errors = (np.concatenate(part) for part in zip(*parts, strict=True))
        return TiltTable(tilts, moments, means, variances, errors)

    def _table(self, tilts: Array) -> tuple[Array, Array, Array, Array]:
        log_masses, losses = self.atoms.log_masses, self.atoms.losses
        turned = tilts[:, None] * losses
        exponents = log_masses + turned
        top = exponents.max(axis=1)
        weights = np.exp(exponents - top[:, None])
        total = weights.sum(axis=1)
        mean = (weights @ losses) / total
        variance = np.maximum((weights @ (losses * losses)) / total - mean * mean, 0.0)
        accumulation = summation(losses.size) + 36.0
        moments = top + np.log(total)
        # What weighs nothing under the tilt has no share in the error.
        heaviest = np.where(weights > 1e-20, np.abs(log_masses) + np.abs(turned), 0.0).max(axis=1)
        rounding = accumulation + 8.0 * heaviest
        # Differences from 1 lose no digits where M is close to it.
        terms = np.exp(log_masses) * np.expm1(np.minimum(turned, 700.0))
        change, spread = terms.sum(axis=1), np.abs(terms).sum(axis=1)
        small = np.abs(change) < 0.5
        moments = np.where(small, np.log1p(np.where(small, change, 0.0)), moments)
        rounding = np.where(small, (2.0 * accumulation + 2.0 * math.log2(losses.size + 2.0)) * spread, rounding)
        return moments, mean, variance, UNIT * rounding

    def line(self, tilt: float, decay: float) -> StepLine:
        """Guarantees: line_within_its_error."""
        log_masses, losses = self.atoms.log_masses, self.atoms.losses
        moments, _, _, errors = self._table(np.array([tilt]))
        log_moment, log_moment_error = float(moments[0]), float(errors[0])
        log_weights = log_masses + tilt * losses - log_moment
        kept = log_weights > -self.digits - 6.0
        left_out = float(np.exp(log_weights[~kept]).sum())
        if int(kept.sum()) > MAX_LINE_ATOMS:
            raise OverflowError("the line would need too many atoms")
        weights, places = np.exp(log_weights[kept]), losses[kept]
        size = float((np.abs(log_masses[kept]) + tilt * np.abs(places)).max())
        none = np.zeros((1, 0))
        return StepLine(
            weights=weights.astype(np.complex128),
            losses=places.astype(np.complex128),
            log_moment=log_moment,
            log_moment_error=log_moment_error,
            relative_error=2.0 * left_out,
            rounding=UNIT * (weights.size + 40.0 + 8.0 * size + 8.0 * abs(log_moment)) + _ATOM_ERROR,
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
