r"""This module computes banded Toeplitz matrices for which the gradient sums that training follows have the least
error.

C is lower triangular with c_0 > 0, c_0 >= c_1 >= ... >= c_(b-1) >= 0 on its diagonals. The release is g + s C^-1 Z,
where g are the gradients of all steps. Training follows A g. The matrix A is the workload: prefix sums, with momentum
and step sizes if there are any. The error of step t is s |B_t|, where B_t is row t of B = A C^-1. At the same privacy,
s is proportional to |c|. So |c| |B_t| is minimised, and |c| is scaled to 1.

Without step sizes, A is Toeplitz with the coefficients of a(x) = 1 / ((1 - x)(1 - beta x)), where beta is the momentum.
With the power series d = a/c, |B_t|^2 is the sum over i <= t of d_i^2. So the mean over T steps is E = sum of w_i d_i^2
with w_i = 1 - i/T, and the largest |B_t|^2 is the last one, with w_i = 1. With u = d/c, the derivative is

    d(|c|^2 E)/dc_j = 2 c_j E - 2 |c|^2 sum over i >= j of w_i d_i u_(i-j):

It takes two recursive filters and b inner products. c has all its zeros outside of the unit circle (Enestroem-Kakeya),
so d converges geometrically to 1/((1 - beta) c(1)), and u to this limit divided by c(1). The remaining terms are summed
in closed form.

With step sizes eta_t, A_(t,i) = sum over i <= r <= t of eta_r beta^(r-i), and B_(t,i) = sum over r of eta_r n_(r-i),
with n = 1/(c(x)(1 - beta x)), so each column takes one cumulative sum. The squared length of column i changes slowly
with i, so the search computes only some columns and interpolates linearly between them. The answer is summed over all
columns.

**Variables.** If c itself were the variable, a line search would leave the region where d stays finite, and the search
would end where it began but report success. Here the variables are v_i = ln(c_(i-1) / c_i) >= 0, and ln(|c|^2 E) is
minimised, which is finite wherever the search goes. In all observed optima, every v_i is positive. It is not proved
that the minimum is unique. A worse c costs accuracy, but never privacy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy
from numpy.lib.stride_tricks import sliding_window_view

from accounting.errors import Unsupported
from accounting.factorisations import Array, square_root
from calibrators.correlation import Objective
from calibrators.plan import MAX_COEFFICIENT_BITS

#: The number of rows that are computed before the first check of convergence.
_FIRST_ROWS = 4096
#: The most rows that are computed during the search, and for the answer. The answer is refused if its rows have not
#: converged.
_SEARCHED_ROWS, _MOST_ROWS = 1 << 16, 1 << 21
_SETTLED = 1e-13
#: The most steps with different step sizes. The time of each evaluation is quadratic in their number.
MOST_SIZES = 4096
#: The number of columns that the search uses for a workload with different step sizes, and the number that are summed
#: at a time.
_COLUMNS = 128
#: The largest relative increase of the error by rounding. Coefficients get the fewest bits with which rounding stays
#: within it.
_ROUNDING_COST = 2e-5
_FEWEST_BITS = 8
#: The number of roundings to a grid that are tried. The rounding with the norm nearest to 1 is used.
_ROUNDINGS = 1024
_GOLDEN = 0.5 * (1.0 + math.sqrt(5.0))


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload: the gradient sums that training follows, as a matrix A.

    Attributes:
        steps: The number T of steps.
        momentum: The momentum beta in [0, 1).
        step_sizes: The step sizes eta_0, ..., eta_(T-1), up to a common factor; None if all are equal.
    """

    steps: int
    momentum: float = 0.0
    step_sizes: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Strategy:
    """A matrix C and its errors.

    Attributes:
        coefficients: The coefficients c_0, c_1, ... They do not increase, are whole multiples of a power of two, and
            have a norm of at most 1.
        mean: The root mean square of |B_t| over the steps, which is the error in units of s.
        largest: The largest |B_t|.
        least: The smallest value of the objective that the search found, at |c| = 1 and before rounding to the grid.
    """

    coefficients: tuple[float, ...]
    mean: float
    largest: float
    least: float

    def at(self, objective: Objective) -> float:
        """Return the error of this matrix that the objective measures."""
        return self.mean if objective is Objective.MEAN else self.largest


