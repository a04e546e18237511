"""This module computes the density of the logarithm of a sum of equal log-normal variables.

The relative error is small wherever the density is not negligible.

Y_1, ..., Y_n are independent, Y_i = e^(mu Z_i - mu^2 / 2) with Z_i normal, so that each has mean 1; q_n is the density
of log(Y_1 + ... + Y_n). All terms of its computation are positive. The proofs are in docs/concepts/fourier.md, "Sums of
log-normal variables"; in short:

* log(Y_1 + ... + Y_n) is a normal variable of variance sigma^2 = mu^2 / n plus an independent one. So q_n is a mixture
  of normal densities of one width: |q_n(l + iy)| <= q_n(l) e^(y^2 / (2 sigma^2)), q_n <= 1 / (sigma sqrt(2 pi)), and
  values between lattice points are interpolated with bounds (`log_interpolation`).
* For independent sums A and B, q(l) = int q_A(l - log(1 + e^-v)) q_B(l - log(1 + e^v)) dv. The trapezoid rule converges
  exponentially: on Im v = y the integrand is at most e^(y^2 / (2 sigma^2)) times that of l + log kappa on the real
  line, with 1 <= kappa <= 1 / cos(y / 2).
* A lattice reaches as far up as its caller needs. With many variables and little noise, the tail comes from a single
  large variable and may be a thousand sigma long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.effort import spend
from accounting.fourier.log_interpolation import HALF, Table, placed, table_of, weigh
from accounting.fourier.log_sum_ends import lower_end, upper_end
from accounting.fourier.steps import UNIT

Array = NDArray[np.float64]

#: The log of the smallest share of the mean that is left out above a lattice, and the number to whose multiples such
#: logs are rounded.
LOG_LEAST, _GRAIN = -100.0, 10.0
#: The difference of two logs: that of the share of the mean above a lattice, and that of the probability below it.
_DEEPER = 70.0
#: The least number of interpolation nodes per sigma, and the largest number of lattice points from one node to the
#: next.
_PER_SIGMA, _STRIDE = 8.0, 4
#: Room above the end for a cut of the law, in units of sigma.
_ROOM = 5.0
#: The natural digits of the trapezoid rule: its relative error is about e^-36.
DIGITS = 36.0
#: The largest relative error with which a density counts as well known.
KNOWN = 0.1
#: The number of lattice points whose sums are computed together.
_BLOCK = 256
#: The replacement for a density that is computed as 0.
_SMALLEST = 1e-290
#: The most terms of all trapezoid rules together, which take two seconds on one core.
MOST_TERMS = 80_000_000


@dataclass(frozen=True, eq=False)
class LogSum:
    """q_n on the lattice l_i = (first + i) step.

    Attributes:
        mu, count: mu of one variable, and the number n of variables.
        density: q_n > 0.
        errors: Relative errors of the density: q_n is within density (1 +- errors).
        lower, upper: log(Y_1 + ... + Y_n) is below ``lower`` with probability e^log_below at most. Values above
            ``upper`` have a probability of at most e^log_above, and make up at most the same share of the mean.
        log_above: See ``lower, upper``.
        stride: The number of points from one node of an interpolation to the next.
    """

    mu: float
    count: int
    first: int
    step: float
    density: Array
    errors: Array
    lower: float
    upper: float
    log_above: float
    stride: int = 1

    @property
    def log_below(self) -> float:
        return self.log_above - _DEEPER

    @cached_property
    def logs(self) -> Array:
        """The lattice points l_i."""
        logs: Array = self.step * np.arange(self.first, self.first + self.density.size, dtype=np.float64)
        return logs

    @cached_property
    def table(self) -> Table:
        """Return the table that interpolation needs of this density."""
        return table_of(self)

    @property
    def sigma(self) -> float:
        return self.mu / math.sqrt(self.count)

    @property
    def largest(self) -> float:
        """A bound of the density."""
        return 1.0 / (self.sigma * math.sqrt(2.0 * math.pi))


def log_sum(mu: float, count: int, log_above: float = LOG_LEAST, *, as_fine_as: int = 0) -> LogSum:
    """Return the density q_n, which is computed from sums of half as many variables.

    Args:
        mu: Standard deviation of each logarithm.
        count: The number n.
        log_above: Logarithm of the share of the mean that may lie above the lattice; at least e^`LOG_LEAST` does.
        as_fine_as: A number of variables. If it is above n, the lattice is as fine as for that many variables.

    Guarantees: density_within_its_errors.

    Raises:
        OverflowError: If the result would take more than `MOST_TERMS` terms.
    """
    return _log_sum(mu, count, max(LOG_LEAST, _GRAIN * math.floor(log_above / _GRAIN)), max(as_fine_as, count))


@lru_cache(maxsize=32)
def _log_sum(mu: float, count: int, log_above: float, as_fine_as: int) -> LogSum:
    levels = [[count]]
    while levels[-1][-1] > 2:
        levels.append(sorted({half for number in levels[-1] for half in (number // 2, number - number // 2)}))
    steps = [_node_step(mu, numbers[-1]) for numbers in levels]
    # The upper end leaves room for a cut, and each lattice is longer than the next larger sum needs.
    uppers = [upper_end(mu, count, log_above) + _ROOM * mu / math.sqrt(count)]
    for step in steps:
        uppers.append(uppers[-1] + (HALF + 2) * step + moved_by(shift_of(_PER_SIGMA * 2.0 * step)))
    steps[0] = _node_step(mu, as_fine_as)
    # A sum of half as many variables takes about half as many terms, so finer lattices are used for small sums.
    strides = [min(2 ** max(level - 2, 0), _STRIDE) for level in range(len(levels))]
    if levels[-1][-1] == 2:
        levels, steps, strides, uppers = (
            [*levels, [1]],
            [*steps, steps[-1]],
            [*strides, strides[-1]],
            [*uppers, uppers[-1]],
        )
    one = _one(mu, steps[-1], strides[-1], uppers[-1], log_above)
    laws, terms = {1: one}, 0
    for numbers, step, stride, upper in zip(
        levels[-2::-1], steps[-2::-1], strides[-2::-1], uppers[-3::-1], strict=True
    ):
        halves, laws = laws, {1: one} if numbers[0] == 1 else {}
        for number in numbers:
            if number > 1:
                pair = halves[number // 2], halves[number - number // 2]
                laws[number], more = _sum(*pair, step, stride, upper, terms)
                terms += more
    return laws[count]


def _node_step(mu: float, count: int) -> float:
    """Return the spacing of nodes: the largest power of two of which `_PER_SIGMA` fit into the sigma of this many
    variables.
    """
    return 2.0 ** math.floor(math.log2(mu / math.sqrt(count) / _PER_SIGMA))


def _one(mu: float, node_step: float, stride: int, upper: float, log_above: float) -> LogSum:
    """Return q_1, the density for one variable, which is normal."""
    log_below = log_above - _DEEPER
    upper = min(upper, upper_end(mu, 1, log_below))
    lower = lower_end(mu, 1, log_below) - moved_by(shift_of(mu))
    places, step = _places(lower, upper, node_step, stride)
    z = step * places / mu + 0.5 * mu
    exponents = 0.5 * z * z
    density = np.exp(-exponents) / (mu * math.sqrt(2.0 * math.pi))
    errors = UNIT * (8.0 + 8.0 * exponents + 4.0 * mu * np.abs(z))
    return LogSum(mu, 1, int(places[0]), step, density, errors, lower, upper, log_above, stride)


def _places(lower: float, upper: float, node_step: float, stride: int) -> tuple[NDArray[np.int64], float]:
    """Return the lattice, with the nodes that interpolation needs beyond its ends, and its step."""
    first, last = math.floor(lower / node_step) - HALF - 1, math.ceil(upper / node_step) + HALF + 1
    return np.arange(stride * first, stride * last + 1), node_step / stride


def _sum(left: LogSum, right: LogSum, node_step: float, stride: int, upper: float, spent: int) -> tuple[LogSum, int]:
    """Return the density for the sum of two independent sums, and the number of terms that the computation took."""
    mu, count, same = left.mu, left.count + right.count, left is right
    upper = min(upper, upper_end(mu, count, left.log_below))
    lower = lower_end(mu, count, left.log_below) - moved_by(shift_of(mu / math.sqrt(count)))
    places, step = _places(lower, upper, node_step, stride)
    logs: Array = (step * places).astype(np.float64)
    # Choose the trapezoid rule by the line Im v = shift and the growth of the integrand there.
    sigma = min(left.sigma, right.sigma)
    shift = shift_of(sigma)
    growth = 0.5 * (shift / sigma) ** 2 + log_rise(left, moved_by(shift)) + log_rise(right, moved_by(shift))
    spacing = 2.0 * math.pi * shift / (DIGITS + growth)
    trapezoid = 2.02 * math.exp(-DIGITS)
    lowest = 0 if same else math.floor((left.lower - logs[-1]) / spacing)
    v = spacing * np.arange(lowest, math.ceil((logs[-1] - right.lower) / spacing) + 1)
    weights = np.where(v > 0.0, 2.0 * spacing, spacing) if same else np.full(v.size, spacing)
    terms = v.size * places.size
    if spent + terms > MOST_TERMS:
        raise OverflowError("the density of this sum takes too many terms")
    spend(10 * terms)
    apart = max(1, round(step / left.step))
    sums, errors = _convolve(
        (int(places[0]), places.size, max(1, round(left.step / step)), apart, left.step),
        _in_phases(left.table, apart),
        _in_phases(right.table, apart),
        (left.first, right.first),
        weights,
        np.logaddexp(0.0, -v),
        np.logaddexp(0.0, v),
    )
    absolute = _left_out(left, right, logs) + _left_out(right, left, logs)
    density = np.maximum(sums, _SMALLEST)
    relative = (errors + absolute) / density + trapezoid + 4.0 * UNIT
    return LogSum(mu, count, int(places[0]), step, density, relative, lower, upper, left.log_above, stride), terms


def _in_phases(table: Table, apart: int) -> Table:
    """Return a table whose cells are regrouped by phase: phase p holds every cell whose index is p modulo ``apart``.

    Shorter phases are padded with empty cells.

    Returns:
        The table, whose arrays have the phase as a new first axis.
    """
    *arrays, curvature, stride = table

    def phases(array: Array) -> Array:
        missing = -array.shape[-1] % apart
        filled = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])
        return np.ascontiguousarray(np.moveaxis(filled.reshape(*filled.shape[:-1], -1, apart), -1, 0))

    nodes, height, tilts, wrong, turned = (phases(array) for array in arrays)
    return nodes, height, tilts, wrong, turned, curvature, stride


def shift_of(sigma: float) -> float:
    """Return the distance by which Im v is moved."""
    return min(6.5 * sigma, 1.0)


def moved_by(shift: float) -> float:
    """Return an upper bound of log kappa."""
    return -math.log(math.cos(0.5 * shift))


def log_rise(law: LogSum, moved: float) -> float:
    """Return a bound of log q(l + d) - log q(l) over all |d| <= |``moved``| of the sign of ``moved``, rounded up.

    It holds where the density q is well known.
    """
    logs, largest = np.where(law.errors <= KNOWN, np.log(law.density), math.nan), 0.0
    logs = logs if moved >= 0.0 else logs[::-1]
    for cells in range(1, math.ceil(abs(moved) / law.step) + 2):
        largest = max(largest, float(np.nanmax(logs[cells:] - logs[:-cells], initial=0.0)))
    # Between two nodes, q is at most e^(step^2 / (8 sigma^2)) times the larger of their values, and above half of the
    # smaller.
    return largest + 0.125 * (law.step / law.sigma) ** 2 + 1.0


def _left_out(law: LogSum, other: LogSum, logs: Array) -> Array:
    """Return a bound, at each log l of the sum, of the part of the density that the rule misses.

    The rule misses the values of ``law`` outside the ends of its lattice and those that are not well known.
    """
    unknown = law.errors > KNOWN
    height = float((law.density * (1.0 + law.errors)).max(initial=0.0, where=unknown))
    inside = 600.0 * (1.0 + other.largest) * height * math.exp(-DIGITS)
    below = 10.0 * other.largest * math.exp(law.log_below)
    # The bound uses the density of the other sum S itself instead of that of log S. It is at most E (1 / S) times
    # ``other.largest``.
    inverse = math.exp(0.5 * law.mu**2 * (1.0 + 1.0 / other.count)) / other.count
    above = 10.0 * other.largest * (1.0 + inverse * np.exp(logs)) * math.exp(law.log_below)
    return inside + below + np.where(logs > law.upper, above, 0.0)


@compiled
def _convolve(
    lattice: tuple[int, int, int, int, float],
    a: Table,
    b: Table,
    firsts: tuple[int, int],
    weights: Array,
    moved_a: Array,
    moved_b: Array,
) -> tuple[Array, Array]:
    """Return the value of the trapezoid rule at every point of a lattice, and the sum of the errors of its terms.

    Args:
        lattice: Five numbers: the index of the lattice's first point; its size; the ratio of the two sums' step to the
            lattice's step, at least 1; the inverse ratio, at least 1; the two sums' step.
        a, b: The tables of the two sums, as `_in_phases` returns them.
        firsts: The first points of the two sums' lattices.
        moved_a, moved_b: log(1 + e^-v) and log(1 + e^v) at each v of the rule.
    """
    first, size, ratio, apart, step = lattice
    table_a, height_a, tilts_a, wrong_a, turned_a, curvature_a, stride_a = a
    table_b, height_b, tilts_b, wrong_b, turned_b, curvature_b, stride_b = b
    nodes, parts = table_a.shape[1], wrong_a.shape[1]
    half = nodes // 2
    sums, lost, errors = np.zeros(size), np.zeros(size), np.zeros(size)
    weights_a, weights_b, of_a, of_b = np.empty(nodes), np.empty(nodes), np.empty(_BLOCK), np.empty(_BLOCK)
    for k in range(weights.size):
        cells_a, cells_b = moved_a[k] / step, moved_b[k] / step
        whole_a, whole_b = math.floor(cells_a), math.floor(cells_b)
        for rest in range(ratio):
            # Points that are ``ratio`` apart have the same position within their cells.
            origin = (rest - first) % ratio
            start = (first + origin - rest) // ratio * apart
            near_a, u, part_a = placed(rest / ratio - (cells_a - whole_a), stride_a, parts)
            near_b, s, part_b = placed(rest / ratio - (cells_b - whole_b), stride_b, parts)
            shift_a = start - whole_a + near_a - firsts[0] - (half - 1) * stride_a
            shift_b = start - whole_b + near_b - firsts[1] - (half - 1) * stride_b
            phase_a, phase_b = shift_a % apart, shift_b % apart
            shift_a, shift_b = shift_a // apart, shift_b // apart
            low = max(0, -shift_a, -shift_b)
            high = min((size - origin + ratio - 1) // ratio, height_a.shape[1] - shift_a, height_b.shape[1] - shift_b)
            if low >= high:
                continue
            weigh(u, weights_a)
            weigh(s, weights_b)
            flat = -curvature_a * u * u - curvature_b * s * s
            for i in range(low, high, _BLOCK):
                # The sum is written with slices, which compilers vectorise.
                number = min(high - i, _BLOCK)
                p, q = i + shift_a, i + shift_b
                a_end, b_end = p + number, q + number
                for n in range(number):
                    of_a[n] = 0.0
                    of_b[n] = 0.0
                # The small terms of the outer nodes are added first, which reduces rounding.
                for outer in range(half):
                    inner = nodes - 1 - outer
                    x, y, z, w = weights_a[outer], weights_a[inner], weights_b[outer], weights_b[inner]
                    a_low, a_high = table_a[phase_a, outer, p:a_end], table_a[phase_a, inner, p:a_end]
                    b_low, b_high = table_b[phase_b, outer, q:b_end], table_b[phase_b, inner, q:b_end]
                    for n in range(number):
                        of_a[n] += x * a_low[n] + y * a_high[n]
                        of_b[n] += z * b_low[n] + w * b_high[n]
                h_a, t_a = height_a[phase_a, p:a_end], tilts_a[phase_a, p:a_end]
                h_b, t_b = height_b[phase_b, q:b_end], tilts_b[phase_b, q:b_end]
                for n in range(number):
                    scale = weights[k] * math.exp(flat + t_a[n] * u + t_b[n] * s)
                    of_a[n] = scale * ((of_a[n] * h_a[n]) * (of_b[n] * h_b[n]))
                e_a, r_a = wrong_a[phase_a, part_a, p:a_end], turned_a[phase_a, p:a_end]
                e_b, r_b = wrong_b[phase_b, part_b, q:b_end], turned_b[phase_b, q:b_end]
                j = origin + i * ratio
                summed, missed, bounds = sums[j::ratio], lost[j::ratio], errors[j::ratio]
                for n in range(number):
                    term = of_a[n]
                    moved = term - missed[n]
                    raised = summed[n] + moved
                    missed[n] = (raised - summed[n]) - moved
                    summed[n] = raised
                    bounds[n] += term * (e_a[n] + e_b[n] + (r_a[n] * moved_a[k] + r_b[n] * moved_b[k]))
    return sums, errors
