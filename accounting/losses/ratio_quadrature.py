"""This module computes moments of sampled pairs, rounded up, as integrals over the unsampled log likelihood ratio.

With y = log dP/dQ of the unsampled mechanism, the sampled ratio is f(y) = 1 - q + q e^y. For the mechanisms here (noise
whose two laws are mirror images of each other) y has under Q the density e^(a - y/2 - k y^2/2): k = s^2 for Gaussian
noise, k = 0 on a bounded interval, with masses at its ends, for Laplace noise. A moment minus 1 is the integral of a
`Kernel`, which is zero at f = 1, convex in f and hence positive: nothing cancels, however small the moment is.

The rule is Gauss-Legendre on panels. With n nodes, a function that is analytic and at most B in size inside the ellipse
of parameter rho around [-1, 1] is integrated up to 8 B rho^(-2n) / (1 - rho^-2): its Chebyshev coefficients are at most
2 B rho^-k, the rule is exact for k < 2n and gives 0 for odd k, and the integral and the rule are each at most 2 in size
for every other one. B is bounded through |f(u + iv)| <= f(u), |f(u + iv)| >= f(u) cos(v/2), and the curvature of log f,
which is p (1 - p) for p = q e^y / f. The bound is added to the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: The parameter rho of the ellipses, and their half axes, divided by half the width of a panel.
_RHO = 4.0
_REACH = 0.5 * (_RHO + 1.0 / _RHO)
_HEIGHT = 0.5 * (_RHO - 1.0 / _RHO)
#: The nats by which the bound on an ellipse may exceed the integrand on its panel.
_OVERSHOOT = 12.0
#: Panels whose integrand is this many nats below the largest are bounded instead of integrated.
_NEGLIGIBLE = 36.0
#: The distances beyond which the sampled ratio is q e^y up to e^-25, or 1 - q up to e^-60.
_FAR_RIGHT, _FAR_LEFT = 25.0, -60.0
_MAX_PANELS = 6_000


class Kernel(Protocol):
    """A convex function of the sampled ratio f that is zero at f = 1.

    Attributes:
        terms: (log |coefficient|, power) of each power of f in it.
    """

    @property
    def terms(self) -> tuple[tuple[float, float], ...]: ...

    def log_value(self, log_f: Array) -> Array:
        """Return the kernel's logarithm; -inf at f = 1."""

    def log_integral_of_bound(self, log_powers: dict[float, float]) -> float:
        """Return the logarithm of the kernel's integral, from the logarithms of the integrals of its powers."""


@dataclass(frozen=True, slots=True)
class ConvexExcess:
    """The kernel f^p - 1 - p (f - 1), p > 1 or p < 0. Its mean is the moment of one direction less 1, because E f =
    1.
    """

    power: float

    @property
    def terms(self) -> tuple[tuple[float, float], ...]:
        p = self.power
        return (0.0, p), (math.log(abs(p)), 1.0), (math.log1p(abs(p)), 0.0)

    def log_value(self, log_f: Array) -> Array:
        p = self.power
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            direct = np.log(_expm1_minus(p * log_f) - p * _expm1_minus(log_f))
            powers = p * log_f + np.log1p(-p * np.exp((1.0 - p) * log_f) + (p - 1.0) * np.exp(-p * log_f))
            linear = math.log(abs(p)) + log_f + np.log1p((np.exp(p * log_f) + p - 1.0) * np.exp(-log_f) / abs(p))
        value = np.where(p * log_f > 50.0, powers, direct)
        return np.where((log_f > 50.0) & (p < 0.0), linear, value)

    def log_integral_of_bound(self, log_powers: dict[float, float]) -> float:
        p = self.power
        return _log_sum(
            [(1.0, log_powers[p]), (-p, log_powers[1.0]), (p - 1.0, log_powers[0.0])],
        )


