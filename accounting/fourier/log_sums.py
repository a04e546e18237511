"""The density of the logarithm of a sum of equal log-normal variables, relatively accurate wherever it is not nothing.

Y_1, ..., Y_n are independent, Y_i = e^(mu Z_i - mu^2 / 2) with Z_i normal, so that each has mean 1; q_n is the density
of log(Y_1 + ... + Y_n). All terms of its computation are positive. The proofs are in docs/concepts/fourier.md, "Sums of
log-normal variables"; in short:

* log(Y_1 + ... + Y_n) is a normal variable of variance sigma^2 = mu^2 / n plus an independent one. So q_n is a mixture
  of normal densities of one width: |q_n(l + iy)| <= q_n(l) e^(y^2 / (2 sigma^2)), q_n <= 1 / (sigma sqrt(2 pi)), and
  d -> q_n(l + d) e^(d^2 / (2 sigma^2) - tau d) is the Laplace transform of a positive measure for every tau.
* For independent sums A and B, q(l) = int q_A(l - log(1 + e^-v)) q_B(l - log(1 + e^v)) dv. The trapezoid rule converges
  exponentially: on Im v = y the integrand is at most e^(y^2 / (2 sigma^2)) times that of l + log kappa on the real
  line, with 1 <= kappa <= 1 / cos(y / 2).
* All even derivatives of a Laplace transform are positive, so that interpolation through 2L nodes and through the inner
  2L - 2 of them err in opposite directions: the truth lies between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.effort import spend
from accounting.fourier.steps import UNIT

Array = NDArray[np.float64]

#: Half of the nodes of an interpolation, and lattice points per sigma, at least.
HALF, _PER_SIGMA = 10, 8.0
_NODES = np.arange(1 - HALF, 1 + HALF)
#: log of the probability below a lattice, and of the share of the mean above it.
LOG_BELOW, LOG_ABOVE = -170.0, -100.0
#: Room above the end for those who cut the law, in units of sigma.
_ROOM = 5.0
#: Natural digits of the trapezoid rule.
DIGITS = 42.0
#: Rounding of an interpolated density in units of the roundoff: of weights, sum and exponential; and of a node's value,
#: beside that of its exponent.
_INTERPOLATED, _NODE = 20.0, 4.0
#: A cell with a larger error than the first is not interpolated; a density with one above the second is not known well.
_WORST, KNOWN = 0.01, 0.1
#: What stands for a density that is computed as nothing.
_SMALLEST = 1e-290
#: Integer moments that are tried for the tails.
_ORDERS = np.arange(65.0)
#: Cells of one variable, in which exponential moments are bounded, and their tilts.
_CELLS, _TILTS = 4001, 2.0 ** np.linspace(-8.0, 1.0, 28)
#: Terms of all trapezoid rules together, which take two seconds on one core.
MOST_TERMS = 60_000_000


@dataclass(frozen=True, eq=False)
class LogSum:
    """q_n on the lattice l_i = (first + i) step.

    Attributes:
        mu, count: Of one variable, and n.
        density: q_n > 0.
        errors: Relative: q_n is within density (1 +- errors).
        lower, upper: log(Y_1 + ... + Y_n) is below ``lower`` with probability e^`LOG_BELOW` at most. What is above
            ``upper`` has a probability of e^`LOG_ABOVE` at most, and a share of the mean of as much.
    """

    mu: float
    count: int
    first: int
    step: float
    density: Array
    errors: Array
    lower: float
    upper: float

    @cached_property
    def logs(self) -> Array:
        """l_i."""
        logs: Array = self.step * np.arange(self.first, self.first + self.density.size, dtype=np.float64)
        return logs

    @property
    def sigma(self) -> float:
        return self.mu / math.sqrt(self.count)

    @property
    def largest(self) -> float:
        """A bound of the density."""
        return 1.0 / (self.sigma * math.sqrt(2.0 * math.pi))


@lru_cache(maxsize=32)
def log_sum(mu: float, count: int, as_fine_as: int = 0) -> LogSum:
    """Return q_n, made from sums of half as many variables.

    Args:
        mu: Standard deviation of each logarithm.
        count: n.
        as_fine_as: A number of variables: the lattice is as fine as theirs, if they are more than n.

    Guarantees: density_within_its_errors.

    Raises:
        OverflowError: it would take more than `MOST_TERMS` terms.
    """
    levels = [[count]]
    while levels[-1][-1] > 2:
        levels.append(sorted({half for number in levels[-1] for half in (number // 2, number - number // 2)}))
    steps = [_lattice_step(mu, numbers[-1]) for numbers in levels]
    # Room for a cut; and each lattice reaches beyond what the next one asks of it.
    uppers = [_upper_end(mu, count, LOG_ABOVE) + _ROOM * mu / math.sqrt(count)]
    for step in steps:
        uppers.append(uppers[-1] + (HALF + 2) * step + moved_by(shift_of(_PER_SIGMA * 2.0 * step)))
    steps[0] = _lattice_step(mu, max(as_fine_as, count))
    one = _one(mu, steps[-1], uppers[-1])
    if count == 1:
        return one
    laws, terms = {1: one}, 0
    if levels[-1][-1] == 2:
        levels.append([1])
        steps.append(steps[-1])
        uppers.append(uppers[-1])
    for numbers, step, upper in zip(levels[-2::-1], steps[-2::-1], uppers[len(levels) - 2 :: -1], strict=True):
        halves, laws = laws, {1: one} if numbers[0] == 1 else {}
        for number in numbers:
            if number > 1:
                laws[number], more = _sum(halves[number // 2], halves[number - number // 2], step, upper, terms)
                terms += more
    return laws[count]


def _lattice_step(mu: float, count: int) -> float:
    """Return the largest power of two of which `_PER_SIGMA` fit into the sigma of so many variables."""
    return 2.0 ** math.floor(math.log2(mu / math.sqrt(count) / _PER_SIGMA))


def log_below(mu: float, count: int, logs: Array) -> Array:
    """Return log of a bound of P(log(Y_1 + ... + Y_n) < l) at each l.

    Chernoff's bound of the geometric mean, which is below the mean; and that of the sum, with exponential moments.
    """
    means = logs - math.log(count)
    distance = np.maximum(-means / mu - 0.5 * mu, 0.0)
    geometric = -0.5 * count * distance * distance
    if count == 1:
        return geometric
    tilts, exponential = _exponential_moments(mu, count, upward=False)
    short = -np.expm1(np.minimum(means, 0.0))
    below: Array = np.minimum(geometric, (count * (exponential - np.multiply.outer(short, tilts))).min(axis=1))
    return np.minimum(below, 0.0)


def _lower_end(mu: float, count: int, log_mass: float) -> float:
    """l with P(log S < l) <= e^log_mass."""
    low = high = math.log(count) - 0.5 * mu * mu - mu * math.sqrt(-2.0 * log_mass / count)
    if count > 1:
        tilts, exponential = _exponential_moments(mu, count, upward=False)
        short = float(((exponential - log_mass / count) / tilts).min())
        if short < 1.0:
            high = math.log(count) + math.log1p(-short)
    return max(low, high)


def _upper_end(mu: float, count: int, log_mass: float) -> float:
    """l >= log n with E S/n over log S > l at most e^log_mass.

    By integer moments; or no variable is large, and by exponential moments, X being at most e^(X - 1).
    """
    if count == 1:
        return mu * math.sqrt(-2.0 * log_mass) + 0.5 * mu * mu
    moments = float(((_log_moments(mu, count)[2:] - math.log(count) - log_mass) / _ORDERS[1:-1]).min())
    tilts, exponential = _exponential_moments(mu, count, upward=True)
    steep = tilts > 1.5 / count
    above = float(((exponential - (log_mass - 1.0) / count)[steep] / (tilts[steep] - 1.0 / count)).min(initial=1e300))
    return min(moments, math.log(count) + math.log1p(above)) + 1e-6


@lru_cache(maxsize=256)
def _exponential_moments(mu: float, count: int, *, upward: bool) -> tuple[Array, Array]:
    """Tilts x, and log of bounds of E e^(-x (Y - 1)), or of E e^(x (Y - 1)) without the largest Y.

    The mean of those is e^-171 over n.
    """
    reach = math.sqrt(2.0 * (math.log(count) + 1.0 - LOG_BELOW)) + (mu if upward else 0.0)
    z = np.linspace(-reach, reach, _CELLS)
    below = scipy.special.log_ndtr(z[: _CELLS // 2 + 1])
    half = below[1:] + np.log(-np.expm1(below[:-1] - below[1:]))
    if not upward:
        half[0] = below[1]
    log_masses = np.concatenate([half, half[::-1]])
    values = np.expm1(mu * z - 0.5 * mu * mu)
    tilts = math.sqrt(-2.0 * LOG_BELOW / (count * math.expm1(mu * mu))) * _TILTS
    if upward:
        exponents = np.multiply.outer(tilts, values[1:])
    else:
        values[0] = -1.0
        exponents = -np.multiply.outer(tilts, values[:-1])
    moments: Array = scipy.special.logsumexp(log_masses + exponents, axis=1) + 1e-9
    return tilts, moments


@lru_cache(maxsize=256)
def _log_moments(mu: float, count: int) -> Array:
    """log E (Y_1 + ... + Y_n)^p at each of `_ORDERS`, by powers of a series with positive terms, rounded up."""
    base = 0.5 * mu * mu * _ORDERS * (_ORDERS - 1.0) - scipy.special.gammaln(_ORDERS + 1.0)
    power, remaining = np.where(_ORDERS > 0.0, -math.inf, 0.0), count
    while remaining:
        if remaining & 1:
            power = _product(power, base)
        remaining >>= 1
        base = _product(base, base)
    moments: Array = power + scipy.special.gammaln(_ORDERS + 1.0) + 1e-9
    return moments


def _product(left: Array, right: Array) -> Array:
    """Product of two power series, coefficients in logarithms."""
    index = np.arange(left.size)
    gaps = index[:, None] - index
    terms = np.where(gaps >= 0, left + right[np.maximum(gaps, 0)], -math.inf)
    product: Array = scipy.special.logsumexp(terms, axis=1)
    return product


def _one(mu: float, step: float, upper: float) -> LogSum:
    """q_1, which is normal."""
    upper = min(upper, _upper_end(mu, 1, LOG_BELOW))
    lower = _lower_end(mu, 1, LOG_BELOW) - moved_by(shift_of(mu))
    places = _places(lower, upper, step)
    z = step * places / mu + 0.5 * mu
    exponents = 0.5 * z * z
    density = np.exp(-exponents) / (mu * math.sqrt(2.0 * math.pi))
    errors = UNIT * (8.0 + 8.0 * exponents + 4.0 * mu * np.abs(z))
    return LogSum(mu, 1, int(places[0]), step, density, errors, lower, upper)


def _places(lower: float, upper: float, step: float) -> NDArray[np.int64]:
    """The lattice, with the nodes that interpolation needs beyond its ends."""
    return np.arange(math.floor(lower / step) - HALF - 1, math.ceil(upper / step) + HALF + 2)


def _sum(left: LogSum, right: LogSum, step: float, upper: float, spent: int) -> tuple[LogSum, int]:
    """q of the sum of two independent sums, and the number of terms."""
    mu, count, same = left.mu, left.count + right.count, left is right
    upper = min(upper, _upper_end(mu, count, LOG_BELOW))
    lower = _lower_end(mu, count, LOG_BELOW) - moved_by(shift_of(mu / math.sqrt(count)))
    places = _places(lower, upper, step)
    logs: Array = (step * places).astype(np.float64)
    # The trapezoid rule: Im v = shift, and how much the integrand grows there.
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
    sums, errors = _convolve(
        (int(places[0]), places.size, round(left.step / step), left.step),
        table_of(left),
        table_of(right),
        (left.first, right.first),
        weights,
        np.logaddexp(0.0, -v),
        np.logaddexp(0.0, v),
    )
    absolute = _left_out(left, right, logs) + _left_out(right, left, logs)
    density = np.maximum(sums, _SMALLEST)
    relative = (errors + absolute) / density + trapezoid + 4.0 * UNIT
    return LogSum(mu, count, int(places[0]), step, density, relative, lower, upper), terms


def shift_of(sigma: float) -> float:
    """Return how far Im v is moved."""
    return min(5.0 * sigma, 1.0)


def moved_by(shift: float) -> float:
    """log kappa is at most this."""
    return -math.log(math.cos(0.5 * shift))


def log_rise(law: LogSum, moved: float) -> float:
    """A bound of log q(l + d) - log q(l) over d from 0 to ``moved``, of either sign, where q is known; rounded up."""
    logs, largest = np.where(law.errors <= KNOWN, np.log(law.density), math.nan), 0.0
    logs = logs if moved >= 0.0 else logs[::-1]
    for cells in range(1, math.ceil(abs(moved) / law.step) + 2):
        largest = max(largest, float(np.nanmax(logs[cells:] - logs[:-cells], initial=0.0)))
    # Between nodes q is at most e^(step^2 / (8 sigma^2)) times the larger one, and above half of the smaller one.
    return largest + 0.125 * (law.step / law.sigma) ** 2 + 1.0


def _left_out(law: LogSum, other: LogSum, logs: Array) -> Array:
    """A bound of what is missed where ``law`` is outside of its ends, or is not known well and Im v is moved."""
    unknown = law.errors > KNOWN
    height = float((law.density * (1.0 + law.errors)).max(initial=0.0, where=unknown))
    inside = 600.0 * (1.0 + other.largest) * height * math.exp(-DIGITS)
    below = 10.0 * other.largest * math.exp(LOG_BELOW)
    # The density of the other sum itself, not of its logarithm, is at most E (1 / S) times the largest.
    inverse = math.exp(0.5 * law.mu**2 * (1.0 + 1.0 / other.count)) / other.count
    above = 10.0 * other.largest * (1.0 + inverse * np.exp(logs)) * math.exp(LOG_BELOW)
    return inside + below + np.where(logs > law.upper, above, 0.0)


def _lagrange(u: float) -> Array:
    """Weights of the nodes at 0 <= u <= 1."""
    weights = [np.prod([(u - other) / (node - other) for other in _NODES if other != node]) for node in _NODES]
    return np.array(weights)


#: The largest |weight| of each node in each part of a cell, rounded up; the weights in its middle; those of a
#: difference of order 2L - 2, and the largest |product of (u - node)| of its nodes, over (2L - 2)!.
_PARTS = 8
_GRID = np.abs(np.array([_lagrange(u) for u in np.linspace(0.0, 1.0, 20 * _PARTS + 1)]))
_LARGEST = 1.001 * np.array([_GRID[20 * part : 20 * part + 21].max(axis=0) for part in range(_PARTS)])
_MIDDLE = _lagrange(0.5)
_DIFFERENCE = np.array([(-1.0) ** k * math.comb(2 * HALF - 2, k) for k in range(2 * HALF - 1)])
_INNER = math.comb(2 * HALF - 2, HALF - 1) / 16.0 ** (HALF - 1)

Table = tuple[Array, Array, Array, Array, Array, float]


def table_of(law: LogSum) -> Table:
    """Return what interpolation needs in each cell between two nodes.

    Returns:
        T at the nodes of each cell, T(k) = q_(i+k) e^(curvature k^2 - tilt k) / q_i, one row for each node; q_i; the
        tilts, at which T(0) = T(1); relative errors, one row for each part of a cell; how log q moves with the rounding
        of a place; the curvature.
    """
    start = np.arange(HALF - 1, law.density.size - HALF)
    height, windows = law.density[start], start[:, None] + _NODES
    curvature = 0.5 * (law.step / law.sigma) ** 2
    rises = np.log(law.density[start + 1] / height)
    tilts = rises + curvature
    with np.errstate(over="ignore"):
        tilted = np.multiply.outer(tilts, _NODES)
        shape = np.exp(curvature * _NODES**2 - tilted)
    nodes = np.minimum(law.density[windows] / height[:, None] * shape, 1e100)
    errors = np.minimum(law.errors[windows], 1e100) + UNIT * (_NODE + curvature * _NODES**2 + np.abs(tilted))
    # T is convex and has equal ends: within the cell it is above twice its middle less the end.
    least = 2.0 * (nodes @ _MIDDLE) - 1.0
    differences = [np.abs(part @ _DIFFERENCE) for part in (nodes[:, :-1], nodes[:, 1:])]
    wrong = [part @ np.abs(_DIFFERENCE) for part in (nodes[:, :-1] * errors[:, :-1], nodes[:, 1:] * errors[:, 1:])]
    bracket = _INNER * (np.maximum(*differences) + np.maximum(*wrong))
    carried = _LARGEST @ (nodes * errors).T
    wrong_within = (bracket + carried) / least + UNIT * _INTERPOLATED
    # Where that is too much, q_i stands for the cell: T is between 0 and its ends.
    coarse = ~((wrong_within.max(axis=0) < _WORST) & (least > 0.5))
    nodes[coarse] = 1.0
    wrong_within[:, coarse] = 1.1 + np.maximum(law.errors[start], law.errors[start + 1])[coarse]
    slopes = np.abs(rises) / law.step
    turned = 4.0 * UNIT * np.maximum(slopes, np.maximum(np.roll(slopes, 1), np.roll(slopes, -1)))
    return np.ascontiguousarray(nodes.T), height, tilts, wrong_within, turned, curvature


@compiled
def _weigh(u: float, weights: Array) -> None:
    """Set the weights of Lagrange's interpolation at 0 <= u <= 1."""
    nodes = weights.size
    half = nodes // 2
    if u in (0.0, 1.0):
        weights[:] = 0.0
        weights[half - 1 if u == 0.0 else half] = 1.0
        return
    # Binomials, which are exact.
    binomial = 1.0
    for node in range(nodes):
        weights[node] = binomial / (u - (node - half + 1))
        binomial = -binomial * (nodes - 1 - node) / (node + 1)
    total = 0.0
    for outer in range(half):
        total = total + weights[outer] + weights[nodes - 1 - outer]
    for node in range(nodes):
        weights[node] /= total


