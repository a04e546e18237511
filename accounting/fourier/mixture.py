"""This module computes the transform M of steps whose branch is seen: the weighted sum of the branches' transforms.

M(c + it)/M(c) = sum of v_i M_i(c + it)/M_i(c) with v_i = w_i M_i(c)/M(c). Differences from 1 are added up, so no digits
are lost if all ratios are close to 1. A full-batch Gaussian among the branches is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.contour import gaussian_table
from accounting.fourier.pairs import steepest_tilt
from accounting.fourier.steps import (
    FAR_ABOVE,
    UNIT,
    Complex,
    Line,
    Step,
    TiltTable,
    error_of_exponential,
    log1p_complex,
)

Array = NDArray[np.float64]
_LARGE = 300.0
_SMALLEST = 1e-290


@dataclass(frozen=True, slots=True)
class GaussianStep:
    """A full batch of Gaussian noise as one branch of several; M(z) = e^(mu^2 z (z + 1) / 2)."""

    mu: float

    participation = 1.0
    largest_loss = math.inf

    def table(self, tilts: Array) -> TiltTable:
        return gaussian_table(self.mu * self.mu, tilts)

    def line(self, tilt: float, decay: float) -> GaussianLine:
        return GaussianLine(self.mu * self.mu, tilt)

    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Return the tilt x at which count mu^2 x (x + 1) / 2 - x eps = level."""
        return steepest_tilt(0.0, 0.5 * self.mu * self.mu, count, epsilon, level)


@dataclass(frozen=True, slots=True)
class GaussianLine:
    """The line of a `GaussianStep` at Re z = ``tilt``, without a quadrature."""

    mu_squared: float
    tilt: float

    @property
    def log_moment(self) -> float:
        return 0.5 * self.mu_squared * self.tilt * (self.tilt + 1.0)

    @property
    def log_moment_error(self) -> float:
        return 8.0 * UNIT * self.log_moment

    def log_ratios(self, blocks: int, width: int, spacing: float) -> tuple[Complex, Array, Array]:
        t = np.arange(blocks * width, dtype=np.float64) * spacing
        logs: Complex = (0.5 * self.mu_squared * (1j * t * (2.0 * self.tilt + 1.0) - t * t)).astype(np.complex128)
        return logs, np.zeros(t.size), 8.0 * UNIT * np.abs(logs)

    def log_envelope(self, t: Array) -> Array:
        envelope: Array = -0.5 * self.mu_squared * t * t * (1.0 - 8.0 * UNIT)
        return envelope


@dataclass(frozen=True, slots=True)
class MixtureLine:
    """The line of a mixture, made from the lines of its branches.

    Attributes:
        shares: The shares v_i, each within ``share_error`` relatively.
        lines: The lines of the branches.
        left_out: The share of the branches without a line. Only its size is known, and it is not assumed to fall along
            the line.
        log_moment: log M(c), within ``log_moment_error``.
    """

    shares: tuple[float, ...]
    share_error: float
    lines: tuple[Line, ...]
    left_out: float
    log_moment: float
    log_moment_error: float

    def log_ratios(self, blocks: int, width: int, spacing: float) -> tuple[Complex, Array, Array]:
        """Return the log-ratios and their errors by quadrature and by rounding (`steps.StepLine.log_ratios`)."""
        size = blocks * width
        change = np.zeros(size, dtype=np.complex128)
        quadrature, rounding = np.full(size, 2.0 * self.left_out), np.zeros(size)
        for share, line in zip(self.shares, self.lines, strict=True):
            logs, inexact, floating = line.log_ratios(blocks, width, spacing)
            part = np.expm1(logs)
            change += share * part
            wrong = error_of_exponential(logs, inexact)
            quadrature += share * wrong
            rounding += share * (error_of_exponential(logs, inexact + floating) - wrong)
            rounding += share * (self.share_error + UNIT * (8.0 + len(self.lines))) * np.abs(part)
        modulus = np.maximum(np.abs(1.0 + change), _SMALLEST)
        return log1p_complex(change), np.log1p(quadrature / modulus), np.log1p(rounding / modulus)

    def log_envelope(self, t: Array) -> Array:
        """Return log of the sum of v_i times the branches' envelopes, each of which falls."""
        logs = [math.log(share) + line.log_envelope(t) for share, line in zip(self.shares, self.lines, strict=True)]
        if self.left_out > 0.0:
            logs.append(np.full(t.shape, math.log(self.left_out)))
        envelope: Array = np.minimum(np.logaddexp.reduce(logs) + self.share_error + 1e-13, 0.0)
        return envelope


