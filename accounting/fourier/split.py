"""Splitting off the losses of the bulk, where few participations make the line slow.

With T q small nearly all of a composition's mass sits near T log(1 - q). It makes the integrand decay only like 1/t^2
and contributes nothing at eps. With smooth cuts at the loss R and far out, split each step's P into nu (small losses),
gamma (large ones) and a rest whose mass is negligible: it is counted as an infinite loss, and without it no moment
explodes. Then delta = D_nu + D: D_nu is the profile of nu^{*T}, and D that of the nonnegative measure
P^{*T} - nu^{*T}, whose transform is M^T - M_nu^T. Both are profiles of nonnegative measures, so the alias identity of
`contour` holds for each, each on a line of its own: neither cancels, where the two together would. Where Chernoff's
bound of D_nu is negligible, the bound stands for it.

M^T - M_nu^T = M_nu^T expm1(T log1p(M_gamma / M_nu)), so that a tiny D keeps its digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.contour import LineValues
from accounting.fourier.pairs import Band, GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.steps import UNIT, Complex, StepLine, TiltTable, error_of_exponential, log1p_complex, log_kernel

Array = NDArray[np.float64]

_LARGEST_EXPONENT = 600.0
_PANELS = 2000


@dataclass(frozen=True, slots=True)
class SplitStep:
    """``count`` equal steps, cut at the loss ``threshold``.

    Attributes:
        whole, bulk, rest: nu + gamma, nu and gamma of one step.
    """

    whole: GaussianPairStep
    bulk: GaussianPairStep
    rest: GaussianPairStep
    count: int

    @classmethod
    def chain(cls, step: GaussianPairStep, count: int, places: Sequence[float], width: float) -> list[SplitStep]:
        """One split for each band between neighbouring places; what lies beyond the last place is left out."""

        def part(low: float, high: float) -> GaussianPairStep:
            return GaussianPairStep(step.pair, step.digits, Band(low, high, width))

        return [
            cls(part(-math.inf, high), part(-math.inf, low), part(low, high), count) for low, high in pairwise(places)
        ]

    def bulk_bound(self, epsilon: float) -> float:
        """Bound of D_nu(eps): Chernoff for the part of nu below some x_2, the mass of the rest beyond it.

        Without x_2 the Gaussian tail of psi would give Chernoff a phase transition that nu hardly has. The moments of
        the part are bounded by sums over panels: the largest value on the panel times the mass of N(0, s^2). For
        REMOVE, E f = 1 and f > 1 where psi < 1, so E psi (f - 1) <= 0 and only f^p - 1 - p (f - 1) >= 0 is summed.
        """
        pair, band = self.whole.pair, self.bulk.band
        assert band is not None
        s = pair.noise
        ends = np.linspace(-13.0 * s, band.high + 7.0 * band.width, _PANELS + 1)
        low, high = ends[:-1] / s, ends[1:] / s
        # From the nearer tail, where differences keep their digits.
        masses = np.where(
            low > 0.0,
            scipy.special.ndtr(-low) - scipy.special.ndtr(-high),
            scipy.special.ndtr(high) - scipy.special.ndtr(low),
        )
        masses[0] += scipy.special.ndtr(ends[0] / s)
        base, loss = pair.exponents(ends)
        log_share = band.log_share(ends[:-1])
        tilts = np.geomspace(1.0 / (1.0 + epsilon), 4000.0 / epsilon, 16)
        exponent = base + tilts[:, None] * loss
        with np.errstate(over="ignore", invalid="ignore"):
            if pair.pair is Pair.REMOVE:
                linear = (tilts[:, None] + 1.0) * np.expm1(base)
                convex = np.expm1(exponent) - linear + 1e-15 * np.abs(linear)
                gain = np.exp(log_share) * np.maximum(convex[:, 1:], convex[:, :-1])
            else:
                gain = np.expm1(exponent[:, 1:] + log_share)
            terms = np.where(gain > 0.0, masses * (1.0 + 1e-11) + 1e-17, masses * (1.0 - 1e-11)) * gain
        moments = np.cumsum(terms, axis=1)
        best = math.inf
        for width in (2.5, 4.0, 5.5, 7.0):
            end = band.high + width * band.width
            index = min(int(np.searchsorted(ends, end)), _PANELS)
            # What lies beyond the last panel counts as 1 in `moments`, and is bounded by its mass.
            log_moments = self.count * np.log1p(np.maximum(moments[:, index - 1], -0.999))
            log_bounds = log_moments + log_kernel(tilts) - tilts * epsilon
            beyond = ends[index]
            mass = pair.mass_beyond(float(beyond), 0.0)
            outside = self.count * math.exp(float(band.log_share(np.array([beyond]))[0])) * mass
            best = min(best, math.exp(min(float(log_bounds.min()), 700.0)) + outside * (1.0 + 1e-10))
        return best * (1.0 + 1e-10)

    def rest_table(self, tilts: Array) -> TiltTable:
        """log of M^T - M_nu^T at tilts x >= 0, increasing."""
        bulk, rest = self.bulk.table(tilts), self.rest.table(tilts)
        power, sensitivity = _log_power_difference(rest.moments - bulk.moments, self.count)
        moments = self.count * bulk.moments + power
        errors = self.count * bulk.errors + sensitivity * (rest.errors + bulk.errors) + 8.0 * UNIT * np.abs(moments)
        means = np.gradient(moments, tilts)
        return TiltTable(tilts, moments, means, np.maximum(np.gradient(means, tilts), 1e-300), errors)

    @property
    def decay(self) -> float:
        """A value of Im z where M_gamma has fallen to nothing: its density is smooth on the scale of the cut."""
        band = self.rest.band
        assert band is not None
        return 7.7 / (band.width * self.rest.pair.slope(band.low))

    def rest_line(self, tilt: float, decay: float) -> SplitLine:
        whole, bulk, rest = (step.line(tilt, decay) for step in (self.whole, self.bulk, self.rest))
        return SplitLine(whole, bulk, rest, self.count)


@dataclass(frozen=True, slots=True)
class SplitLine:
    """M^T - M_nu^T on a line."""

    whole: StepLine
    bulk: StepLine
    rest: StepLine
    count: int

    @property
    def log_scale(self) -> float:
        """log of M(c)^T - M_nu(c)^T."""
        power, _ = _log_power_difference(np.array([self._log_share]), self.count)
        return self.count * self.bulk.log_moment + float(power[0])

    @property
    def _log_share(self) -> float:
        return self.rest.log_moment - self.bulk.log_moment

    def log_envelope(self, t: Array) -> Array:
        """|M^T - M_nu^T| <= T (|M| + |M_gamma|)^(T-1) |M_gamma|, each bounded by its own decreasing envelope."""
        rest = self.rest.log_moment + self.rest.log_envelope(t)
        either = np.logaddexp(self.whole.log_moment + self.whole.log_envelope(t), rest)
        envelope: Array = math.log(self.count) + (self.count - 1) * either + rest - self.log_scale
        return np.minimum(envelope, 0.0)

    def values(self, period: float, points: int) -> LineValues:
        width = max(1, math.isqrt(points))
        blocks = -(-points // width)
        spacing = 2.0 * math.pi / period
        bulk, bulk_error, bulk_rounding = self.bulk.log_ratios(blocks, width, spacing)
        rest, rest_error, rest_rounding = self.rest.log_ratios(blocks, width, spacing)
        share = np.exp(self._log_share + rest - bulk)
        largest = self.count * math.log1p(math.exp(self._log_share))
        if largest > _LARGEST_EXPONENT:
            raise OverflowError("too much mass lies beyond the cut")
        inner = self.count * log1p_complex(share)
        outer = self.count * bulk
        scale = math.expm1(largest)
        factor = np.exp(outer) / scale
        ratios: Complex = (factor * np.expm1(inner)).astype(np.complex128)
        # M_gamma / M_nu moves by a factor 1 + eta, |eta| <= e^error - 1, and (1 + share)^T with it.
        moved = np.abs(share / (1.0 + share))
        grown = np.abs(np.expm1(inner)) / scale

        def through_share(error: Array) -> Array:
            exponent = self.count * np.log1p(moved * np.expm1(np.minimum(error, 30.0)))
            return error_of_exponential(outer + inner, exponent) / scale

        inexact = rest_error + bulk_error
        floating = rest_rounding + bulk_rounding + UNIT * (8.0 + 4.0 * np.abs(self._log_share + rest - bulk))
        floating = floating + self.rest.log_moment_error + self.bulk.log_moment_error
        errors = error_of_exponential(outer, self.count * bulk_error) * grown + through_share(inexact)
        own = UNIT * (8.0 * np.abs(outer) + 16.0)
        rounding = error_of_exponential(outer, self.count * bulk_rounding + own) * grown
        rounding = rounding + through_share(inexact + floating) - through_share(inexact)
        _, sensitivity = _log_power_difference(np.array([self._log_share]), self.count)
        scale_error = (
            self.count * self.bulk.log_moment_error
            + float(sensitivity[0]) * (self.rest.log_moment_error + self.bulk.log_moment_error)
            + 8.0 * UNIT * (abs(self.log_scale) + abs(self.count * self.bulk.log_moment))
        )
        last = np.array([blocks * width * spacing])
        return LineValues(ratios, errors, rounding, self.log_scale, scale_error, float(self.log_envelope(last)[0]))


def mass_beyond(pair: GaussianPair, top: float, width: float) -> float:
    """P-mass of one step that a band ending at ``top`` leaves out, rounded up."""
    return pair.mass_beyond(top, width) * (1.0 + 1e-9)


def top_for(pair: GaussianPair, width: float, log_mass: float) -> float:
    """x beyond which one step's P-mass is at most e^log_mass."""
    s = math.hypot(pair.noise, width)
    # Both components are bounded by their tail at the same number of standard deviations.
    return 1.0 + s * -float(scipy.special.ndtri_exp(min(log_mass, -1.0)))


def _log_power_difference(log_share: Array, count: int) -> tuple[Array, Array]:
    """log((1 + r)^T - 1) with r = e^log_share, and its derivative in log_share."""
    with np.errstate(over="ignore"):
        exponent = count * np.logaddexp(0.0, log_share)
        growth = -np.expm1(-exponent)
    small = log_share + math.log(count)
    power: Array = np.where(small < -600.0, small, exponent + np.log(np.maximum(growth, 1e-300)))
    sensitivity: Array = count * np.exp(log_share - np.logaddexp(0.0, log_share)) / np.maximum(growth, 1e-300)
    return power, sensitivity