def interpolated(law: LogSum, table: Table, places: Array) -> tuple[Array, Array]:
    """Return a density between the points of its lattice, and relative errors.

    Args:
        law: As `LogSum` says of q: a mixture of normal densities of variance sigma^2.
        table: Of this law.
        places: `HALF` points from either end, at least.
    """
    nodes, height, tilts, wrong, turned, curvature = table
    along = (places - law.logs[HALF - 1]) / law.step
    cells = np.clip(np.floor(along).astype(np.int64), 0, height.size - 1)
    u = np.clip(along - cells, 0.0, 1.0)
    sums = np.einsum("ki,ki->i", _weights(u), nodes[:, cells])
    values: Array = height[cells] * np.exp(tilts[cells] * u - curvature * u * u) * sums
    parts = np.minimum((_PARTS * u).astype(np.int64), _PARTS - 1)
    errors: Array = wrong[parts, cells] + turned[cells] * (np.abs(places) + law.step * abs(law.first) + 1.0)
    return values, errors


@compiled
def _weights(u: Array) -> Array:
    """Return Lagrange's weights at each u, one row for each node."""
    weights, of_one = np.empty((2 * HALF, u.size)), np.empty(2 * HALF)
    for place in range(u.size):
        _weigh(u[place], of_one)
        weights[:, place] = of_one
    return weights


