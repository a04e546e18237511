"""This module defines a step in the form that contour integrals need: its moments at real tilts, and the transform M on
a line.

On the line Re z = c, a step's M is kept as a finite measure: M(c + it)/M(c) = 1 + sum of w_j (e^(i t l_j) - 1). The
weights w_j and the losses l_j are complex, and the losses have nonnegative imaginary parts. One bound of the error
holds for every t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.effort import spend

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
#: Unit roundoff.
UNIT = 2.0**-53
#: The rounding of a term of a line's sum, in units of the unit roundoff. It covers the exponentials and three products
#: of up to four times the term's size. Summing n nodes in any order adds n more units, in the real and in the imaginary
#: part.
TERM_ROUNDING = 64.0
#: The logarithm of a number that M(x)^count e^(-x eps) never reaches at a saddle point.
FAR_ABOVE = 60.0
#: The rows of a `TiltTable`.
TILTS, MOMENTS, MEANS, VARIANCES, ERRORS, OF_LINES = range(6)
_SMALLEST = 1e-290
#: A part of a weight below e^-45 times the weight is negligible beside the weight's rounding.
_DEAD = 45.0


@dataclass(frozen=True, slots=True)
class TiltTable:
    """Moments of a loss at real tilts.

    Attributes:
        rows: One row for each property below, and a last row: the part of the errors that lines at these tilts share,
            because the law itself is known only approximately. The compiled loops read rows by their numbers.
    """

    rows: Array

    @classmethod
    def of(
        cls, tilts: Array, moments: Array, means: Array, variances: Array, errors: Array, of_lines: float | Array = 0.0
    ) -> TiltTable:
        """Make a table of these rows."""
        rows = np.empty((6, tilts.size))
        rows[OF_LINES] = of_lines
        rows[TILTS], rows[MOMENTS], rows[MEANS], rows[VARIANCES], rows[ERRORS] = (
            tilts,
            moments,
            means,
            variances,
            errors,
        )
        return cls(rows)

    @property
    def tilts(self) -> Array:
        """Return the tilts x >= 0."""
        row: Array = self.rows[TILTS]
        return row

    @property
    def moments(self) -> Array:
        """K(x) = log M(x), within `errors` of the truth."""
        row: Array = self.rows[MOMENTS]
        return row

    @property
    def means(self) -> Array:
        """An estimate of K'(x). It only steers choices and is used in no bound."""
        row: Array = self.rows[MEANS]
        return row

    @property
    def variances(self) -> Array:
        """An estimate of K''(x). It only steers choices and is used in no bound."""
        row: Array = self.rows[VARIANCES]
        return row

    @property
    def errors(self) -> Array:
        """The absolute errors of `moments`."""
        row: Array = self.rows[ERRORS]
        return row

    @property
    def log_bounds(self) -> Array:
        """The log of M(x) B(x) at each tilt, rounded up. B is defined in `log_kernel_at`."""
        return _log_bounds(self.rows)

    def times(self, count: int) -> TiltTable:
        """Return the table of ``count`` independent steps."""
        rows = self.rows * count
        rows[TILTS] = self.rows[TILTS]
        return TiltTable(rows)

    def where(self, chosen: NDArray[np.bool_]) -> TiltTable:
        """Return the table at some of its tilts."""
        return TiltTable(self.rows[:, chosen])

    def plus(self, other: TiltTable) -> TiltTable:
        """Return the table of the steps of both tables together; their tilts must agree."""
        rows = self.rows + other.rows
        rows[TILTS] = self.rows[TILTS]
        return TiltTable(rows)


