"""This module handles steps whose loss is a sampled likelihood ratio with ends, with atoms at the ends and a mass at
loss 0.

The law of the loss under P is a few integrals over the ratio (`RatioPart`), a few atoms, and a mass at loss 0. That
covers Laplace noise, with and without sampling, and the symmetrised pairs of batches of a fixed size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.effort import LINE, POINT, TILT, spend
from accounting.fourier.moments import moments_at
from accounting.fourier.outcomes import Outcomes, OutcomesProfile
from accounting.fourier.pairs import SHARE_ERROR, Band, GaussianPair, steepest_tilt
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.ratio_path import LINE_ANGLE, REAL_ANGLE, RatioPart
from accounting.fourier.steps import FAR_ABOVE, TERM_ROUNDING, UNIT, Complex, StepLine, TiltTable

Array = NDArray[np.float64]

#: The ratio of neighbouring places at which |M| is sampled; the places are those of `truncation_point`.
_KNOT_RATIO = 1.2
_KNOTS_BELOW, _MOST_KNOTS = 6, 48
#: Sampling ends where the bound for all t is within this factor of its limit.
_SETTLED = 1.1
#: The number of digits by which a table is shorter than a line. A table only steers choices and bounds parts far below
#: delta.
_FEWER_DIGITS = 22.0
#: The share of the largest tilt below which no smaller tilt is tried.
_LEAST_SHARE = 1e-12
#: Terms whose log is below this add up to less than a unit, whatever the number of nodes.
_NOTHING = -100.0
#: Relative accuracy of masses and places of atoms.
_ATOM_ERROR = 16.0 * UNIT


@dataclass(frozen=True, slots=True)
class SampledLine(StepLine):
    """A line whose decay is also known from samples.

    Attributes:
        knots: Increasing t.
        log_suprema: log of a bound of |M(c + it)/M(c)| for every t from the knot on; decreasing.
    """

    knots: Array
    log_suprema: Array

    def log_envelope(self, t: Array) -> Array:
        anywhere = StepLine.log_envelope(self, t)
        place = np.searchsorted(self.knots, t, side="right") - 1
        envelope: Array = np.where(place >= 0, np.minimum(anywhere, self.log_suprema[place]), anywhere)
        return envelope


@dataclass(frozen=True, slots=True)
class RatioStep:
    """One step, as `steps.Step`.

    Attributes:
        parts: Integrals over the ratio.
        atoms: The pair (mass under P, loss) of each atom.
        at_zero: Mass of loss 0.
        digits: Quadrature errors of a line are below e^-digits, relatively; those of a table are larger.
        participation, largest_loss: As in `steps.Step`.
        is_whole: Whether the law before any cut is complete, with a mass of 1.
        pair: The sampled Gaussian pair with the same losses above 0 as the step; None if there is no such pair.
    """

    parts: tuple[RatioPart, ...]
    atoms: tuple[tuple[float, float], ...]
    at_zero: float
    digits: float
    participation: float
    largest_loss: float
    is_whole: bool = True
    pair: GaussianPair | None = None

    @property
    def atoms_alone(self) -> RatioStep:
        """Return the atoms, including the mass at 0, without the integrals."""
        atoms = self.atoms if self.at_zero == 0.0 else (*self.atoms, (self.at_zero, 0.0))
        return replace(self, parts=(), atoms=atoms, at_zero=0.0, is_whole=False)

    @property
    def without_atoms(self) -> RatioStep:
        """Return the integrals alone."""
        return replace(self, atoms=(), at_zero=0.0, is_whole=False)

    def outcomes(self, count: int) -> OutcomesProfile | None:
        """Return the profile of ``count`` > 1 steps that all take atoms. With Laplace noise, one step may take another
        part.

        Return None if there are no atoms, or too many outcomes.
        """
        atoms = self.atoms_alone.atoms
        if not atoms or not self.parts or count == 1:
            return None
        outcomes, but_one = (Outcomes.of_atoms(atoms, _ATOM_ERROR, number) for number in (count, count - 1))
        if outcomes is None or but_one is None:
            return None
        closed = all(part.has_profile for part in self.parts)
        size = (
            16.0 * max(abs(part.log_scale) + abs(part.low) + abs(part.high) for part in self.parts) if closed else 0.0
        )
        parts = self.parts if closed else ()
        return OutcomesProfile(outcomes, but_one, parts, UNIT * (256.0 + size), count)

    def below(self, high: float, width: float) -> RatioStep:
        """Return the share of the law with x below ``high``, as a `Band` of ``pair``, with all losses below 0."""
        assert self.pair is not None
        variance = self.pair.noise**2
        cut = ((high - 0.5) / variance, width / variance)
        return replace(self, parts=tuple(replace(part, cut=cut) if part.upward else part for part in self.parts))

    def table(self, tilts: Array) -> TiltTable:
        """Return K and its derivatives at each tilt; inf at tilts that are too large for a rule. No bound would be
        useful there.

        Guarantees: moment_within_its_error.
        """
        largest = float(tilts.max())
        while True:
            try:
                known = tilts <= largest
                table = self._table(tilts[known], largest, self.digits - _FEWER_DIGITS)
                break
            except OverflowError:
                largest *= 0.3
                if largest < _LEAST_SHARE * float(tilts.max()):
                    raise
        if known.all():
            return table
        parts = (table.moments, table.means, table.variances, table.errors)
        full = [np.full(tilts.shape, math.inf) for _ in parts]
        for whole, part in zip(full, parts, strict=True):
            whole[known] = part
        return TiltTable.of(tilts, *full)

    def _table(self, tilts: Array, largest: float, digits: float) -> TiltTable:
        log_masses, losses, left_out = [self._log_atoms], [self._atom_losses], [np.full(tilts.shape, -math.inf)]
        log_shares = [np.zeros(self._atom_losses.size)]
        for part in self.parts:
            scale, growth, reach = part.best_scale(REAL_ANGLE, largest, digits)
            spacing = 2.0 * math.pi * REAL_ANGLE / (digits + growth)
            if self.is_whole and part.cut is not None:
                # Differences from 1 need every node with mass, even beyond the cut.
                uncut = replace(part, cut=None)
                nodes = part.grid(scale, spacing, digits, max(reach, uncut.reach(0.0, digits)))
                left_out.append(uncut.log_left_out(nodes, scale, np.zeros(tilts.size)))
            else:
                nodes = part.grid(scale, spacing, digits, reach)
            log_mass, log_share, loss = part.real_nodes(nodes, spacing, scale)
            log_masses.append(log_mass)
            log_shares.append(log_share)
            losses.append(loss)
            left_out.append(part.log_left_out(nodes, scale, tilts))
        log_mass, log_share, loss = np.concatenate(log_masses), np.concatenate(log_shares), np.concatenate(losses)
        spend(TILT * loss.size * (tilts.size + 10))
        moments, means, variances, rounding = moments_at(
            log_mass,
            log_share,
            loss,
            self.at_zero,
            tilts,
            self.is_whole,
            8.0 * float(np.abs(loss).max(initial=0.0)),
        )
        ends = np.exp(np.minimum(np.logaddexp.reduce(left_out) - moments, 700.0))
        quadrature = 4.0 * len(self.parts) * np.exp(np.maximum(-moments, 0.0) - digits)
        rounding += _rounding_of_shares(log_mass, log_share, loss, tilts, moments)
        return TiltTable.of(tilts, moments, means, variances, UNIT * rounding + 2.0 * ends + 2.0 * quadrature)

    def line(self, tilt: float, decay: float) -> SampledLine:
        """Return M on Re z = ``tilt``; see `ratio_path` for the rule.

        Guarantees: line_within_its_error; envelope_is_above_and_falls.
        """
        table = self._table(np.array([tilt]), tilt, self.digits)
        log_moment, log_moment_error = float(table.moments[0]), float(table.errors[0])
        atom_weights = np.exp(self._log_atoms + tilt * self._atom_losses - log_moment)
        weights: list[Complex] = [atom_weights.astype(np.complex128)]
        losses: list[Complex] = [self._atom_losses.astype(np.complex128)]
        quadrature, left_out, size = 0.0, 0.0, 0.0
        for part in self.parts:
            scale, growth, reach = part.best_scale(2.0 * LINE_ANGLE, tilt, self.digits)
            spacing = 2.0 * math.pi * LINE_ANGLE / (self.digits + growth)
            nodes = part.grid(scale, spacing, self.digits, reach)
            spend(LINE * nodes.size)
            log_weight, loss = part.line_nodes(nodes, spacing, scale, tilt)
            log_weight = log_weight - log_moment
            kept = log_weight.real > -self.digits - 6.0
            left_out += float(np.exp(log_weight.real[~kept]).sum())
            weights.append(np.exp(log_weight[kept]))
            losses.append(loss[kept])
            quadrature += (1.0 + math.exp(growth)) * math.exp(max(-log_moment, 0.0) - self.digits - growth) * 1.01
            beyond = float(part.log_left_out(nodes, scale, np.array([tilt]), growth, LINE_ANGLE)[0]) - log_moment
            left_out += math.exp(min(beyond, 700.0))
            if kept.any():
                size = max(size, float(np.abs(log_weight[kept]).max()), (tilt + 1.0) * float(np.abs(loss[kept]).max()))
        weight, loss = np.concatenate(weights), np.concatenate(losses)
        modulus = np.abs(weight)
        fixed = float(atom_weights.sum()) + self.at_zero * math.exp(-log_moment)
        with np.errstate(divide="ignore"):
            log_modulus = np.log(modulus) + log_moment_error
        moving = slice(self._atom_losses.size, None)
        exact = math.exp(min(log_moment_error, 700.0))
        extra = (fixed * (1.0 + _ATOM_ERROR) + quadrature + left_out) * exact
        line = StepLine(
            weights=weight,
            losses=loss,
            log_moment=log_moment,
            log_moment_error=log_moment_error,
            # The sum of two errors, hence the factor 2: that of M at c + it, and that of M at c, to which M(c + it) is
            # compared.
            relative_error=2.0 * (quadrature + left_out),
            rounding=UNIT * (weight.size + TERM_ROUNDING + 8.0 * size + 8.0 * abs(log_moment))
            + (SHARE_ERROR if any(part.cut for part in self.parts) else _ATOM_ERROR),
            mass=float(modulus.sum()),
            first_moment=float(modulus @ np.abs(loss)),
            envelope=(log_modulus[None, moving], loss.imag[None, moving], extra),
        )
        knots, log_suprema = self._samples(line, tilt, decay, fixed)
        return SampledLine(
            weights=line.weights,
            losses=line.losses,
            log_moment=line.log_moment,
            log_moment_error=line.log_moment_error,
            relative_error=line.relative_error,
            rounding=line.rounding,
            mass=line.mass,
            first_moment=line.first_moment,
            envelope=line.envelope,
            knots=knots,
            log_suprema=log_suprema,
        )

    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Bound the tilt by M(x) >= q^(x+1) e^(x(x+1)/(2 s^2)) / 2, or by the highest atom. After a cut, the bound
        is that of the pair.
        """
        if self.pair is not None and (cut := self.parts[0].cut) is not None:
            variance = self.pair.noise**2
            band = Band(-math.inf, 0.5 + cut[0] * variance, cut[1] * variance)
            return GaussianPairStep(self.pair, self.digits, band).largest_tilt(count, epsilon, level)
        if self.atoms:
            mass, loss = max(self.atoms, key=lambda atom: atom[1])
            room = loss * count - epsilon
            return (level - count * math.log(mass)) / room if room > 0.0 else math.inf
        if self.parts[0].curvature == 0.0:
            return math.inf
        log_q, half = math.log(self.parts[0].probability), 0.5 / self.parts[0].curvature
        return steepest_tilt(log_q, half, count, epsilon, level + 1.0)

    @property
    def _log_atoms(self) -> Array:
        return np.log(np.array([mass for mass, _ in self.atoms], dtype=np.float64))

    @property
    def _atom_losses(self) -> Array:
        return np.array([loss for _, loss in self.atoms], dtype=np.float64)

    def _samples(self, line: StepLine, tilt: float, decay: float, fixed: float) -> tuple[Array, Array]:
        """Return places t (knots) and, for each, the log of a bound of |M(c + it)/M(c)| from there on.

        The square of the modulus is E cos(t (L - L')), with L and L' independent under the tilted law. So its second
        derivative is at most 2 E L^2, and between two knots it exceeds the larger end by at most E L^2 gap^2 / 4.
        Beyond the last knot, the line's envelope is the bound.
        """
        knots: Array = decay * _KNOT_RATIO ** np.arange(-_KNOTS_BELOW, _MOST_KNOTS, dtype=np.float64)
        behind = StepLine.log_envelope(line, knots)
        settled = np.flatnonzero(behind <= math.log(min(_SETTLED * fixed + 0.05, 0.5 * (1.0 + fixed))))
        last = int(settled[0]) if settled.size else knots.size - 1
        knots, behind = knots[: last + 1], behind[: last + 1]
        spread = self._second_moment(tilt, line.first_moment)
        spend(POINT * knots.size * line.weights.size)
        values = line.moduli(knots)
        rounding = line.rounding * np.minimum(2.0 * line.mass, knots * line.first_moment) + 4.0 * UNIT * line.mass
        values = values + line.relative_error + rounding
        squares = np.maximum(values[:-1], values[1:]) ** 2 + 0.25 * spread * np.diff(knots) ** 2
        between = 0.5 * np.log(squares)
        suprema = np.minimum(np.append(between, behind[-1]), behind)
        # Maxima are accumulated from the right, because the supremum at a knot includes everything after it.
        falling: Array = np.minimum(np.maximum.accumulate(suprema[::-1])[::-1], 0.0)
        return knots, falling

    def _second_moment(self, tilt: float, first_moment: float) -> float:
        """Return a bound of E L^2 under the tilted law.

        It follows from (hL)^2 <= e^(hL) + e^(-hL) - 2. The mean of the right side follows from the moments at tilt +-
        h.
        """
        step = min(0.5 * tilt, 0.2 / max(first_moment, 1e-300))
        table = self._table(np.array([tilt - step, tilt, tilt + step]), tilt + step, self.digits)
        change = table.moments - table.moments[1]
        error = table.errors + table.errors[1]
        return float(np.expm1(change[0] + error[0]) + np.expm1(change[2] + error[2])) / step**2


@compiled
def _rounding_of_shares(log_mass: Array, log_share: Array, loss: Array, tilts: Array, moments: Array) -> Array:
    """Bound the rounding of log M by the shares of a cut, in units of the unit roundoff.

    log Phi(x) has a relative error of 8 units where x > 0, and of 8 (1 + x^2) where x < 0; there x^2 <= -2 log Phi(x).
    """
    rounding, bases, losses, count = np.zeros(tilts.size), np.empty(loss.size), np.empty(loss.size), 0
    for j in range(loss.size):
        size = -log_share[j]
        if size > 0.0:
            bases[count] = log_mass[j] - size + math.log(8.0 * (1.0 + size) * (1.0 + 2.0 * size))
            losses[count] = loss[j]
            count += 1
    for i in range(tilts.size):
        for j in range(count):
            exponent = bases[j] + tilts[i] * losses[j] - moments[i]
            if exponent > _NOTHING:
                rounding[i] += math.exp(min(exponent, 700.0))
    return rounding
