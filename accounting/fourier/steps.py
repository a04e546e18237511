"""A step, as contour integrals need it: its moments at real tilts, and the transform M on a line.

A step's M on the line Re z = c is kept as a finite measure, M(c + it)/M(c) = 1 + sum of w_j (e^(i t l_j) - 1), with
complex weights and losses of nonnegative imaginary part, and a bound of what that leaves out, the same for every t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
#: Unit roundoff.
UNIT = 2.0**-53


def summation(number: int) -> float:
    """Return the error of NumPy's sum of a contiguous row, in units of 2^-53 of the sum of the moduli.

    It adds pairs of halves down to 128 numbers, which it adds in eight strands (docs/concepts/floating_point.md).
    """
    return 24.0 + math.log2(number)


#: The logarithm of a number that M(x)^count e^(-x eps) does not reach at a saddle point.
FAR_ABOVE = 60.0
_SMALLEST = 1e-290


@dataclass(frozen=True, slots=True)
class TiltTable:
    """Moments of a loss at real tilts, all arrays of one shape.

    Attributes:
        tilts: x >= 0.
        moments: K(x) = log M(x), within ``errors`` of the truth.
        means, variances: K'(x), K''(x), estimates: they steer choices and bound nothing.
        errors: Absolute, of ``moments``.
    """

    tilts: Array
    moments: Array
    means: Array
    variances: Array
    errors: Array

    def times(self, count: int) -> TiltTable:
        """Return the table of ``count`` independent steps."""
        return TiltTable(
            self.tilts, count * self.moments, count * self.means, count * self.variances, count * self.errors
        )

    def plus(self, other: TiltTable) -> TiltTable:
        """Return the table of both together; the tilts must agree."""
        return TiltTable(
            self.tilts,
            self.moments + other.moments,
            self.means + other.means,
            self.variances + other.variances,
            self.errors + other.errors,
        )


@dataclass(frozen=True, slots=True)
class StepLine:
    """M(c + it) of one step as a finite measure.

    Attributes:
        weights, losses: w_j and l_j; the imaginary parts of the losses are nonnegative.
        log_moment: log M(c), within ``log_moment_error``.
        relative_error: Bound of the quadrature's error of M(c + it)/M(c), for every t >= 0.
        rounding: Relative rounding error of the sum, in units of sum |w_j| |e^(i t l_j) - 1|.
        mass, first_moment: sum |w_j| and sum |w_j l_j|, which bound that sum by min(2 mass, t first_moment).
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
        """log(M(c + i t_k)/M(c)) at t_k = k spacing, 0 <= k < blocks * width; errors from quadrature and rounding.

        An error e is that of the modulus: it lies within a factor e^(+-e) even where the ratio itself is nearly 0.

        e^(x+y) - 1 = (e^x - 1)(e^y - 1) + (e^x - 1) + (e^y - 1) makes it one matrix product.
        """
        coarse = _expm1_it(np.arange(blocks, dtype=np.float64) * (width * spacing), self.losses)
        fine = _expm1_it(np.arange(width, dtype=np.float64) * spacing, self.losses)
        weighted = fine * self.weights
        change = coarse @ weighted.T + (coarse @ self.weights)[:, None] + weighted.sum(axis=1)
        changes: Complex = change.reshape(-1)
        t = np.arange(blocks * width) * spacing
        size = np.maximum(np.abs(1.0 + changes), _SMALLEST)
        rounding = (self.rounding + self.log_moment_error) * np.minimum(2.0 * self.mass, t * self.first_moment)
        # Rounding of the arguments i t l themselves.
        rounding = rounding + 4.0 * UNIT * t * self.first_moment
        return log1p_complex(changes), np.log1p(self.relative_error / size), np.log1p(rounding / size)

    def log_envelope(self, t: Array) -> Array:
        """Decreasing in t: a bound of log |M(c + it')/M(c)| for every t' >= t."""
        log_weights, rates, extra = self.envelope
        values = np.exp(log_weights[:, None, :] - rates[:, None, :] * t[:, None]).sum(axis=2)
        envelope: Array = np.log(np.minimum(values.min(axis=0) * (1.0 + 1e-13) + extra, 1.0))
        return envelope


class Line(Protocol):
    """M(c + it) of one step, however it is kept; see `StepLine`, which is most of them."""

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
        """The essential supremum of the loss; inf where there is none."""

    def table(self, tilts: Array) -> TiltTable: ...
    def line(self, tilt: float, decay: float) -> Line: ...
    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Return a tilt beyond which M(x)^count e^(-x eps) > e^level: no saddle point lies there. inf if unknown."""


def _expm1_it(t: Array, losses: Complex) -> Complex:
    """e^(i t l) - 1, shape (t, losses), without cancellation."""
    decay = -t[:, None] * losses.imag
    half = 0.5 * t[:, None] * losses.real
    sine, cosine = np.sin(half), np.cos(half)
    shrink = np.expm1(decay)
    result = np.empty(decay.shape, dtype=np.complex128)
    result.real = shrink - 2.0 * sine * sine * (1.0 + shrink)
    result.imag = 2.0 * sine * cosine * (1.0 + shrink)
    return result


def error_of_exponential(logs: Complex, errors: Array) -> Array:
    """Bound how far e^logs moves when its exponent moves by ``errors``, without overflow."""
    moved: Array = np.where(
        errors < 30.0,
        np.exp(logs.real) * np.expm1(np.minimum(errors, 30.0)),
        np.exp(np.minimum(logs.real + errors, 700.0)),
    )
    return moved


def log1p_complex(y: Complex) -> Complex:
    """log(1 + y), relatively accurate for small y, which NumPy's is not."""
    real, imaginary = y.real, y.imag
    result = np.empty(y.shape, dtype=np.complex128)
    square = real * (2.0 + real) + imaginary * imaginary
    near = np.abs(square) < 0.5
    far = np.log(np.maximum(np.hypot(1.0 + real, imaginary), _SMALLEST))
    result.real = np.where(near, 0.5 * np.log1p(np.where(near, square, 0.0)), far)
    result.imag = np.arctan2(imaginary, 1.0 + real)
    return result


def log_kernel(tilts: Array) -> Array:
    """log B(x), B(x) = x^x / (1 + x)^(1 + x) = sup over y > 0 of e^(-xy) (1 - e^-y); B(0) = 1."""
    positive = np.maximum(tilts, 1e-300)
    kernel: Array = -positive * np.log1p(1.0 / positive) - np.log1p(positive)
    return kernel