@dataclass(frozen=True, slots=True)
class SymmetrizedExcess:
    """The kernel f^(x+1) + f^-x - f - 1 for f >= 1, x > 0, for the moment of a symmetrised pair."""

    tilt: float

    @property
    def terms(self) -> tuple[tuple[float, float], ...]:
        return (0.0, self.tilt + 1.0), (0.0, -self.tilt), (0.0, 1.0), (0.0, 0.0)

    def log_value(self, log_f: Array) -> Array:
        """Return the log of (f^x - 1)(f - f^-x), in which both factors are positive."""
        x = self.tilt
        with np.errstate(divide="ignore"):
            value: Array = _log_expm1(x * log_f) + log_f + np.log(-np.expm1(-(1.0 + x) * log_f))
        return value

    def log_integral_of_bound(self, log_powers: dict[float, float]) -> float:
        signs = (1.0, 1.0, -1.0, -1.0)
        return _log_sum([(sign, log_powers[power]) for sign, (_, power) in zip(signs, self.terms, strict=True)])


@dataclass(frozen=True, slots=True)
class RatioLaw:
    """The law of y, the unsampled log likelihood ratio, under Q; or a part of this law.

    Attributes:
        log_scale, curvature: a and k of the density e^(a - y/2 - k y^2/2).
        lower, upper: The ends of the density. If k > 0, ``lower`` >= 0 and ``upper`` is inf.
        masses: (log mass, place) of each mass, at ``lower`` or ``upper``.
    """

    log_scale: float
    curvature: float
    lower: float
    upper: float
    masses: tuple[tuple[float, float], ...] = ()

    @classmethod
    def gaussian_above_zero(cls, s: float) -> RatioLaw:
        """Return the part y >= 0 of the law of y = (2x - 1)/(2 s^2), x ~ N(0, s^2)."""
        return cls(math.log(s) - 0.5 * math.log(2.0 * math.pi) - 0.125 / s**2, s * s, 0.0, math.inf)

    @classmethod
    def laplace(cls, loss: float, *, above_zero: bool) -> RatioLaw:
        """Return the law of y = loss (|x| - |x - 1|), x Laplace with scale 1/loss; or only its part y >= 0."""
        right = (-loss - math.log(2.0), loss)
        masses = (right,) if above_zero else (right, (-math.log(2.0), -loss))
        return cls(-0.5 * loss - math.log(4.0), 0.0, 0.0 if above_zero else -loss, loss, masses)

    def log_density(self, y: Array) -> Array:
        density: Array = self.log_scale - 0.5 * y - 0.5 * self.curvature * y * y
        return density

    def log_power(self, power: float, start: float, end: float) -> float:
        """Return the log of the integral of e^(power y) times the density over [start, end]. ``end`` is inf if k >
        0.
        """
        slope = power - 0.5
        if self.curvature == 0.0:
            largest = max(slope * start, slope * end)
            return self.log_scale + largest + math.log(-math.expm1(-abs(slope) * (end - start)) / abs(slope))
        s = math.sqrt(self.curvature)
        return 0.5 * power * (power - 1.0) / self.curvature + float(
            scipy.special.log_ndtr((power - 0.5) / s - s * start)
        )


def log_sampled_ratio(y: Array, log_q: float) -> Array:
    """Return log f(y) = log(1 - q + q e^y), accurate also where it is tiny."""
    q = math.exp(log_q)
    with np.errstate(over="ignore"):
        rise = np.where(y > 30.0, np.exp(np.minimum(log_q + y, 0.0)), q * np.expm1(np.minimum(y, 30.0)))
        # If the rise is near -1, log1p would lose the digits of 1 - q, which may be nearly all of f.
        low = np.log(q * np.exp(np.minimum(y, 0.0)) - math.expm1(log_q))
        small = np.where(rise < -0.5, low, np.log1p(rise))
        large = log_q + y + np.log1p(np.exp(math.log1p(-q) - log_q - y))
    return np.where(log_q + y < 0.0, small, large)


def log_f(y: float, q: float) -> float:
    """Return log(1 - q + q e^y) to a few units in the last place, unless it is below every normal number."""
    if y < 0.0:
        rise = q * math.expm1(y)
        return math.log1p(rise) if rise > -0.5 else math.log((1.0 - q) + q * math.exp(y))
    # e^y is computed as a square, because it may overflow although its product with q does not.
    half = math.exp(0.5 * min(y, 1400.0))
    rise = q * math.expm1(y) if y < 700.0 else q * half * half
    if y <= 1400.0 and math.isfinite(rise):
        return math.log1p(rise)
    return math.log(q) + y