@dataclass(frozen=True, slots=True)
class StepLine:
    """The transform M(c + it) of one step as a finite measure.

    Attributes:
        weights, losses: w_j and l_j; the imaginary parts of the losses are nonnegative.
        log_moment: log M(c), within ``log_moment_error``.
        relative_error: Bound of the quadrature's error of M(c + it)/M(c), for every t >= 0.
        rounding: Relative rounding error of the sum, in units of sum |w_j| |e^(i t l_j) - 1|.
        mass, first_moment: sum |w_j| and sum |w_j l_j|. The sum over j of |w_j| |e^(i t l_j) - 1| is at most min(2
            mass, t first_moment).
        envelope: (log weights, rates, extra) of several lines; see `log_envelope`.
    """

    weights: Complex
    losses: Complex
    log_moment: float
    log_moment_error: float
    relative_error: float
    rounding: float
    mass: float
    first_moment: float
    envelope: tuple[Array, Array, float]

    def log_ratios(self, blocks: int, width: int, spacing: float) -> tuple[Complex, Array, Array]:
        """Return log(M(c + i t_k)/M(c)) at t_k = k spacing, 0 <= k < blocks * width; errors from quadrature and
        rounding.

        An error e means that the modulus is right within a factor e^(+-e), even where the ratio itself is nearly 0.

        By e^(x+y) - 1 = (e^x - 1)(e^y - 1) + (e^x - 1) + (e^y - 1), the computation is one matrix product.
        """
        spend(_operations(self.losses, blocks, width, spacing))
        rounding, size = self.rounding + self.log_moment_error, blocks * width
        logs, quadrature, floating = np.empty(size, np.complex128), np.empty(size), np.empty(size)
        _log_ratios(
            self.weights,
            self.losses,
            (blocks, width),
            spacing,
            (self.relative_error, rounding),
            (2.0 * self.mass, self.first_moment),
            (logs, quadrature, floating),
        )
        return logs, quadrature, floating

    def moduli(self, t: Array) -> Array:
        """Return |M(c + it)/M(c)| at each t, up to its errors."""
        return _moduli(t, self.weights, self.losses)

    def log_envelope(self, t: Array) -> Array:
        """Return a bound, decreasing in t, of log |M(c + it')/M(c)| for every t' >= t."""
        return _log_envelope(t, *self.envelope)


class Line(Protocol):
    """The transform M(c + it) of one step in any representation; most are a `StepLine`."""

    @property
    def log_moment(self) -> float: ...
    @property
    def log_moment_error(self) -> float: ...
    def log_ratios(self, blocks: int, width: int, spacing: float) -> tuple[Complex, Array, Array]: ...
    def log_envelope(self, t: Array) -> Array: ...


class Step(Protocol):
    """One step's privacy loss in one direction."""

    @property
    def participation(self) -> float:
        """Probability that one record takes part in the step."""

    @property
    def largest_loss(self) -> float:
        """The essential supremum of the loss; inf if there is none."""

    def table(self, tilts: Array) -> TiltTable: ...
    def line(self, tilt: float, decay: float) -> Line: ...
    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Return a tilt beyond which M(x)^count e^(-x eps) > e^level, so that no saddle point lies there; inf if
        unknown."""


@compiled
def _log_ratios(
    weights: Complex,
    losses: Complex,
    shape: tuple[int, int],
    spacing: float,
    relative: tuple[float, float],
    bounds: tuple[float, float],
    found: tuple[Complex, Array, Array],
) -> None:
    """Fill in `StepLine.log_ratios` on ``shape`` blocks times points.

    Args:
        relative: The errors from quadrature and from rounding.
        bounds: The sum is below the smaller of bounds[0] and t bounds[1].
    """
    blocks, width = shape
    size, nodes = blocks * width, weights.size
    real, imaginary = np.zeros(size), np.zeros(size)
    fine_r, fine_i = np.empty(width), np.empty(width)
    for j in range(nodes):
        w, loss = weights[j], losses[j]
        for k in range(width):
            fine = _expm1_it(k * spacing, loss)
            fine_r[k] = w.real * fine.real - w.imag * fine.imag
            fine_i[k] = w.real * fine.imag + w.imag * fine.real
        for block in range(blocks):
            if loss.imag * (block * (width * spacing)) >= _DEAD:
                # From here on, e^(itl) is negligible, so e^(itl) - 1 counts as -1.
                for k in range(block * width, size):
                    real[k] -= w.real
                    imaginary[k] -= w.imag
                break
            coarse = _expm1_it(block * (width * spacing), loss)
            own_r, own_i = w.real * coarse.real - w.imag * coarse.imag, w.real * coarse.imag + w.imag * coarse.real
            start, coarse_r, coarse_i = block * width, coarse.real, coarse.imag
            for k in range(width):
                real[start + k] += coarse_r * fine_r[k] - coarse_i * fine_i[k] + own_r + fine_r[k]
                imaginary[start + k] += coarse_r * fine_i[k] + coarse_i * fine_r[k] + own_i + fine_i[k]
    logs, inexact, floating = found
    for k in range(size):
        t = k * spacing
        modulus = max(math.hypot(1.0 + real[k], imaginary[k]), _SMALLEST)
        # The second term is the rounding of the arguments i t l themselves.
        rounding = relative[1] * min(bounds[0], t * bounds[1]) + 4.0 * UNIT * t * bounds[1]
        logs[k] = log1p_complex_at(complex(real[k], imaginary[k]))
        inexact[k] = math.log1p(relative[0] / modulus)
        # The two errors of the logarithm together are log(1 + (both errors) / modulus).
        floating[k] = math.log1p(rounding / (modulus + relative[0]))


@compiled
def _operations(losses: Complex, blocks: int, width: int, spacing: float) -> int:
    """Return the number of operations of `_log_ratios`. Terms in which e^(itl) is negligible cost a quarter of the
    others.
    """
    live = 0.0
    for j in range(losses.size):
        live += min(_DEAD / max(losses[j].imag * (width * spacing), 1e-300) + 1.0, blocks)
    return width * int(0.75 * live + 0.25 * blocks * losses.size)


@compiled
def _moduli(t: Array, weights: Complex, losses: Complex) -> Array:
    moduli = np.empty(t.size)
    for k in range(t.size):
        total = complex(1.0, 0.0)
        for j in range(weights.size):
            total += weights[j] * _expm1_it(t[k], losses[j])
        moduli[k] = abs(total)
    return moduli


@compiled
def _log_envelope(t: Array, log_weights: Array, rates: Array, extra: float) -> Array:
    """Compute `StepLine.log_envelope` from the weights and rates of its lines, one row for each line."""
    envelope = np.empty(t.size)
    for i in range(t.size):
        least = 1.0
        for row in range(log_weights.shape[0]):
            total = 0.0
            for j in range(log_weights.shape[1]):
                total += math.exp(log_weights[row, j] - rates[row, j] * t[i])
                if total >= least:
                    break
            least = min(least, total * (1.0 + 1e-11))
        envelope[i] = math.log(min(least + extra, 1.0))
    return envelope


@compiled
def _expm1_it(t: float, loss: complex) -> complex:
    """Return e^(i t l) - 1, without cancellation."""
    shrink = math.expm1(-t * loss.imag)
    half = 0.5 * t * loss.real
    sine, cosine = math.sin(half), math.cos(half)
    return complex(shrink - 2.0 * sine * sine * (1.0 + shrink), 2.0 * sine * cosine * (1.0 + shrink))


@compiled
def error_of_exponential_at(log: float, error: float) -> float:
    """Bound the change of e^log if its exponent changes by ``error``, without overflow."""
    if error < 30.0:
        return math.exp(log) * math.expm1(error)
    return math.exp(min(log + error, 700.0))


@compiled
def error_of_exponential(logs: Complex, errors: Array) -> Array:
    """Compute `error_of_exponential_at` for each of ``logs``."""
    moved = np.empty(errors.size)
    for k in range(errors.size):
        moved[k] = error_of_exponential_at(logs[k].real, errors[k])
    return moved


@compiled
def log1p_complex_at(y: complex) -> complex:
    """Return log(1 + y), relatively accurate for small y, which NumPy's is not."""
    square = y.real * (2.0 + y.real) + y.imag * y.imag
    if abs(square) < 0.5:
        modulus = 0.5 * math.log1p(square)
    else:
        modulus = math.log(max(math.hypot(1.0 + y.real, y.imag), _SMALLEST))
    return complex(modulus, math.atan2(y.imag, 1.0 + y.real))