@dataclass(frozen=True, slots=True)
class MixtureStep:
    """One step, as a `steps.Step`.

    Attributes:
        weights: Probabilities of the branches.
        steps: The steps of the branches.
        negligible: A branch gets no line if its share of M is below this number.

    Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
    """

    weights: tuple[float, ...]
    steps: tuple[Step, ...]
    negligible: float

    @property
    def participation(self) -> float:
        return math.fsum(w * step.participation for w, step in zip(self.weights, self.steps, strict=True))

    @property
    def largest_loss(self) -> float:
        return max(step.largest_loss for step in self.steps)

    def table(self, tilts: Array) -> TiltTable:
        """Tabulate the moments; inf if the moment of a branch is unknown.

        Moments close to 1 are computed from the branches' differences from 1.
        """
        tables = [step.table(tilts) for step in self.steps]
        parts, means, variances, errors = (
            np.array([getattr(table, name) for table in tables]) for name in ("moments", "means", "variances", "errors")
        )
        known = np.isfinite(parts).all(axis=0)
        parts, means, variances, errors = (np.where(known, each, 0.0) for each in (parts, means, variances, errors))
        moments, shares, error = self._together(parts, errors)
        mean = (shares * means).sum(axis=0)
        variance = np.maximum((shares * (variances + means * means)).sum(axis=0) - mean * mean, 0.0)
        moments, mean, variance, error = (np.where(known, each, math.inf) for each in (moments, mean, variance, error))
        return TiltTable.of(tilts, moments, mean, variance, error)

    def _together(self, parts: Array, errors: Array) -> tuple[Array, Array, Array]:
        """Return log M, the branches' shares of M, and the error of log M, from each branch's log M_i and its error."""
        weights = np.array(self.weights)[:, None]
        small = np.log1p((weights * np.expm1(np.minimum(parts, _LARGE))).sum(axis=0))
        large = np.logaddexp.reduce(np.log(weights) + parts, axis=0)
        moments: Array = np.where(parts.max(axis=0) > _LARGE, large, small)
        shares: Array = weights * np.exp(parts - moments)
        # Moments are nonnegative, so the weighted sum is relatively as accurate as its terms.
        error: Array = (shares * np.expm1(np.minimum(errors, _LARGE))).sum(axis=0)
        size = np.abs(moments)
        return moments, shares, error + UNIT * (16.0 * size + 4.0 * (len(parts) + 4.0) * np.minimum(size, 1.0))

    def line(self, tilt: float, decay: float) -> MixtureLine:
        tables = [step.table(np.array([tilt])) for step in self.steps]
        parts, part_errors = (np.array([getattr(table, name) for table in tables]) for name in ("moments", "errors"))
        _, shares, _ = self._together(parts, part_errors)
        kept = np.flatnonzero(shares[:, 0] * np.exp(2.0 * part_errors[:, 0]) > self.negligible).tolist()
        lines = tuple(self.steps[place].line(tilt, decay) for place in kept)
        parts[kept, 0], part_errors[kept, 0] = [line.log_moment for line in lines], [e.log_moment_error for e in lines]
        moments, shares, errors = self._together(parts, part_errors)
        log_moment, error = float(moments[0]), float(errors[0])
        # The relative error of a share is that of the moments from which it is computed.
        inexact = float(part_errors[kept].max()) + error
        inexact += UNIT * (8.0 + 2.0 * float(np.abs(parts).max()) + 2.0 * abs(log_moment))
        share_error = math.expm1(min(2.0 * inexact, _LARGE))
        # The moments of branches without a line have only the accuracy of a table.
        left_out = np.delete(shares[:, 0], kept).sum() * math.exp(min(2.0 * float(part_errors.max()), _LARGE))
        return MixtureLine(tuple(shares[kept, 0].tolist()), share_error, lines, float(left_out), log_moment, error)

    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Bound the tilt by each branch alone, because M >= w_i M_i, and M >= 1 + w_i (M_i - 1) if each M_i >= 1."""
        tilts = []
        for weight, step in zip(self.weights, self.steps, strict=True):
            if level < count * _LARGE:
                # The bound applies where x eps is at most the level.
                tilt = step.largest_tilt(1, 0.0, math.log1p(math.expm1(2.0 * level / count) / weight))
                if tilt * epsilon <= level:
                    tilts.append(tilt)
            tilts.append(step.largest_tilt(count, epsilon, level - count * math.log(weight)))
        return min(tilts)
