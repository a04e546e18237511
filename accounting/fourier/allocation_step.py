"""This module puts one random allocation into the form that contour integrals need: the log of a mean of log-normal
ratios, on a lattice.

The record takes part in one of t steps, of which j are seen. With m the logarithm of the mean of the j steps'
ratios and rho = j/t, the ratio of the allocation is f = 1 - rho + rho e^m, so that M(z) is the mean of f^(z+1) (remove)
or f^-z (add). If all steps are seen, f = e^m. The density of m is that of `log_sums`, apart from a shift.

* A sum over the lattice stands for the integral. Moving every normal variable by i beta / mu moves m by i beta, and
  shows that the sum errs by at most 2 M(c) e^(beta^2 / (2 sigma^2) - (2 pi / h - |w|) beta), sigma^2 = mu^2 / j.
* Where all steps are seen, the same move gives |M(c + iw)| <= M(c) e^(-sigma^2 w^2 / 2).
* Moments explode where one ratio is large. So the remove direction is cut at a top: the density is multiplied by
  Psi(m) = Phi((top - m) / width). What is left of P has less mass by g, and the profile of a composition of E of them
  is above its own by at most E g. Psi adds beta^2 / (2 width^2) to both exponents.

The proofs are in docs/concepts/fourier.md, "Random allocation".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.effort import LINE, TILT, spend
from accounting.fourier.log_sum_ends import log_below
from accounting.fourier.log_sums import LogSum, log_sum
from accounting.fourier.moments import moments_at
from accounting.fourier.steps import FAR_ABOVE, TERM_ROUNDING, UNIT, Complex, StepLine, TiltTable

Array = NDArray[np.float64]

#: The approximate number of lattice points per sigma, and the width of a cut as a multiple of sigma.
_PER_SIGMA, _CUT = 5.0, 1.2
#: A factor that bounds the ratio of a sum over lattice cells to the mass of a mixture of normal densities in these
#: cells.
_CELLS = 1.01
#: The largest distance by which the line of integration of a part of an allocation is moved.
_LARGEST_MOVE = 1.5
_ENVELOPES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
#: The number of intervals below the lattice in which a negative power is bounded.
_BELOW = 80


@dataclass(frozen=True, eq=False)
class AllocationStep:
    """One direction of one allocation, or of the seen part of one.

    Attributes:
        law: The law of the sum of the ratios that are seen.
        share: The share rho; 1 if all are seen.
        remove: The direction.
        top: The m at which the sum is cut; inf in the add direction.
        digits: Tilted masses below e^-digits are left out of a line, and bounded.
    """

    law: LogSum
    share: float
    remove: bool
    top: float
    digits: float

    @property
    def participation(self) -> float:
        return self.share

    @property
    def largest_loss(self) -> float:
        return math.inf if self.remove or self.share == 1.0 else -math.log1p(-self.share) * (1.0 + 1e-14)

    @property
    def width(self) -> float:
        """The width of the cut. A part has the width of the whole allocation, since both are evaluated at the same
        tilts."""
        return _CUT * self.law.sigma * math.sqrt(self.share)

    @cached_property
    def _used(self) -> slice:
        """The lattice with one step beyond the ends of its law. It is thinned if lines are short."""
        law = self.law
        stride = max(1, math.floor(law.sigma / _PER_SIGMA / law.step)) if self.share == 1.0 else 1
        beyond = stride * law.step
        first = int(np.searchsorted(law.logs, law.lower - beyond))
        last = int(np.searchsorted(law.logs, law.upper + beyond, side="right"))
        return slice(first, last, stride)

    @property
    def step(self) -> float:
        """The step h."""
        return float(self._used.step * self.law.step)

    @cached_property
    def means(self) -> Array:
        """The logarithm m of the mean of the ratios, at each lattice point."""
        means: Array = self.law.logs[self._used] - math.log(self.law.count)
        return means

    @cached_property
    def ratios(self) -> Array:
        """The log of the likelihood ratio f at each lattice point."""
        return self._ratio(self.means)

    def _ratio(self, means: Array) -> Array:
        """Return log f, to a few units of its own size."""
        if self.share == 1.0:
            return means
        grown: Array = np.log1p(self.share * np.expm1(np.minimum(means, 30.0)))
        return np.where(means > 30.0, means + math.log(self.share), grown) if means.max() > 30.0 else grown

    @property
    def losses(self) -> Array:
        return self.ratios if self.remove else -self.ratios

    @cached_property
    def _whole_masses(self) -> Array:
        """The log of P's masses before the cut."""
        logs: Array = np.log(self.step * self.law.density[self._used])
        return logs + self.ratios if self.remove else logs

    @cached_property
    def log_masses(self) -> Array:
        """The log of P's masses after the cut."""
        if math.isinf(self.top):
            return self._whole_masses
        cut: Array = self._whole_masses + scipy.special.log_ndtr((self.top - self.means) / self.width)
        return cut

    @property
    def errors(self) -> Array:
        """The relative errors of the masses."""
        errors: Array = self.law.errors[self._used] + 64.0 * UNIT
        return errors

    def left_out(self, top: float) -> float:
        """Return a bound of the P-mass that a cut at ``top`` leaves out, in the remove direction."""
        kept = scipy.special.ndtr((self.means - top) / self.width)
        inside = float((np.exp(self._whole_masses) * (1.0 + self.errors)) @ kept)
        return (inside + 2.0 * math.exp(self.law.log_above)) * (1.0 + 1e-9)

    def cut_for(self, log_mass: float) -> AllocationStep:
        """Return the step cut at the lowest top that leaves out at most e^log_mass. If no top does, the cut is
        nearly at the highest point.
        """
        low, high = float(self.means[0]), float(self.means[-1]) - 3.0 * self.width
        for _ in range(30):
            middle = 0.5 * (low + high)
            if self.left_out(middle) <= math.exp(log_mass):
                high = middle
            else:
                low = middle
        return replace(self, top=high)

    def table(self, tilts: Array) -> TiltTable:
        """Return K and its derivatives at real tilts.

        Guarantees: moment_within_its_error."""
        spend(2 * TILT * tilts.size * self.means.size)
        none = np.zeros(self.means.size)
        moments, means, variances, rounding = moments_at(self.log_masses, none, self.losses, 0.0, tilts, False, 8.0)
        log_errors = self.log_masses + np.log(self.errors)
        wrong = moments_at(log_errors, none, self.losses, 0.0, tilts, False, 8.0)[0]
        with np.errstate(over="ignore"):
            relative = 1.001 * np.exp(np.minimum(wrong - moments, 700.0))
            relative += np.array(
                [
                    self._beyond(tilt, moment) + self._alias(tilt, 0.0)
                    for tilt, moment in zip(tilts.tolist(), moments.tolist(), strict=True)
                ]
            )
        known = relative < 0.5
        errors = np.where(known, -np.log1p(-np.where(known, relative, 0.0)), 1e9)
        errors = errors + UNIT * rounding
        return TiltTable.of(tilts, moments, means, variances, errors, errors)

    def line(self, tilt: float, decay: float) -> AllocationLine:
        """Return M on the line Re z = ``tilt``.

        Guarantees: line_within_its_error."""
        table = self.table(np.array([tilt]))
        log_moment, error = float(table.moments[0]), float(table.errors[0])
        if error > 1.0:
            raise OverflowError("the grid of losses is too short for this exponential tilt")
        log_weights = self.log_masses + tilt * self.losses - log_moment
        kept = log_weights > -self.digits - 6.0
        left_out = float(np.exp(log_weights[~kept]).sum())
        weights, places = np.exp(log_weights[kept]), self.losses[kept]
        spend(LINE * weights.size)
        size = float((np.abs(self.log_masses[kept]) + tilt * np.abs(places)).max())
        rows = np.zeros((1, 0)), np.zeros((1, 0))
        extra = 1.0
        if self.share < 1.0:
            rows, extra = self._envelope(tilt, decay, log_moment, error)
        line = StepLine(
            weights=weights.astype(np.complex128),
            losses=places.astype(np.complex128),
            log_moment=log_moment,
            log_moment_error=error,
            relative_error=2.0 * (math.expm1(error) + left_out),
            rounding=UNIT * (weights.size + TERM_ROUNDING + 8.0 * size + 8.0 * abs(log_moment)),
            mass=float(weights.sum()),
            first_moment=float(weights @ np.abs(places)),
            envelope=(*rows, extra),
        )
        return AllocationLine(self, line, tilt)

    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Return a bound of the tilt: the first tilt at which the term of some lattice point is too large."""
        room = count * self.losses - epsilon
        reached = room > 0.0
        if not reached.any():
            return math.inf
        return float(((level - count * self.log_masses[reached]) / room[reached]).min())

    @property
    def _precision(self) -> float:
        """The number 1 / tau^2, where tau^2 is the rate of decay of a line if all steps are seen."""
        cut = 0.0 if math.isinf(self.top) else self.width**-2
        return self.law.sigma**-2 + cut

    @property
    def decay(self) -> float:
        """The decay tau^2 if all steps are seen; otherwise 0."""
        return 1.0 / self._precision if self.share == 1.0 else 0.0

    def _alias(self, tilt: float, last: float) -> float:
        """Return a bound of the error of the lattice's sum of M(c + iw)/M(c) for 0 <= w <= ``last``."""
        gap = 2.0 * math.pi / self.step - last
        if gap <= 0.0:
            return math.inf
        move = gap / self._precision
        if self.share < 1.0:
            move = min(move, _LARGEST_MOVE)
        return 2.2 * math.exp(min(self._growth(tilt, move) - gap * move, 700.0))

    def _growth(self, tilt: float, move: float) -> float:
        """Return the log of the factor by which the integrand's norm may grow if m is moved by i ``move``."""
        growth = 0.5 * move * move * self._precision
        return growth if self.remove or self.share == 1.0 else growth - tilt * math.log(math.cos(0.5 * move))

    def _beyond(self, tilt: float, log_moment: float) -> float:
        """Return a bound of the part beyond the lattice, over M(tilt)."""
        low, high = self.means[0] + self.step, self.means[-1] - self.step
        bottom, ceiling = (float(self._ratio(np.array([end]))[0]) for end in (low, high))
        if self.remove:
            below = (tilt + 1.0) * bottom + self.law.log_below
            if (high - self.top) / self.width >= tilt * self.width:
                largest = tilt * high + float(scipy.special.log_ndtr((self.top - high) / self.width))
            else:
                largest = tilt * self.top + 0.5 * (tilt * self.width) ** 2
            above = largest + self.law.log_above
        else:
            below = self._log_negative_power_below(tilt, low)
            above = -tilt * ceiling + self.law.log_above
        return 2.0 * _CELLS * math.exp(min(max(below, above) - log_moment, 700.0))

    def _log_negative_power_below(self, tilt: float, low: float) -> float:
        """Return the log of a bound of the part of E f^-tilt where m < ``low``."""
        if self.share < 1.0:
            return -tilt * math.log1p(-self.share) + self.law.log_below
        mu, count = self.law.mu, self.law.count
        # Below the place ``last``, the geometric mean gives the bound. Its exponent is below minus a quarter of this
        # number.
        exponent = max(1000.0, 8.0 * tilt * tilt * mu * mu / count, 2.0 * tilt * mu * mu)
        last = min(-0.5 * mu * mu - mu * math.sqrt(2.0 * exponent / count), low - 1e-3)
        nearest = min(1.0 / (tilt + 1.0), 0.5 * (low - last))
        places = low - np.concatenate([[0.0], np.geomspace(nearest, low - last, _BELOW)])
        inside = log_below(mu, count, places[:-1] + math.log(count)) - tilt * places[1:]
        return float(np.logaddexp(scipy.special.logsumexp(inside), -0.25 * exponent))

    def _envelope(
        self, tilt: float, decay: float, log_moment: float, error: float
    ) -> tuple[tuple[Array, Array], float]:
        """Return the terms of a bound of |M(c + iw)/M(c)| for `StepLine.log_envelope`, if only a part of the steps is
        seen.

        On the line moved by i beta, |f^z| falls by e^(-w arg f), and arg f grows with m. Both are bounded at the ends
        of cells. The part that is left out grows with the move, too, so moves are limited, and smaller cells are kept
        than in a line.
        """
        farthest = min(_LARGEST_MOVE, math.sqrt(2.0 * self.digits / self._precision))
        moves = np.minimum(decay / self._precision * _ENVELOPES, farthest)
        growths = [self._growth(tilt, move) for move in moves.tolist()]
        density = np.log(self.law.density[self._used] * (1.0 + self.errors))
        heights = (
            np.maximum(density[:-1], density[1:]) + math.log(self.step) + 0.125 * (self.step / self.law.sigma) ** 2
        )
        if self.remove:
            heights = heights + (tilt + 1.0) * self.ratios[1:]
            heights = heights + scipy.special.log_ndtr((self.top - self.means[:-1]) / self.width)
        else:
            heights = heights - tilt * self.ratios[:-1]
        heights = heights + error - log_moment
        kept = heights > -self.digits - growths[-1]
        growing = self.share * np.exp(np.minimum(self.means[:-1][kept], 700.0))
        weights, rates = [], []
        for move, growth in zip(moves.tolist(), growths, strict=True):
            weights.append(heights[kept] + growth)
            rates.append(np.arctan2(growing * math.sin(move), 1.0 - self.share + growing * math.cos(move)))
        left = float(np.exp(heights[~kept]).sum()) + self._beyond(tilt, log_moment)
        return (np.array(weights), np.array(rates)), min(left * math.exp(min(growths[-1], 700.0)), 1.0)