def log1p_complex(y: Complex) -> Complex:
    """Compute `log1p_complex_at` for each of ``y``."""
    return _log1p_of(y.reshape(-1)).reshape(y.shape)


@compiled
def _log1p_of(y: Complex) -> Complex:
    logs = np.empty(y.size, np.complex128)
    for k in range(y.size):
        logs[k] = log1p_complex_at(y[k])
    return logs


@compiled
def log_kernel_at(tilt: float) -> float:
    """Return log B(x), B(x) = x^x / (1 + x)^(1 + x) = sup over y > 0 of e^(-xy) (1 - e^-y); B(0) = 1."""
    return -tilt * math.log1p(1.0 / tilt) - math.log1p(tilt) if tilt > 0.0 else 0.0


@compiled
def log_kernel(tilts: Array) -> Array:
    """Compute `log_kernel_at` for each tilt."""
    kernel = np.empty(tilts.size)
    for j in range(tilts.size):
        kernel[j] = log_kernel_at(tilts[j])
    return kernel


@compiled
def _log_bounds(rows: Array) -> Array:
    """Compute `TiltTable.log_bounds`."""
    bounds = np.empty(rows.shape[1])
    for j in range(bounds.size):
        bounds[j] = rows[MOMENTS, j] + rows[ERRORS, j] + log_kernel_at(rows[TILTS, j])
    return bounds


@compiled
def log_chernoff(rows: Array, epsilon: float) -> float:
    """Return log of the smallest M(x) B(x) e^(-x eps) among the tilts of a table, rounded up; inf if none is known."""
    least = math.inf
    for j in range(rows.shape[1]):
        shift = rows[TILTS, j] * epsilon
        log = rows[MOMENTS, j] + rows[ERRORS, j] + log_kernel_at(rows[TILTS, j]) - shift
        least = min(least, log + 8.0 * UNIT * (abs(rows[MOMENTS, j]) + shift))
    return least