@compiled
def _convolve(
    lattice: tuple[int, int, int, float],
    a: Table,
    b: Table,
    firsts: tuple[int, int],
    weights: Array,
    moved_a: Array,
    moved_b: Array,
) -> tuple[Array, Array]:
    """The trapezoid rule for every point of a lattice, and the sum of its terms' errors.

    Args:
        lattice: Its first place and size; the step of the two sums over its own; their step.
        firsts: Of the two sums' lattices.
        moved_a, moved_b: log(1 + e^-v) and log(1 + e^v) at each v of the rule.
    """
    first, size, ratio, step = lattice
    table_a, height_a, tilts_a, wrong_a, turned_a, curvature_a = a
    table_b, height_b, tilts_b, wrong_b, turned_b, curvature_b = b
    nodes, parts = table_a.shape[0], wrong_a.shape[0]
    half = nodes // 2
    sums, lost, errors = np.zeros(size), np.zeros(size), np.zeros(size)
    at_a, at_b, weights_a, weights_b = np.empty(size), np.empty(size), np.empty(nodes), np.empty(nodes)
    for k in range(weights.size):
        cells_a, cells_b = moved_a[k] / step, moved_b[k] / step
        whole_a, whole_b = math.floor(cells_a), math.floor(cells_b)
        for rest in range(ratio):
            # Every ratio-th point is at the same place of its cell.
            origin = (rest - first) % ratio
            start = (first + origin - rest) // ratio - (half - 1)
            u, shift_a = rest / ratio - (cells_a - whole_a), start - whole_a - firsts[0]
            s, shift_b = rest / ratio - (cells_b - whole_b), start - whole_b - firsts[1]
            if u < 0.0:
                u, shift_a = u + 1.0, shift_a - 1
            if s < 0.0:
                s, shift_b = s + 1.0, shift_b - 1
            low = max(0, -shift_a, -shift_b)
            high = min((size - origin + ratio - 1) // ratio, height_a.size - shift_a, height_b.size - shift_b)
            if low >= high:
                continue
            _weigh(u, weights_a)
            _weigh(s, weights_b)
            part_a, part_b = min(int(parts * u), parts - 1), min(int(parts * s), parts - 1)
            for i in range(low, high):
                at_a[i] = 0.0
                at_b[i] = 0.0
            # From the outer nodes inwards: the small terms first.
            for outer in range(half):
                for node in (outer, nodes - 1 - outer):
                    x, y = weights_a[node], weights_b[node]
                    for i in range(low, high):
                        at_a[i] += x * table_a[node, i + shift_a]
                        at_b[i] += y * table_b[node, i + shift_b]
            flat = -curvature_a * u * u - curvature_b * s * s
            for i in range(low, high):
                p, q = i + shift_a, i + shift_b
                scale = weights[k] * math.exp(flat + tilts_a[p] * u + tilts_b[q] * s)
                term = scale * ((at_a[i] * height_a[p]) * (at_b[i] * height_b[q]))
                j = origin + i * ratio
                moved = term - lost[j]
                raised = sums[j] + moved
                lost[j] = (raised - sums[j]) - moved
                sums[j] = raised
                turned = turned_a[p] * moved_a[k] + turned_b[q] * moved_b[k]
                errors[j] += term * (wrong_a[part_a, p] + wrong_b[part_b, q] + turned)
    return sums, errors
