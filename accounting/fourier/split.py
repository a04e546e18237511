"""This module splits off the bulk of the losses, or atoms, if these make the contour integral converge slowly.

If T q is small, nearly all of a composition's mass sits near T log(1 - q). This mass makes the integrand decay only
like 1/t^2, and contributes nothing at eps. With smooth cuts at the loss R and far out, split each step's P into nu
(small losses), gamma (large ones) and a rest whose mass is negligible: the rest is counted as an infinite loss, and
without it no moment explodes. Then delta = D_nu + D, where D_nu is the profile of nu^{*T}, and D is that of the
nonnegative measure P^{*T} - nu^{*T}, whose transform is M^T - M_nu^T. Both are profiles of nonnegative measures, so the
alias identity of `contour` holds for each of them on its own line. On separate lines nothing cancels; on a common line
it would. If Chernoff's bound of D_nu is negligible, the bound replaces D_nu.

M^T - M_nu^T = M_nu^T expm1(T log1p(M_gamma / M_nu)), so a tiny D keeps its digits.

Above 0, the losses of batches of a fixed size are those of a `GaussianPair`, and they are cut there in the same way;
nu holds all losses below 0. gamma is taken from the pair on the whole line. The mass of gamma at losses below 0 does
not belong to the law; `Cut.excess_below_zero` bounds this mass.

Alternatively, nu holds the atoms of the law. Then D_nu is a finite sum, and the transform of D falls. With Laplace
noise the gamma of one step has a profile in closed form, so T nu^{*(T-1)} * gamma is summed as well (``leading``). What
is left on the line is M^T - M_nu^T - T M_nu^(T-1) M_gamma, which falls like 1/t^2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.contour import LineValues
from accounting.fourier.pairs import Band, GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.ratio_step import RatioStep
from accounting.fourier.steps import (
    UNIT,
    Complex,
    Line,
    Step,
    TiltTable,
    error_of_exponential_at,
    log1p_complex_at,
    log_kernel,
)

Array = NDArray[np.float64]

_LARGEST_EXPONENT = 600.0
#: Changes of T log M up to this size are computed by a formula in which nothing cancels.
_SMALL_EXPONENT = 0.5
_PANELS = 2000
#: If log(T r) is below the first number, (1 + r)^T - 1 - T r is computed by a series. The second number is the highest
#: power in the series.
_SMALL_SERIES, _SERIES = -1.0, 24


@dataclass(frozen=True, slots=True)
class Cut:
    """A step whose losses are cut, all with one width.

    Attributes:
        step: The step of a subsampled Gaussian pair, or of batches of a fixed size.
        pair: The pair whose losses are cut, as a function of x.
        width: The width of every cut, in units of x.
    """

    step: GaussianPairStep | RatioStep
    pair: GaussianPair
    width: float

    def below(self, high: float) -> GaussianPairStep | RatioStep:
        """Return the part of the law below a place."""
        if isinstance(self.step, RatioStep):
            return self.step.below(high, self.width)
        return GaussianPairStep(self.pair, self.step.digits, Band(-math.inf, high, self.width))

    def mass_beyond(self, top: float) -> float:
        """Return the P-mass of one step that a band ending at ``top`` leaves out, rounded up."""
        return self.pair.mass_beyond(top, self.width) * (1.0 + 1e-9)

    def excess_below_zero(self, low: float) -> float:
        """Bound the mass by which a band from ``low`` on exceeds the law: that of the pair's losses below 0, if the
        step has other losses there.

        Left of x = 1/2 the density of the pair is at most that of N(0, s^2), and the share is at most Phi((1/2 - low) /
        width).
        """
        if isinstance(self.step, GaussianPairStep):
            return 0.0
        return float(scipy.special.ndtr((0.5 - low) / self.width)) * (1.0 + 1e-9)

    def chain(self, count: int, places: Sequence[float]) -> list[SplitStep]:
        """Return one split for each band between neighbouring places; the part beyond the last place is left out."""
        return [
            SplitStep(
                self.below(low),
                GaussianPairStep(self.pair, self.step.digits, Band(low, high, self.width)),
                count,
                # At that place M_gamma is negligible, because its density is smooth on the scale of the cut.
                7.7 / (self.width * self.pair.slope(low)),
            )
            for low, high in pairwise(places)
        ]

    def bulk_bound(self, high: float, count: int, epsilon: float) -> float:
        """Return a bound of D_nu(eps): Chernoff's bound for the part of nu below some x_2, plus the mass beyond it.

        psi is the share of the law that a cut keeps. Without x_2, the Gaussian tail of psi would cause a phase
        transition in Chernoff's bound that nu itself hardly has. The moments of the part are bounded by sums over
        panels. Each term is the largest value on the panel times the panel's mass under N(0, s^2).

        For REMOVE, E f = 1, and f > 1 where psi < 1. So E psi (f - 1) <= 0, and only f^p - 1 - p (f - 1) >= 0 is
        summed.

        For batches of a fixed size, M_nu is 1 + E [psi (f^p - f) + f^(1-p) - 1] over x >= 1/2, less the part beyond the
        cut. There f >= 1, so the sum over psi (f^p + f^(1-p) - f - 1) is an upper bound. This function grows with x.
        """
        pair, symmetrized = self.pair, isinstance(self.step, RatioStep)
        s, band = pair.noise, Band(-math.inf, high, self.width)
        ends = np.linspace(0.5 if symmetrized else -13.0 * s, high + 7.0 * self.width, _PANELS + 1)
        low, above = ends[:-1] / s, ends[1:] / s
        # Each mass is computed from the nearer tail, where differences keep their digits.
        masses = np.where(
            low > 0.0,
            scipy.special.ndtr(-low) - scipy.special.ndtr(-above),
            scipy.special.ndtr(above) - scipy.special.ndtr(low),
        )
        if not symmetrized:
            masses[0] += scipy.special.ndtr(ends[0] / s)
        base, loss = pair.exponents(ends)
        log_share = band.log_share(ends[:-1])
        tilts = np.geomspace(1.0 / (1.0 + epsilon), 4000.0 / epsilon, 16)
        exponent = base + tilts[:, None] * loss
        with np.errstate(over="ignore", invalid="ignore"):
            if symmetrized:
                # (f^c - 1) f + f^-c - 1 = (f^c - 1) (f - f^-c).
                product = np.expm1(tilts[:, None] * loss) * (np.expm1(base) - np.expm1(-tilts[:, None] * loss))
                gain = np.exp(log_share) * product[:, 1:] * (1.0 + 1e-14)
            elif pair.pair is Pair.REMOVE:
                linear = (tilts[:, None] + 1.0) * np.expm1(base)
                convex = np.expm1(exponent) - linear + 1e-15 * np.abs(linear)
                gain = np.exp(log_share) * np.maximum(convex[:, 1:], convex[:, :-1])
            else:
                gain = np.expm1(exponent[:, 1:] + log_share)
            terms = np.where(gain > 0.0, masses * (1.0 + 1e-11) + 1e-17, masses * (1.0 - 1e-11)) * gain
        moments = np.cumsum(terms, axis=1)
        # If no loss of nu is above eps / T, no sum of T losses is above eps.
        apart = pair.place_of_loss(epsilon / count)
        apart -= 1e-9 * (pair.noise + abs(apart))
        best = math.inf if apart < high else count * self._mass_of_share_beyond(apart, band)
        for width in (2.5, 4.0, 5.5, 7.0):
            end = high + width * self.width
            index = min(int(np.searchsorted(ends, end)), _PANELS)
            # The part beyond the last panel counts as 1 in `moments`, and is bounded by its mass.
            log_moments = count * np.log1p(np.maximum(moments[:, index - 1], -0.999))
            log_bounds = log_moments + log_kernel(tilts) - tilts * epsilon
            outside = count * self._mass_of_share_beyond(float(ends[index]), band)
            # A moment that overflowed gives no bound.
            least = float(np.min(np.where(np.isnan(log_bounds), math.inf, log_bounds)))
            best = min(best, math.exp(min(least, 700.0)) + outside)
        return best * (1.0 + 1e-10)

    def _mass_of_share_beyond(self, place: float, band: Band) -> float:
        """Bound the P-mass of a decreasing share beyond ``place``."""
        share = math.exp(float(band.log_share(np.array([place]))[0]))
        return share * self.pair.mass_beyond(place, 0.0) * (1.0 + 1e-10)


@dataclass(frozen=True, slots=True)
class SplitStep:
    """``count`` equal steps, each in two parts.

    Attributes:
        bulk, rest: nu and gamma of one step.
        decay: A value of Im z where M_gamma has fallen enough; None if it follows from the moments.
        leading: Whether T nu^{*(T-1)} * gamma is left out as well.
    """

    bulk: Step
    rest: Step
    count: int
    decay: float | None
    leading: bool = False

    def rest_table(self, tilts: Array) -> TiltTable:
        """Return the log of the difference of moments, M^T - M_nu^T, at increasing tilts x >= 0. Tilts at which it
        is not known are left out.
        """
        bulk, rest = self.bulk.table(tilts), self.rest.table(tilts)
        known = np.isfinite(bulk.moments) & np.isfinite(rest.moments)
        tilts, bulk, rest = tilts[known], bulk.where(known), rest.where(known)
        power, sensitivity = _log_power_difference(rest.moments - bulk.moments, self.count, self.leading)
        moments = self.count * bulk.moments + power
        errors = self.count * bulk.errors + sensitivity * (rest.errors + bulk.errors) + 8.0 * UNIT * np.abs(moments)
        means = np.gradient(moments, tilts)
        return TiltTable.of(tilts, moments, means, np.maximum(np.gradient(means, tilts), 1e-300), errors)

    def rest_line(self, tilt: float, decay: float) -> SplitLine:
        return SplitLine(self.bulk.line(tilt, decay), self.rest.line(tilt, decay), self.count, self.leading)


@dataclass(frozen=True, slots=True)
class SplitLine:
    """M^T - M_nu^T on a line; with ``leading``, less T M_nu^(T-1) M_gamma."""

    bulk: Line
    rest: Line
    count: int
    leading: bool = False

    @property
    def log_scale(self) -> float:
        """Return the log of the difference at c."""
        return self.count * self.bulk.log_moment + self._power_at_tilt[0]

    @property
    def _power_at_tilt(self) -> tuple[float, float]:
        power, sensitivity = _log_power_difference(np.array([self._log_share]), self.count, self.leading)
        return float(power[0]), float(sensitivity[0])

    @property
    def _log_share(self) -> float:
        return self.rest.log_moment - self.bulk.log_moment

    def log_envelope(self, t: Array) -> Array:
        """Return the log of the difference with the falling envelopes in place of |M_nu| and |M_gamma|. It is a
        bound because the difference grows with both.
        """
        bulk = self.bulk.log_moment + self.bulk.log_envelope(t)
        rest = self.rest.log_moment + self.rest.log_envelope(t)
        power, _ = _log_power_difference(rest - bulk, self.count, self.leading)
        envelope: Array = self.count * bulk + power - self.log_scale
        return np.minimum(envelope, 0.0)

    def values(self, period: float, points: int) -> LineValues:
        width = max(1, math.isqrt(points))
        blocks = -(-points // width)
        spacing = 2.0 * math.pi / period
        bulk, bulk_error, bulk_rounding = self.bulk.log_ratios(blocks, width, spacing)
        rest, rest_error, rest_rounding = self.rest.log_ratios(blocks, width, spacing)
        largest = self.count * math.log1p(math.exp(self._log_share))
        if largest > _LARGEST_EXPONENT:
            raise OverflowError("too much probability lies beyond the truncation point")
        ratios, errors, rounding = _differences(
            (bulk, bulk_error, bulk_rounding),
            (rest, rest_error, rest_rounding),
            (self._log_share, self.rest.log_moment_error + self.bulk.log_moment_error),
            float(self.count),
            self._power_at_tilt[0],
            self.leading,
        )
        scale_error = (
            self.count * self.bulk.log_moment_error
            + self._power_at_tilt[1] * (self.rest.log_moment_error + self.bulk.log_moment_error)
            + 8.0 * UNIT * (8.0 + abs(self.log_scale) + abs(self.count * self.bulk.log_moment))
        )
        last = np.array([blocks * width * spacing])
        return LineValues(ratios, errors, rounding, self.log_scale, scale_error, float(self.log_envelope(last)[0]))


@compiled
def _differences(
    bulk: tuple[Complex, Array, Array],
    rest: tuple[Complex, Array, Array],
    share: tuple[float, float],
    count: float,
    log_scale: float,
    leading: bool,
) -> tuple[Complex, Array, Array]:
    """Return the difference divided by M_nu(c)^T e^log_scale at each point, and its errors by quadrature and by
    rounding.

    Args:
        bulk, rest: log(M_nu / M_nu(c)) and log(M_gamma / M_gamma(c)) with their errors by quadrature and by rounding.
        share: log(M_gamma(c) / M_nu(c)), and its error.

    The errors are absolute. If M_gamma is small beside M_nu, M_nu^T expm1(T log1p(M_gamma / M_nu)) loses no digits.
    Elsewhere the two powers are subtracted, and M_nu may be 0.
    """
    size, scale = bulk[0].size, math.exp(log_scale)
    ratios, inexact, rounding = np.empty(size, np.complex128), np.empty(size), np.empty(size)
    for k in range(size):
        log_share = share[0] + rest[0][k] - bulk[0][k]
        part = _exp(log_share)
        inner, outer = count * log1p_complex_at(part), count * bulk[0][k]
        # An error e of a logarithm multiplies the number by a factor within e^(+-e), even where the number is nearly 0.
        own = UNIT * (16.0 + 8.0 * abs(outer) + 8.0 * abs(inner))
        other = share[1] + UNIT * (8.0 + 4.0 * (abs(log_share) + abs(share[0]) + abs(rest[0][k])))
        bulk_errors = bulk[1][k], bulk[1][k] + bulk[2][k]
        rest_errors = rest[1][k], rest[1][k] + rest[2][k] + other
        errors = np.empty(2)
        if abs(inner) < _SMALL_EXPONENT:
            change = _expm1(inner)
            ratios[k] = _exp(outer) * change
            moved = abs(part) / abs(1.0 + part)
            for i in range(2):
                through = count * math.log1p(moved * math.expm1(min(rest_errors[i] + bulk_errors[i], 700.0)))
                errors[i] = error_of_exponential_at(outer.real + inner.real, through)
                errors[i] += error_of_exponential_at(outer.real, count * bulk_errors[i] + i * own) * abs(change)
        else:
            whole = outer + inner
            ratios[k] = _exp(whole) - _exp(outer)
            # These are |M_nu| / |M| and |M_gamma| / |M|.
            nu, gamma = math.exp(-inner.real / count), math.exp(log_share.real - inner.real / count)
            for i in range(2):
                wrong = nu * math.expm1(min(bulk_errors[i], 700.0)) + gamma * math.expm1(min(rest_errors[i], 700.0))
                errors[i] = error_of_exponential_at(whole.real, count * math.log1p(wrong) + i * own)
                errors[i] += error_of_exponential_at(outer.real, count * bulk_errors[i] + i * own)
        if leading:
            once = outer + log_share + math.log(count)
            ratios[k] -= _exp(once)
            for i in range(2):
                wrong = (count - 1.0) * bulk_errors[i] + rest_errors[i] + i * own
                errors[i] += error_of_exponential_at(once.real, wrong)
        ratios[k] /= scale
        inexact[k], rounding[k] = errors[0] / scale, (errors[1] - errors[0]) / scale
    return ratios, inexact, rounding


@compiled
def _exp(z: complex) -> complex:
    modulus = math.exp(z.real)
    return complex(modulus * math.cos(z.imag), modulus * math.sin(z.imag))


@compiled
def _expm1(z: complex) -> complex:
    """Return e^z - 1, without cancellation."""
    grown, half = math.expm1(z.real), math.sin(0.5 * z.imag)
    return complex(grown - 2.0 * half * half * (1.0 + grown), (1.0 + grown) * math.sin(z.imag))


def top_for(pair: GaussianPair, width: float, log_mass: float) -> float:
    """Return an x beyond which one step's P-mass is at most e^log_mass."""
    s = math.hypot(pair.noise, width)
    # Both normal laws of the mixture have at most this tail, at this number of standard deviations or more.
    return 1.0 + s * -float(scipy.special.ndtri_exp(min(log_mass, -1.0)))


def _log_power_difference(log_share: Array, count: int, leading: bool) -> tuple[Array, Array]:
    """Return log((1 + r)^T - 1), or log((1 + r)^T - 1 - T r), with r = e^log_share, and a bound of its derivative.

    The derivative is with respect to log_share. The powers r^k of the binomial sum have k <= T, so it is at most T.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        exponent = count * np.logaddexp(0.0, log_share)
        growth = -np.expm1(-exponent)
    small = log_share + math.log(count)
    power: Array = np.where(small < -600.0, small, exponent + np.log(np.maximum(growth, 1e-300)))
    sensitivity: Array = count * np.exp(log_share - np.logaddexp(0.0, log_share)) / np.maximum(growth, 1e-300)
    if not leading:
        return power, sensitivity
    # If T r is small, the binomial series is used, whose terms fall by a factor of at least T r / 3.
    series, term = np.full(log_share.shape, -math.inf), small
    for k in range(2, min(count, _SERIES) + 1):
        term = term + log_share + math.log((count - k + 1.0) / k)
        series = np.logaddexp(series, term)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        direct = exponent + np.log(-np.expm1(-exponent) - np.exp(small - exponent))
    return np.where(small < _SMALL_SERIES, series, direct), np.full(log_share.shape, float(count))
