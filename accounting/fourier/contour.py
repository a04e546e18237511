"""The trapezoid rule along Re z = c, and what it proves.

With P = 2 pi / h, the rule's sum S(eps) is the sum over all integers m of e^(cmP) delta(eps + mP) (Poisson summation of
e^(cy) delta(y)). Every alias is nonnegative, so S is itself an upper bound, and by Chernoff and a geometric series

    delta >= S - A_R - A_L,   A_R = min over x > c of V(x) / (e^((x-c)P) - 1),   A_L likewise over 0 <= x < c,

V(x) = M(x) B(x) e^(-x eps), any set of tilts being sound. What separates the computed number from S is bounded and
named: the part of the sum beyond t_max ("truncation", from a decreasing envelope of |M|), the error of M itself
("quadrature"), and floating point ("rounding").

With a window eta > 0, M is replaced by M(z) e^(eta^2 z (z+1) / 2): the loss plus an independent Gaussian loss of
volatility eta. Its profile is above the true one by at most eta^2 e^(eta^2/8) times the density of the new loss at eps
(a Black-Scholes price less its intrinsic value is the integral of vega, and vega is below its value at eta), which the
same values of M give ("window"). The window makes the sum converge whatever the law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.steps import UNIT, Complex, Line, TiltTable, error_of_exponential, log_kernel
from accounting.intervals import Bounds

Array = NDArray[np.float64]

TINY = 5e-324


@dataclass(frozen=True, slots=True)
class LineValues:
    """A transform D on the line Re z = c: D(c + i t_k)/D(c) at t_k = k spacing.

    Attributes:
        ratios: Complex, k = 0, 1, ...
        errors: Bounds of the ratios' absolute errors from quadrature.
        rounding: The same from floating point.
        log_scale: log D(c), within ``log_scale_error``.
        log_tail: log of a bound of |D(c + it)/D(c)| for every t >= the last t_k plus spacing.
        decay: mu^2 of the Gaussian factor that D holds: beyond there it falls at least like e^(-mu^2 t^2 / 2).
    """

    ratios: Complex
    errors: Array
    rounding: Array
    log_scale: float
    log_scale_error: float
    log_tail: float
    decay: float = 0.0

    def tail_sum(self, last: float, spacing: float) -> float:
        """Bound of the sum of spacing |D(c + it)/D(c)| over t = last, last + spacing, ...; inf without a Gaussian."""
        if self.decay * last == 0.0:
            return math.inf
        return math.exp(min(self.log_tail, 0.0)) * (spacing + 1.0 / (self.decay * last))

    def tail_sum_over_squares(self, last: float, spacing: float) -> float:
        """Bound the sum of `tail_sum` with every term divided by t^2."""
        plain = math.exp(min(self.log_tail, 0.0)) / max(last - spacing, 1e-300)
        return min(plain, self.tail_sum(last, spacing) / last**2)


@dataclass(frozen=True, slots=True)
class ProfileValues:
    """Bounds of delta at many epsilons, and what their widths are made of."""

    lower: Array
    estimate: Array
    upper: Array
    terms: Mapping[str, Array]


@dataclass(frozen=True)
class Contour:
    """Bounds of a profile near one epsilon.

    Attributes:
        tilt: c.
        period: P, in loss units.
        values: The transform on the line.
        window: eta, 0 for none; already in ``values`` and ``table``.
        table: log D at other tilts, for the aliases.
    """

    tilt: float
    period: float
    values: LineValues
    window: float
    table: TiltTable

    @cached_property
    def _t(self) -> Array:
        t: Array = np.arange(self.values.ratios.size, dtype=np.float64) * (2.0 * math.pi / self.period)
        return t

    @cached_property
    def _kernel(self) -> Complex:
        """1 / (z (z + 1)) with the rule's weights."""
        z = self.tilt + 1j * self._t
        kernel: Complex = (2.0 / self.period / (z * (z + 1.0))).astype(np.complex128)
        kernel[0] *= 0.5
        return kernel

    def delta_bounds(self, epsilon: float) -> Bounds:
        """Bounds of delta(eps), for any real eps; tight near the one that the line was made for."""
        many = self.evaluate(np.array([epsilon]))
        terms = {name: float(term[0]) for name, term in many.terms.items()}
        return Bounds(float(many.lower[0]), float(many.upper[0]), float(many.estimate[0]), terms)

    def evaluate(self, epsilons: Array) -> ProfileValues:
        """Evaluate delta at many epsilons, as one product of (epsilons x points)."""
        t = self._t
        turned = self.values.ratios * np.exp(-1j * epsilons[:, None] * t)
        with np.errstate(over="ignore", invalid="ignore"):
            exponent = self.values.log_scale - self.tilt * epsilons
            # Among the subnormals only an upper bound is left.
            scale = np.exp(np.maximum(exponent, -690.0))
            parts = turned * self._kernel
            total = parts.real.sum(axis=1)
            weights, size = np.abs(self._kernel), np.abs(epsilons)
            # Rounding of the factor e^(-z eps) of each point.
            moduli = np.abs(parts)
            turn = UNIT * (38.0 * moduli.sum(axis=1) + size * (moduli @ np.abs(self.tilt + 1j * t)))
            inexact = self.values.log_scale_error + UNIT * 8.0 * (abs(self.values.log_scale) + self.tilt * size)
            common = np.expm1(np.minimum(inexact, 700.0))
            largest = scale * (1.0 + common)
            spacing = 2.0 * math.pi / self.period
            last = float(t[-1]) + spacing
            terms = {
                "rounding": largest * (float(weights @ self.values.rounding) + turn) + scale * common * np.abs(total),
                "quadrature": largest * float(weights @ self.values.errors),
                "truncation": largest * (self.values.tail_sum_over_squares(last, spacing) / math.pi),
            }
            error = terms["rounding"] + terms["quadrature"] + terms["truncation"]
            estimate = scale * total
            terms["aliasing"] = self._aliases(epsilons)
            terms["window"] = largest * self._correction(turned, size, last, spacing)
            lower = estimate - error - terms["aliasing"] - terms["window"]
            upper = estimate + error
            known = np.isfinite(lower) & np.isfinite(upper)
            upper = np.where(known, np.maximum(upper, TINY), math.inf)
            lower = np.where(known & (exponent >= -690.0), np.clip(lower, 0.0, upper), 0.0)
            middle = np.where(known, np.clip(estimate - 0.5 * terms["window"], lower, upper), math.nan)
        return ProfileValues(lower, middle, upper, terms)

    def slope(self, epsilon: float) -> float:
        """-d delta / d eps, an estimate."""
        return float(self.slopes(np.array([epsilon]))[0])

    def slopes(self, epsilons: Array) -> Array:
        """Return `slope` at many epsilons."""
        parts = (self.values.ratios * np.exp(-1j * epsilons[:, None] * self._t) / (self.tilt + 1.0 + 1j * self._t)).real
        total = parts.sum(axis=1) - 0.5 * parts[:, 0]
        scale = np.exp(np.minimum(self.values.log_scale - self.tilt * epsilons, 690.0))
        slopes: Array = scale * total * 2.0 / self.period
        return slopes

    def _correction(self, turned: Complex, size: Array, last: float, spacing: float) -> Array:
        """eta^2 e^(eta^2/8) times the density of the windowed loss at eps, over M(c) e^(-c eps), rounded up."""
        eta = self.window
        if eta == 0.0:
            return np.zeros(size.shape)
        rule = 2.0 / self.period
        density = (turned.real.sum(axis=1) - 0.5 * turned.real[:, 0]) * rule
        turn = UNIT * (38.0 + np.abs(self.tilt + 1j * self._t) * size[:, None])
        error = (float((self.values.rounding + self.values.errors).sum()) + (np.abs(turned) * turn).sum(axis=1)) * rule
        tail = self.values.tail_sum(last, spacing) / math.pi
        correction: Array = eta * eta * math.exp(min(eta * eta / 8.0, 700.0)) * np.maximum(density + error + tail, 0.0)
        return correction

    def _aliases(self, epsilons: Array) -> Array:
        tilts = self.table.tilts
        logs = self.table.moments + self.table.errors + log_kernel(tilts) - tilts * epsilons[:, None]
        total = np.zeros(epsilons.shape)
        for side in (tilts > self.tilt * 1.000001, tilts < self.tilt * 0.999999):
            if not side.any():
                return np.full(epsilons.shape, math.inf)
            gap = np.abs(tilts[side] - self.tilt) * self.period
            best = np.min(logs[:, side] - gap - np.log(-np.expm1(-gap)), axis=1)
            total = total + np.exp(np.minimum(best + 1e-12 * (np.abs(best) + 1.0), 700.0))
        return total