@lru_cache(maxsize=512)
def optimal(workload: Workload, bands: int, objective: Objective = Objective.MEAN) -> Strategy:
    """Return the matrix with this many bands that has the smallest error.

    Args:
        workload: The sums that training follows.
        bands: The number b of bands, at most the number of steps.
        objective: The error that is minimised.

    Guarantees:
        - coefficients_are_exact: each is a whole multiple of 2^-20 or of a larger power of two.
        - norm_is_at_most_one: the sum of the squares of the coefficients, as a rational number, is at most 1.
        - coefficients_do_not_increase.

    Raises:
        Unsupported: If step sizes differ and there are more than `MOST_SIZES` of them or the objective is the largest
            error, or if the series does not settle within two million steps.

    >>> found = optimal(Workload(1000), 2)
    >>> round(found.least, 6), round(found.mean, 3)
    (15.920322, 15.921)
    """
    error = _error_of(workload)
    found = _least(error, start(workload, bands), objective)
    which = 0 if objective is Objective.MEAN else 1
    least = float(np.linalg.norm(found)) * error.mean_and_largest(found)[which]
    if not math.isfinite(least):
        raise Unsupported(
            f"the errors of {workload.steps} steps with {bands} bands converge too slowly to be computed: use "
            "fewer steps, or fewer bands",
            pointer=("iterations",),
        )
    for bits in range(_FEWEST_BITS, MAX_COEFFICIENT_BITS + 1):
        exact = on_grid(found, bits)
        attained = error.mean_and_largest(exact)
        if attained[which] <= least * (1.0 + _ROUNDING_COST):
            break
    return Strategy(tuple(exact.tolist()), *attained, least)


def evaluated(workload: Workload, coefficients: tuple[float, ...]) -> tuple[float, float]:
    """Return the root mean square and the maximum of |B_t| over the steps, in units of s, for any coefficients.

    >>> mean, largest = evaluated(Workload(1000), (1.0,))
    >>> round(mean**2, 9), round(largest**2, 9)
    (500.5, 1000.0)
    """
    return _error_of(workload).mean_and_largest(np.array(coefficients))


def noise_of_steps(coefficients: tuple[float, ...], steps: int) -> tuple[float, float]:
    """Return the standard deviation of the noise that the first and the last step add, in units of s.

    In units of s, the variance of the noise x_t of step t is the sum over i <= t of n_i^2, where n_i are the
    coefficients of 1/c(x).

    >>> noise_of_steps((1.0, 0.5), 2)
    (1.0, 1.118033988749895)
    """
    rows = min(steps, _FIRST_ROWS)
    while True:
        inverse = _filtered(np.array(coefficients), _impulse(rows))
        if rows == steps or np.max(np.abs(inverse[-len(coefficients) :])) <= _SETTLED or rows >= _MOST_ROWS:
            return float(inverse[0]), math.sqrt(float(inverse @ inverse))
        rows = min(steps, 2 * rows)


def start(workload: Workload, bands: int) -> Array:
    """Return the start of the search: the square root of the workload's matrix without step sizes, cut to its first
    bands.

    Its error is 5 to 25 % above the least error. The root of 1 / ((1 - x)(1 - beta x)) is the product of the series of
    (1 - x)^(-1/2) and of (1 - beta x)^(-1/2).
    """
    found = square_root(bands)
    decayed = found * workload.momentum ** np.arange(bands)
    product: Array = np.convolve(found, decayed)[:bands]
    return product


def on_grid(coefficients: Array, bits: int) -> Array:
    """Return coefficients in nearly the same proportions that are whole multiples of 2^-bits and have a norm of at most
    1.

    Several roundings are tried, each at most one and a half units off, and the one whose norm is nearest to 1 is used,
    because noise is planned for a norm of 1. Near the minimum, an error in the proportions has only a quadratic effect.

    >>> on_grid(np.array([0.8, 0.6]), 4).tolist()
    [0.8125, 0.5625]
    """
    unit = math.ldexp(1.0, bits)
    scaled = coefficients * (unit / np.linalg.norm(coefficients))
    # The fractional parts of multiples of irrational numbers form a fixed sequence without a pattern.
    shares = np.modf(np.outer(np.arange(_ROUNDINGS), _GOLDEN * (0.5 + np.arange(scaled.size))))[0]
    rounded = np.rint(scaled + (2.0 * shares - 1.0))
    rounded = np.minimum.accumulate(np.maximum(rounded, 0.0), axis=1)
    squares = np.sum(rounded * rounded, axis=1)  # these integers are below 2^53, so they are exact
    nearest: Array = rounded[np.argmax(np.where(squares <= unit * unit, squares, -1.0))]
    return nearest / unit