def log_integral(law: RatioLaw, log_q: float, kernel: Kernel) -> float:
    """Return the log of the integral of the kernel over the law, rounded up except for the rounding of its summation.

    Args:
        law: The law of the unsampled log likelihood ratio.
        log_q: The logarithm of the sampling probability, below 0.
        kernel: The function of the sampled ratio.

    Returns:
        The logarithm; -inf if the integral is below every float, inf if it takes too many panels.

    Guarantees: integral_is_an_upper_bound: truth <= value, up to 1e-9 relatively (which callers add); for q >= 1e-12
        and tilts of 0.01 and more it is within 1e-9 of it.
    """
    largest_power = max(power for _, power in kernel.terms)
    start, end = max(law.lower, _FAR_LEFT), law.upper
    if law.curvature > 0.0:
        s = math.sqrt(law.curvature)
        end = (largest_power + 14.0 * s) / law.curvature
    far = math.log(largest_power) + math.log1p(-math.exp(log_q)) - log_q + _FAR_RIGHT
    end = min(end, max(far, 1.0))
    parts = [mass + float(kernel.log_value(log_sampled_ratio(np.array([y]), log_q))[0]) for mass, y in law.masses]
    if start > law.lower:
        # Left of ``start``, the kernel grows towards its value at the lower end, which bounds it.
        at_end = float(kernel.log_value(log_sampled_ratio(np.array([law.lower]), log_q))[0])
        parts.append(at_end + law.log_power(0.0, law.lower, start))
    if end < law.upper:
        # f e^-y falls, so f <= (f e^-y at the end) e^y beyond it, and the kernel grows with f.
        log_c = float(log_sampled_ratio(np.array([end]), log_q)[0]) - end
        powers = {p: p * log_c + law.log_power(p, end, law.upper) for _, p in kernel.terms}
        parts.append(kernel.log_integral_of_bound(powers))
    if end > start:
        parts.append(_panel_integral(law, log_q, kernel, start, end, max(parts, default=-math.inf)))
    return float(scipy.special.logsumexp(parts)) if parts else -math.inf


def _panel_integral(law: RatioLaw, log_q: float, kernel: Kernel, start: float, end: float, known: float) -> float:
    """Return the integral over [start, end] and a bound of its error. ``known`` is the log of another part of the
    integral.
    """
    panels, bounded = _split(law, log_q, kernel, start, end, known)
    if panels is None:
        return math.inf
    if panels.size == 0:
        return bounded
    middle, half = panels
    count = _node_count(log_q)
    nodes, weights = _legendre(count)
    y = middle[:, None] + half[:, None] * nodes
    logs = law.log_density(y) + kernel.log_value(log_sampled_ratio(y, log_q)) + np.log(half[:, None] * weights)
    decay = math.log(8.0 / (1.0 - _RHO**-2)) - 2.0 * count * math.log(_RHO)
    errors = _log_bound(law, log_q, kernel, middle, half) + np.log(half) + decay
    return float(
        scipy.special.logsumexp([float(scipy.special.logsumexp(logs)), float(scipy.special.logsumexp(errors)), bounded])
    )


def _split(
    law: RatioLaw, log_q: float, kernel: Kernel, start: float, end: float, known: float
) -> tuple[Array | None, float]:
    """Return panels on which the rule converges (middles and half widths), and the log of a bound of the part outside
    the panels.

    Panels are halved until the bound on the ellipse is close to the integrand. Panels far below the largest are left
    out.
    """
    tallest = 1.5 if law.curvature == 0.0 else min(1.5, 1.0 / math.sqrt(law.curvature))
    edges = np.linspace(start, end, max(2, math.ceil((end - start) * _HEIGHT / (2.0 * tallest)) + 1))
    low, high = edges[:-1], edges[1:]
    # No peak of the integrand is narrower than 1 over the number whose logarithm this is.
    narrowest = math.log1p(max(power for _, power in kernel.terms) + math.sqrt(law.curvature) + 1.0 / (end - start))
    kept: list[Array] = []
    left_out: list[float] = [-math.inf]
    count = 0
    while low.size:
        ends = np.stack([low, high])
        logs = kernel.log_value(log_sampled_ratio(ends, log_q))
        known = max(known, float(np.max(logs + law.log_density(ends))) - narrowest)
        crude = np.max(logs, axis=0) + law.log_density(low) + np.log(high - low)
        small = crude < known - _NEGLIGIBLE
        if bool(small.any()):
            left_out.append(float(scipy.special.logsumexp(crude[small])))
        low, high = low[~small], high[~small]
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        fits = _overshoot(law, log_q, kernel, middle, half) <= _OVERSHOOT
        kept.append(np.stack([middle[fits], half[fits]]))
        count += int(fits.sum())
        low, middle, high = low[~fits], middle[~fits], high[~fits]
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        if count + low.size > _MAX_PANELS:
            return None, math.inf
    return np.concatenate(kept, axis=1), float(scipy.special.logsumexp(left_out))