def truncation_point(log_envelope: Callable[[Array], Array], start: float, log_tolerance: float) -> float:
    """The smallest t on a geometric grid around ``start`` beyond which the sum is below e^log_tolerance, over D(c).

    Args:
        log_envelope: decreasing; log of a bound of |D(c + it')/D(c)| for every t' >= t.
    """
    t = start * 1.2 ** np.arange(-6.0, 56.0)
    within = log_envelope(t) - np.log(math.pi * t) <= log_tolerance
    return float(t[np.argmax(within)]) if within.any() else math.inf


def power_values(
    lines: Sequence[tuple[Line, int]], gaussian: float, tilt: float, period: float, points: int
) -> LineValues:
    """M of a composition on its line: the steps' logarithms add up.

    Args:
        gaussian: mu^2 of the full-batch Gaussians and the window, whose M is e^(mu^2 z (z+1) / 2).
    """
    width = max(1, math.isqrt(points))
    blocks = -(-points // width)
    spacing = 2.0 * math.pi / period
    t = np.arange(blocks * width, dtype=np.float64) * spacing
    logs: Complex = (0.5 * gaussian * (1j * t * (2.0 * tilt + 1.0) - t * t)).astype(np.complex128)
    quadrature = np.zeros(t.size)
    rounding = UNIT * 8.0 * np.abs(logs)
    log_scale = 0.5 * gaussian * tilt * (tilt + 1.0)
    log_scale_error = 8.0 * UNIT * log_scale
    last = float(t[-1]) + spacing
    log_tail = -0.5 * gaussian * last * last
    for line, count in lines:
        part, inexact, floating = line.log_ratios(blocks, width, spacing)
        logs = logs + count * part
        quadrature = quadrature + count * inexact
        rounding = rounding + count * floating + 4.0 * UNIT * count * np.abs(part)
        log_scale += count * line.log_moment
        log_scale_error += count * line.log_moment_error + 4.0 * UNIT * abs(count * line.log_moment)
        log_tail += count * float(line.log_envelope(np.array([last]))[0])
    errors = error_of_exponential(logs, quadrature)
    rounded = error_of_exponential(logs, quadrature + rounding) - errors
    return LineValues(np.exp(logs), errors, rounded, log_scale, log_scale_error, log_tail, gaussian)


def gaussian_table(mu_squared: float, tilts: Array) -> TiltTable:
    """K(x) = mu^2 x (x + 1) / 2."""
    moments = 0.5 * mu_squared * tilts * (tilts + 1.0)
    return TiltTable(
        tilts, moments, mu_squared * (tilts + 0.5), np.full_like(tilts, mu_squared), 8.0 * UNIT * np.abs(moments)
    )