class _Error(ABC):
    """The squared error |c|^2 E of a workload as a function of c, with its derivative."""

    @abstractmethod
    def value_and_slope(self, coefficients: Array, objective: Objective) -> tuple[float, Array]:
        """Return |c|^2 E and its derivative with respect to each coefficient, shape (b,)."""

    @abstractmethod
    def mean_and_largest(self, coefficients: Array) -> tuple[float, float]:
        """Return the root mean square and the maximum of |B_t| over the steps; infinity if they are not computed."""


class _ToeplitzError(_Error):
    """The error of a workload without step sizes, whose matrix is Toeplitz."""

    def __init__(self, workload: Workload) -> None:
        self._steps, self._momentum = workload.steps, workload.momentum

    def value_and_slope(self, coefficients: Array, objective: Objective) -> tuple[float, Array]:
        own = self._series(coefficients, _SEARCHED_ROWS)
        second = _filtered(coefficients, own)
        weights, behind = self._weights(objective, own.size)
        weighted = weights * own
        # Converged rows are all equal. Far from the optimum, rows may not have converged; then their mean leads the
        # search back.
        late = np.arange(own.size - max(1, own.size // 4), own.size)
        weighted[late] += behind / late.size * own[late]
        energy = float(weighted @ own)
        met = np.array([weighted[lag:] @ second[: own.size - lag] for lag in range(coefficients.size)])
        square = float(coefficients @ coefficients)
        return square * energy, 2.0 * coefficients * energy - 2.0 * square * met

    def mean_and_largest(self, coefficients: Array) -> tuple[float, float]:
        own = self._series(coefficients, _MOST_ROWS)
        if own.size < self._steps and not self._is_settled(coefficients, own):
            return math.inf, math.inf
        found = []
        for objective in (Objective.MEAN, Objective.MAX):
            weights, behind = self._weights(objective, own.size)
            found.append(math.sqrt(float((weights * own) @ own) + behind * float(own[-1]) ** 2))
        return found[0], found[1]

    def _weights(self, objective: Objective, rows: int) -> tuple[Array, float]:
        """Return the weights w_i of the rows that are computed, and the sum of the weights of the rows after them."""
        left = self._steps - rows
        if objective is Objective.MEAN:
            return 1.0 - np.arange(rows) / self._steps, 0.5 * left * (left + 1) / self._steps
        return np.ones(rows), float(left)

    def _series(self, coefficients: Array, most: int) -> Array:
        """Return the first rows of d: as many as d and u need to converge, or ``most`` rows if they do not converge."""
        rows = min(self._steps, _FIRST_ROWS)
        while True:
            workload = np.ones(rows)
            if self._momentum:
                workload = _filtered(np.array([1.0, -self._momentum]), workload)
            own = _filtered(coefficients, workload)
            if rows == min(self._steps, most) or self._is_settled(coefficients, own):
                return own
            rows = min(self._steps, 2 * rows, most)

    def _is_settled(self, coefficients: Array, own: Array) -> bool:
        """Return whether the last quarter of the rows of d is at the limit of d. Then u has also reached its limit in
        the last row.
        """
        limit = 1.0 / ((1.0 - self._momentum) * float(np.sum(coefficients)))
        return bool(np.max(np.abs(own[-own.size // 4 :] / limit - 1.0)) <= _SETTLED)


class _SizedError(_Error):
    """The error of a workload whose steps have different sizes."""

    def __init__(self, workload: Workload) -> None:
        assert workload.step_sizes is not None, "others are Toeplitz"
        if workload.steps > MOST_SIZES:
            raise Unsupported(
                f"with a schedule of step sizes, iterations must be at most {MOST_SIZES}, got {workload.steps}: "
                "leave the schedule out, or take fewer steps",
                pointer=("step_size_schedule",),
            )
        sizes = np.zeros(2 * workload.steps - 1)
        sizes[: workload.steps] = workload.step_sizes
        self._steps, self._momentum = workload.steps, workload.momentum
        self._sizes = sliding_window_view(sizes, workload.steps)  # [i, k] is eta_(i + k), or 0 after the last step

    def value_and_slope(self, coefficients: Array, objective: Objective) -> tuple[float, Array]:
        if objective is not Objective.MEAN:
            raise Unsupported(
                "the objective cannot be the largest error with a schedule of step sizes, because the step "
                "with the largest error is not known: use the mean",
                pointer=("correlation", "objective"),
            )
        inverse = self._inverse(coefficients)
        places, weights = _columns(self._steps)
        entries = self._entries(inverse, places)
        square, energy = float(coefficients @ coefficients), float(weights @ np.sum(entries * entries, axis=1))
        # The derivative with respect to n_k is 2 sum_i w_i eta_(i+k) sum_(t >= i+k) B_(t, i), where i runs over the
        # columns.
        behind = np.cumsum(entries[:, ::-1], axis=1)[:, ::-1]
        by_inverse = 2.0 * weights @ (self._sizes[places] * behind)
        second = _filtered(coefficients, inverse)
        by_own = np.array([-(by_inverse[lag:] @ second[: self._steps - lag]) for lag in range(coefficients.size)])
        return square * energy, 2.0 * coefficients * energy + square * by_own

    def mean_and_largest(self, coefficients: Array) -> tuple[float, float]:
        inverse, rows = self._inverse(coefficients), np.zeros(self._steps)
        for first in range(0, self._steps, _COLUMNS):
            places = np.arange(first, min(first + _COLUMNS, self._steps))
            for place, column in zip(places, self._entries(inverse, places), strict=True):
                rows[place:] += np.square(column[: self._steps - place])
        return math.sqrt(float(np.mean(rows))), math.sqrt(float(np.max(rows)))

    def _inverse(self, coefficients: Array) -> Array:
        """Return the series n = 1/(c(x)(1 - beta x)), shape (T,)."""
        inverse = _filtered(coefficients, _impulse(self._steps))
        return _filtered(np.array([1.0, -self._momentum]), inverse) if self._momentum else inverse

    def _entries(self, inverse: Array, places: npt.NDArray[np.int64]) -> Array:
        """Return an array with B_(i+k, i) in column k, one row for each i in ``places``; entries after the last step
        are 0.
        """
        entries: Array = np.cumsum(self._sizes[places] * inverse, axis=1)
        entries[np.add.outer(places, np.arange(self._steps)) >= self._steps] = 0.0
        return entries


def _columns(steps: int) -> tuple[npt.NDArray[np.int64], Array]:
    """Return the indices of some of the columns, including the first and the last, and the weight of each in the mean
    over all columns.

    The weights are those of the mean of a function that is linear between two of these columns. They are 1/T if all
    columns are used.
    """
    places = np.unique(np.rint(np.linspace(0.0, steps - 1.0, min(steps, _COLUMNS))).astype(np.int64))
    gaps = np.concatenate([[1], np.diff(places), [1]])
    return places, 0.5 * (gaps[:-1] + gaps[1:]) / steps


def _error_of(workload: Workload) -> _Error:
    return _ToeplitzError(workload) if workload.step_sizes is None else _SizedError(workload)


def _least(error: _Error, begin: Array, objective: Objective) -> Array:
    """Return the coefficients with the smallest error that a quasi-Newton search finds, scaled to c_0 = 1."""
    if begin.size == 1:
        return np.ones(1)

    def logarithm(ratios: Array) -> tuple[float, Array]:
        coefficients = _of_ratios(ratios)
        value, slope = error.value_and_slope(coefficients, objective)
        # dc_j / dv_i is -c_j for j >= i.
        by_ratio = -np.cumsum((coefficients * slope / value)[::-1])[::-1][1:]
        return math.log(value), by_ratio

    ratios = np.maximum(np.log(begin[:-1] / begin[1:]), 0.0)
    found = scipy.optimize.minimize(
        logarithm,
        ratios,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * ratios.size,
        options={"maxiter": 2000, "maxfun": 4000, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9},
    )
    return _of_ratios(found.x)


def _of_ratios(ratios: Array) -> Array:
    """Return the coefficients 1, exp(-v_1), exp(-v_1 - v_2), ... for the ratios v."""
    found: Array = np.exp(-np.concatenate([[0.0], np.cumsum(ratios)]))
    return found


def _filtered(denominator: Array, series: Array) -> Array:
    """Return the quotient of the two power series, whose first coefficients are given."""
    found: Array = scipy.signal.lfilter([1.0], denominator, series)
    return found


def _impulse(rows: int) -> Array:
    found = np.zeros(rows)
    found[0] = 1.0
    return found