@dataclass(frozen=True, slots=True)
class AllocationLine:
    """The transform of an allocation on a line. It implements `steps.Line`."""

    step: AllocationStep
    line: StepLine
    tilt: float

    @property
    def log_moment(self) -> float:
        return self.line.log_moment

    @property
    def log_moment_error(self) -> float:
        return self.line.log_moment_error

    def log_ratios(self, blocks: int, width: int, spacing: float) -> tuple[Complex, Array, Array]:
        """Return the log-ratios and errors as `StepLine.log_ratios` does. The error of the lattice depends on the
        length of the line.
        """
        alias = self.step._alias(self.tilt, blocks * width * spacing)
        line = replace(self.line, relative_error=self.line.relative_error + alias)
        return line.log_ratios(blocks, width, spacing)

    def log_envelope(self, t: Array) -> Array:
        if self.step.decay > 0.0:
            envelope: Array = -0.5 * self.step.decay * t * t
            return envelope
        return self.line.log_envelope(t)


def allocation_step(
    noise_multiplier: float, bins: int, seen: int, log_count: float, log_mass: float, *, remove: bool
) -> tuple[AllocationStep, float]:
    """Return the step of one allocation, and the P-mass that its cut leaves out.

    Args:
        noise_multiplier: The noise multiplier s.
        bins, seen: The numbers t of steps and j of steps that are seen.
        log_count: Logarithm of the number of all steps.
        log_mass: Logarithm of the mass that the cut may leave out.

    Raises:
        OverflowError: If its density would take too long to compute.
    """
    # A part has a cut as narrow as that of the whole allocation, and a lattice as fine.
    law = log_sum(1.0 / noise_multiplier, seen, as_fine_as=bins)
    step = AllocationStep(law, 1.0 if seen == bins else seen / bins, remove, math.inf, 44.0 + log_count)
    if not remove:
        return step, 0.0
    step = step.cut_for(log_mass)
    return step, step.left_out(step.top)