def _overshoot(law: RatioLaw, log_q: float, kernel: Kernel, middle: Array, half: Array) -> Array:
    """Return, for each panel, the largest number of nats by which a power exceeds the larger of its value in the middle
    and 1.

    Both the power, which is bounded on the panel's ellipse, and its value in the middle are multiplied by the density.
    """
    log_f = log_sampled_ratio(middle, log_q)
    worst = np.zeros_like(middle)
    for _, power in kernel.terms:
        bound = _log_power_bound(law, log_q, power, middle, half)
        worst = np.maximum(worst, bound - np.maximum(power * log_f, 0.0) - law.log_density(middle))
    return worst


def _log_bound(law: RatioLaw, log_q: float, kernel: Kernel, middle: Array, half: Array) -> Array:
    """Return log of a bound of |kernel times density| inside each panel's ellipse."""
    terms = [coefficient + _log_power_bound(law, log_q, p, middle, half) for coefficient, p in kernel.terms]
    bound: Array = scipy.special.logsumexp(np.stack(terms), axis=0)
    return bound


def _log_power_bound(law: RatioLaw, log_q: float, power: float, middle: Array, half: Array) -> Array:
    """Return log of a bound of |f^power times density| inside each panel's ellipse.

    The density is log-concave; log f is convex, with a curvature of at most min(1/4, e^-|y - y0|), f(y0) = 2 (1 - q).
    """
    reach, height = _REACH * half, _HEIGHT * half
    complex_growth = 0.5 * law.curvature * height * height
    if power <= 0.0:
        left = middle - reach
        if law.curvature > 0.0:
            # To the left of its maximum, the density is bounded by the maximum.
            at_most = law.log_density(np.maximum(left, -0.5 / law.curvature))
        else:
            at_most = law.log_density(left)
        log_smallest = log_sampled_ratio(left, log_q) + np.log(np.cos(0.5 * height))
        negative: Array = complex_growth + at_most + power * log_smallest
        return negative
    log_f = log_sampled_ratio(middle, log_q)
    slope = power * np.exp(log_q + middle - log_f) - 0.5 - law.curvature * middle
    balance = math.log1p(-math.exp(log_q)) - log_q
    curvature = np.minimum(0.25, np.exp(-np.maximum(np.abs(middle - balance) - reach, 0.0)))
    positive: Array = (
        complex_growth
        + law.log_density(middle)
        + power * log_f
        + np.abs(slope) * reach
        + 0.5 * power * curvature * reach * reach
    )
    return positive


def _node_count(log_q: float) -> int:
    """Return a number of nodes at which the bound of the error is about e^-66 of a moment of size q^2."""
    return min(128, math.ceil((_OVERSHOOT + 66.0 + 2.0 * min(-log_q, 100.0)) / (2.0 * math.log(_RHO))))


@lru_cache(maxsize=128)
def _legendre(count: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return nodes, weights


def _log_sum(terms: list[tuple[float, float]]) -> float:
    """Return log of the sum of coefficient e^log, rounded up by far more than its rounding."""
    largest = max(log for _, log in terms)
    if largest == -math.inf:
        return largest
    scaled = [coefficient * math.exp(log - largest) for coefficient, log in terms]
    return largest + math.log(max(math.fsum(scaled), 0.0) + 2e-11 * math.fsum(map(abs, scaled)))


def _expm1_minus(z: Array) -> Array:
    """Return e^z - 1 - z."""
    series = np.ones_like(z)
    for k in range(14, 2, -1):
        series = 1.0 + series * z / k
    return np.where(np.abs(z) < 0.5, 0.5 * z * z * series, np.expm1(z) - z)


def _log_expm1(z: Array) -> Array:
    """Return log(e^z - 1) for z >= 0."""
    return np.where(z > 40.0, z + np.log1p(-np.exp(-np.maximum(z, 40.0))), np.log(np.expm1(np.minimum(z, 40.0))))
