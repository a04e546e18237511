"""This module applies the trapezoid rule along Re z = c and proves bounds of its result.

With P = 2 pi / h, the rule's sum S(eps) is the sum over all integers m of e^(cmP) delta(eps + mP) (Poisson summation of
e^(cy) delta(y)). Every alias is nonnegative, so S is itself an upper bound, and by Chernoff and a geometric series

    delta >= S - A_R - A_L,   A_R = min over x > c of V(x) / (e^((x-c)P) - 1),   A_L likewise over 0 <= x < c,

where V(x) = M(x) B(x) e^(-x eps). Any set of tilts is sound. The differences between the computed number and S are
bounded and named: the part of the sum beyond t_max ("truncation", from a decreasing envelope of |M|), the error of M
itself ("quadrature"), and floating point ("rounding").

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

from accounting.compiled import compiled
from accounting.fourier.steps import UNIT, Complex, Line, TiltTable, error_of_exponential_at
from accounting.intervals import Bounds

Array = NDArray[np.float64]

TINY = 5e-324
_TERMS = ("rounding", "quadrature", "truncation", "aliasing", "window", "left_out")
#: The places at which a line's sum may end, relative to its decay; and the indices of those that are tried first,
#: together.
_GROWTH = 1.2 ** np.arange(-6.0, 56.0)
_FIRST_TRIED = np.arange(3, 11)
#: A factor that covers the rounding when up to a million bounds are added up one after the other.
_SUMMED = 1.0 + 1e-9
_Given = tuple[
    Complex, Array, Array, float, float, tuple[float, float], tuple[float, float], float, tuple[Array, Array], float
]


@dataclass(frozen=True, slots=True)
class LineValues:
    """A transform D on the line Re z = c: D(c + i t_k)/D(c) at t_k = k spacing.

    Attributes:
        ratios: Complex, k = 0, 1, ...
        errors: Bounds of the ratios' absolute errors from quadrature.
        rounding: Bounds of the ratios' absolute errors from floating point.
        log_scale: log D(c), within ``log_scale_error``.
        log_tail: log of a bound of |D(c + it)/D(c)| for every t >= the last t_k plus spacing.
        decay: mu^2 of the Gaussian factor in D: beyond the last t_k, D falls at least like e^(-mu^2 t^2 / 2).
    """

    ratios: Complex
    errors: Array
    rounding: Array
    log_scale: float
    log_scale_error: float
    log_tail: float
    decay: float = 0.0

    def tail_sum(self, last: float, spacing: float) -> float:
        """Bound the sum of spacing |D(c + it)/D(c)| over t = last, last + spacing, ...; inf without a Gaussian."""
        if self.decay * last == 0.0:
            return math.inf
        return math.exp(min(self.log_tail, 0.0)) * (spacing + 1.0 / (self.decay * last))

    def tail_sum_over_squares(self, last: float, spacing: float) -> float:
        """Bound the sum of `tail_sum` with every term divided by t^2."""
        plain = math.exp(min(self.log_tail, 0.0)) / max(last - spacing, 1e-300)
        return min(plain, self.tail_sum(last, spacing) / last**2)


@dataclass(frozen=True, slots=True)
class ProfileValues:
    """Bounds of delta at many epsilons, and the terms of their widths."""

    lower: Array
    estimate: Array
    upper: Array
    terms: Mapping[str, Array]


@dataclass(frozen=True)
class Contour:
    """Bounds of a profile near one epsilon.

    Attributes:
        tilt: The tilt c.
        period: The period P, in loss units.
        values: The transform on the line.
        window: The window eta, 0 for none; already in ``values`` and ``table``.
        table: log D at other tilts, for the aliases.
        left_out: Mass that is missing from D. It bounds how far delta is above D's profile.
    """

    tilt: float
    period: float
    values: LineValues
    window: float
    table: TiltTable
    left_out: float = 0.0

    def delta_bounds(self, epsilon: float) -> Bounds:
        """Return bounds of delta(eps) for any real eps. They are tight near the eps for which the line was made."""
        lower, middle, upper, *terms = self._rows(np.array([epsilon])).ravel().tolist()
        return Bounds(lower, upper, middle, dict(zip(_TERMS, terms, strict=True)))

    def evaluate(self, epsilons: Array) -> ProfileValues:
        """Evaluate delta at many epsilons."""
        lower, middle, upper, *terms = self._rows(epsilons)
        return ProfileValues(lower, middle, upper, dict(zip(_TERMS, terms, strict=True)))

    def _rows(self, epsilons: Array) -> Array:
        """Return lower ends, estimates, upper ends, and the terms of their widths in the order of `_TERMS`."""
        rows = np.empty((len(_TERMS) + 3, epsilons.size))
        _evaluate(epsilons, *self._given, rows)
        return rows

    @cached_property
    def _given(self) -> _Given:
        """Return further arguments of `_evaluate`."""
        values, table = self.values, self.table
        spacing = 2.0 * math.pi / self.period
        last = values.ratios.size * spacing
        tails = values.tail_sum_over_squares(last, spacing) / math.pi, values.tail_sum(last, spacing) / math.pi
        scale = values.log_scale, values.log_scale_error
        line = values.ratios, values.errors, values.rounding
        aliases = table.tilts, table.log_bounds
        return *line, self.tilt, self.period, scale, tails, self.window, aliases, self.left_out

    def estimate(self, epsilon: float) -> tuple[float, float]:
        """Estimate delta and -d delta / d eps."""
        delta, slope = self._estimates(np.array([epsilon])).ravel().tolist()
        return delta, slope

    def estimates(self, epsilons: Array) -> tuple[Array, Array]:
        """Estimate delta and -d delta / d eps at many epsilons."""
        deltas, slopes = self._estimates(epsilons)
        return deltas, slopes

    def _estimates(self, epsilons: Array) -> Array:
        values, rows = self.values, np.empty((2, epsilons.size))
        _estimate(epsilons, values.ratios, self.tilt, self.period, values.log_scale, self.window, rows)
        return rows


@compiled
def _evaluate(
    epsilons: Array,
    ratios: Complex,
    errors: Array,
    roundings: Array,
    tilt: float,
    period: float,
    scale: tuple[float, float],
    tails: tuple[float, float],
    window: float,
    table: tuple[Array, Array],
    left_out: float,
    bounds: Array,
) -> None:
    """Fill in `Contour._rows`.

    Args:
        scale: log D(c) and its error.
        tails: Bounds of the sums beyond the last point, of |D| / t^2 and of |D|, over pi.
        table: Tilts, and log of M(x) B(x) at each, rounded up.
    """
    aliases = _aliases(epsilons, table[0], table[1], tilt, period)
    points, spacing, rule = ratios.size, 2.0 * math.pi / period, 2.0 / period
    kernel = np.empty(points, np.complex128)
    inexact_quadrature, inexact_rounding, inexact_density = 0.0, 0.0, 0.0
    for k in range(points):
        z = complex(tilt, k * spacing)
        kernel[k] = (rule if k > 0 else 0.5 * rule) / (z * (z + 1.0))
        inexact_quadrature += abs(kernel[k]) * errors[k]
        inexact_rounding += abs(kernel[k]) * roundings[k]
        inexact_density += errors[k] + roundings[k]
    correction = window * window * math.exp(min(window * window / 8.0, 700.0))
    for i in range(epsilons.size):
        epsilon = epsilons[i]
        exponent, size = scale[0] - tilt * epsilon, abs(epsilon)
        total, lost, turn = 0.0, 0.0, 0.0
        density, density_error = 0.0, 0.0
        for k in range(points):
            angle = epsilon * (k * spacing)
            turned = ratios[k] * complex(math.cos(angle), -math.sin(angle))
            part = turned * kernel[k]
            moved = part.real - lost
            raised = total + moved
            lost = (raised - total) - moved
            total = raised
            # This is the rounding of the factor e^(-z eps) at each point.
            rounded = 38.0 + size * math.hypot(tilt, k * spacing)
            turn += abs(part) * rounded
            if window > 0.0:
                density += turned.real if k > 0 else 0.5 * turned.real
                density_error += abs(turned) * rounded
        # Among the subnormal numbers, only the upper bound of delta is valid.
        height = math.exp(max(exponent, -690.0))
        inexact = scale[1] + UNIT * 8.0 * (abs(scale[0]) + tilt * size)
        common = math.expm1(min(inexact, 700.0))
        largest = height * (1.0 + common) * _SUMMED
        estimate = height * total
        rounding = largest * (inexact_rounding + UNIT * turn) + height * common * abs(total)
        quadrature, truncation = largest * inexact_quadrature, largest * tails[0]
        error, moved_by = rounding + quadrature + truncation, 0.0
        if window > 0.0:
            # The shift by the window is eta^2 e^(eta^2/8) times the density of the windowed loss at eps, rounded up.
            wrong = inexact_density + UNIT * (1.0 + points) * density_error
            moved_by = largest * correction * max((density + wrong) * rule + tails[1], 0.0)
        lower, upper = estimate - error - aliases[i] - moved_by, estimate + error + left_out
        if math.isfinite(lower) and math.isfinite(upper):
            upper = max(upper, TINY)
            lower = min(max(lower, 0.0), upper) if exponent >= -690.0 else 0.0
            bounds[0, i], bounds[1, i], bounds[2, i] = lower, min(max(estimate - 0.5 * moved_by, lower), upper), upper
        else:
            bounds[0, i], bounds[1, i], bounds[2, i] = 0.0, math.nan, math.inf
        bounds[3, i], bounds[4, i], bounds[5, i] = rounding, quadrature, truncation
        bounds[6, i], bounds[7, i], bounds[8, i] = aliases[i], moved_by, left_out


@compiled
def _estimate(
    epsilons: Array, ratios: Complex, tilt: float, period: float, log_scale: float, window: float, rows: Array
) -> None:
    """Fill in a row of deltas and a row of slopes."""
    spacing = 2.0 * math.pi / period
    correction = 0.5 * window * window * math.exp(min(window * window / 8.0, 700.0))
    for i in range(epsilons.size):
        delta, slope = 0.0, 0.0
        for k in range(ratios.size):
            angle, z = epsilons[i] * (k * spacing), complex(tilt, k * spacing)
            turned = ratios[k] * complex(math.cos(angle), -math.sin(angle))
            if k == 0:
                turned *= 0.5
            rising = turned / (z + 1.0)
            slope += rising.real
            delta += (rising / z).real - correction * turned.real
        scale = math.exp(min(log_scale - tilt * epsilons[i], 690.0)) * 2.0 / period
        rows[0, i], rows[1, i] = scale * delta, scale * slope


@compiled
def _aliases(epsilons: Array, tilts: Array, logs: Array, tilt: float, period: float) -> Array:
    """Return Chernoff's bounds of all aliases, one for each side; inf for a side on which the table has no tilt.

    Args:
        logs: log of M(x) B(x) at each tilt, rounded up.
    """
    aliases, folded = np.empty(epsilons.size), np.empty(tilts.size)
    for j in range(tilts.size):
        gap = abs(tilts[j] - tilt) * period
        folded[j] = logs[j] - gap - math.log(-math.expm1(-gap)) if gap > 0.0 else math.inf
    for i in range(epsilons.size):
        below, above = math.inf, math.inf
        for j in range(tilts.size):
            log = folded[j] - tilts[j] * epsilons[i]
            if tilts[j] > tilt * 1.000001:
                above = min(above, log)
            elif tilts[j] < tilt * 0.999999:
                below = min(below, log)
        total = 0.0
        for best in (below, above):
            total += math.exp(min(best + 1e-12 * (abs(best) + 1.0), 700.0)) if best < math.inf else math.inf
        aliases[i] = total
    return aliases


def truncation_point(log_envelope: Callable[[Array], Array], start: float, log_tolerance: float) -> float:
    """Return the smallest t on a geometric grid around ``start`` beyond which the sum is below e^log_tolerance, over
    D(c).

    Args:
        log_envelope: A decreasing function: the log of a bound of |D(c + it')/D(c)| for every t' >= t.
    """
    places = start * _GROWTH
    low, high, tried = 0, places.size, _FIRST_TRIED
    while low < high:
        t = places[tried]
        failing = int(np.count_nonzero(log_envelope(t) - np.log(math.pi * t) > log_tolerance))
        low, high = (
            int(tried[failing - 1]) + 1 if failing > 0 else low,
            int(tried[failing]) if failing < tried.size else high,
        )
        tried = low + np.arange(min(tried.size, high - low)) * (high - low) // min(tried.size, max(high - low, 1))
    return float(places[low]) if low < places.size else math.inf


def power_values(
    lines: Sequence[tuple[Line, int]], gaussian: float, tilt: float, period: float, points: int
) -> LineValues:
    """Return the transform of a composition on its line, by adding the logarithms of the steps' transforms.

    Args:
        gaussian: mu^2 of the full-batch Gaussians and the window, whose M is e^(mu^2 z (z+1) / 2).
    """
    width = max(1, math.isqrt(points))
    blocks = -(-points // width)
    spacing = 2.0 * math.pi / period
    log_scale = 0.5 * gaussian * tilt * (tilt + 1.0)
    log_scale_error = 8.0 * UNIT * log_scale
    last = blocks * width * spacing
    log_tail = -0.5 * gaussian * last * last
    logs = np.empty(blocks * width, np.complex128)
    quadrature, rounding = np.zeros(logs.size), np.empty(logs.size)
    _gaussian_line(gaussian, tilt, spacing, logs, rounding)
    for line, count in lines:
        _add_line(logs, quadrature, rounding, line.log_ratios(blocks, width, spacing), count)
        log_scale += count * line.log_moment
        log_scale_error += count * line.log_moment_error + 4.0 * UNIT * abs(count * line.log_moment)
        log_tail += count * float(line.log_envelope(np.array([last]))[0])
    _exponentiate(logs, quadrature, rounding)
    return LineValues(logs, quadrature, rounding, log_scale, log_scale_error, log_tail, gaussian)


@compiled
def _gaussian_line(gaussian: float, tilt: float, spacing: float, logs: Complex, rounding: Array) -> None:
    """Fill in log D(c + it)/D(c) of a Gaussian at each point, and its errors by rounding."""
    for k in range(logs.size):
        t = k * spacing
        logs[k] = complex(-0.5 * gaussian * t * t, 0.5 * gaussian * t * (2.0 * tilt + 1.0))
        rounding[k] = UNIT * 8.0 * abs(logs[k])


@compiled
def _add_line(
    logs: Complex, quadrature: Array, rounding: Array, line: tuple[Complex, Array, Array], count: float
) -> None:
    """Add the logarithms and errors of ``count`` equal steps to the given arrays."""
    for k in range(logs.size):
        logs[k] += count * line[0][k]
        quadrature[k] += count * line[1][k]
        rounding[k] += count * line[2][k] + 4.0 * UNIT * count * abs(line[0][k])


@compiled
def _exponentiate(logs: Complex, quadrature: Array, rounding: Array) -> None:
    """Replace the logarithms by the ratios, and the errors of the logarithms by the absolute errors of the ratios."""
    for k in range(logs.size):
        log = logs[k].real
        inexact = error_of_exponential_at(log, quadrature[k])
        rounding[k] = error_of_exponential_at(log, quadrature[k] + rounding[k]) - inexact
        quadrature[k] = inexact
        modulus = math.exp(log)
        logs[k] = complex(modulus * math.cos(logs[k].imag), modulus * math.sin(logs[k].imag))


def gaussian_table(mu_squared: float, tilts: Array) -> TiltTable:
    """Return a table of the Gaussian's log-moment K(x) = mu^2 x (x + 1) / 2 at each tilt x."""
    moments = 0.5 * mu_squared * tilts * (tilts + 1.0)
    return TiltTable.of(
        tilts, moments, mu_squared * (tilts + 0.5), np.full_like(tilts, mu_squared), 8.0 * UNIT * np.abs(moments)
    )
