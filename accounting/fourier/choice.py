"""This module chooses the line to integrate on: its tilt, its period and its number of points.

These choices cannot break soundness: every bound is evaluated for the line that was chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial, reduce

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.contour import Contour, gaussian_table, power_values, truncation_point
from accounting.fourier.steps import (
    ERRORS,
    MEANS,
    MOMENTS,
    OF_LINES,
    TILTS,
    VARIANCES,
    Line,
    Step,
    TiltTable,
    log_kernel_at,
)

Array = NDArray[np.float64]
Lines = dict[float, list[tuple[Line, int]]]

#: The log of the fraction of delta below which aliases and truncation are kept.
_LOG_TOLERANCE = math.log(2e-9)
#: The log of the largest allowed ratio of a tilt's amplification, M(c) e^(-c eps) / delta, to the smallest
#: amplification.
_LOG_AMPLIFICATION = math.log(1e6)
#: A line whose error exceeds the first number is used only if the amplified error stays below e to the second number,
#: 1e-8.
_INEXACT, _LOG_AMPLIFIED = 1e-12, math.log(1e-8)
#: The tabulated tilts, divided by the largest one. They are close to each other where saddle points usually are.
_TILTS = np.concatenate([1.3 ** -np.arange(18.0), 1.3**-17 * 1.8 ** -np.arange(1.0, 11.0)])
_TWELFTHS = np.linspace(0.0, 1.0, 12)
_MAX_TILT = 6e7
#: If a line takes too many points, the next tilt is at most this share of its tilt.
_SHARES = (0.6, 0.5, 0.5)


@dataclass(frozen=True)
class DirectedComposition:
    """One direction of a composition, ready for the contour.

    Attributes:
        steps: Steps with a line, and their counts.
        mu_squared: The mu squared of all full-batch Gaussians together.
        left_out: P-mass that the cuts of all steps leave out together. It bounds how far delta is above the delta of
            the rest.
    """

    steps: tuple[tuple[Step, int], ...]
    mu_squared: float
    left_out: float = 0.0

    def table(self, tilts: Array) -> TiltTable:
        tables = [step.table(tilts).times(count) for step, count in self.steps]
        if self.mu_squared > 0.0 or not tables:
            tables.append(gaussian_table(self.mu_squared, tilts))
        return reduce(TiltTable.plus, tables)

    @cached_property
    def moments(self) -> tuple[float, float]:
        """The mean and the variance of the loss under P."""
        start = self.table(np.array([1e-9]))
        return float(start.means[0]), float(start.variances[0])

    @property
    def largest_loss(self) -> float:
        """The essential supremum of the loss, rounded up; inf if there is none."""
        if self.mu_squared > 0.0:
            return math.inf
        return math.fsum(count * step.largest_loss for step, count in self.steps) * (1.0 + 1e-14)

    def table_at(self, epsilon: float) -> TiltTable:
        """Return moments at tilts around the saddle point of delta(eps)."""
        mean, variance = self.moments
        gap = epsilon - mean
        # For a normal loss this is the saddle point. Heavier tails only make the saddle point smaller.
        normal = (gap + math.sqrt(gap * gap + 8.0 * variance)) / max(2.0 * variance, 1e-300)
        bounds = [2.0 * step.largest_tilt(count, epsilon) for step, count in self.steps]
        return self.table(min([4.0 * normal, _MAX_TILT, *bounds]) * _TILTS)

    def table_for(self, delta: float) -> TiltTable:
        """Return moments at tilts around the saddle point of epsilon(delta)."""
        mean, variance = self.moments
        return self.table_at(max(0.0, mean + math.sqrt(variance * 2.0 * -math.log(delta))))


@dataclass(frozen=True, slots=True)
class LineChoice:
    """The line to integrate on.

    Attributes:
        tilt: The tilt c.
        period: The period P.
        log_delta: Estimate of log delta.
        log_amplification: log of M(c) e^(-c eps) over delta.
        decay: The approximate value of Im z at which |M| has fallen far enough to end the sum.
    """

    tilt: float
    period: float
    log_delta: float
    log_amplification: float
    decay: float

    @property
    def log_tolerance(self) -> float:
        """Return the log of the part of the sum that may be left out, relative to D(c) e^(-c eps). D is the
        transform.
        """
        return _LOG_TOLERANCE - self.log_amplification


def choose_line(
    table: TiltTable, epsilon: float, log_delta: float | None = None, largest: float = math.inf
) -> LineChoice:
    """Return the tilt with the fewest points among those whose amplification is harmless.

    Args:
        table: log D at tilts in any order; 0 may be among them.
        log_delta: The logarithm of delta, if it is known better than by the saddle-point estimate.
        largest: An upper bound of the tilt, if the table has a tilt below it.
    """
    known = math.nan if log_delta is None else log_delta
    return LineChoice(*_choose(table.rows, epsilon, known, largest))


@compiled
def _choose(rows: Array, epsilon: float, log_delta: float, largest: float) -> tuple[float, float, float, float, float]:
    """Choose a line as `choose_line` does, and return the fields of a `LineChoice`. ``log_delta`` is NaN if it is
    not known.
    """
    tilts, moments, variances, errors = rows[TILTS], rows[MOMENTS], rows[VARIANCES], rows[ERRORS]
    size = tilts.size
    exponents, logs = np.empty(size), np.empty(size)
    least, best = math.inf, 0
    for j in range(size):
        # A moment whose window was too narrow for the tilt is not known, and counts as large.
        exponents[j] = moments[j] + min(errors[j], 1e6) - tilts[j] * epsilon
        logs[j] = exponents[j] - math.log(tilts[j]) - math.log1p(tilts[j]) if tilts[j] > 0.0 else math.inf
        if logs[j] < least:
            least, best = logs[j], j
    if math.isnan(log_delta):
        log_delta = min(_saddle(tilts[best], moments[best], variances[best], epsilon), 0.0)
    needed, allowed = np.empty(size), np.empty(size)
    for j in range(size):
        above = exponents[j] + log_kernel_at(tilts[j]) - (_LOG_TOLERANCE + log_delta)
        lasting = rows[OF_LINES, j]
        allowed[j] = max(_LOG_AMPLIFIED - math.log(lasting), 0.7) if lasting > _INEXACT else _LOG_AMPLIFICATION
        needed[j] = above + math.log1p(math.exp(-above)) if above > 0.0 else math.log1p(math.exp(above))
    reachable, lowest = False, math.inf
    for j in range(size):
        if logs[j] <= least + allowed[j]:
            reachable = reachable or tilts[j] <= largest
            lowest = min(lowest, exponents[j] - log_delta)
    choice, fewest = (tilts[best], math.inf, log_delta, exponents[best] - log_delta, math.inf), math.inf
    for j in range(size):
        if not logs[j] <= least + allowed[j] or (reachable and tilts[j] > largest):
            continue
        period, amplification = _period(tilts, needed, j), exponents[j] - log_delta
        decay = math.sqrt(2.0 * max(amplification - _LOG_TOLERANCE, 1.0) / max(variances[j], 1e-300))
        # A larger amplification means more rounding, so it is taken only if it needs fewer points.
        points = period * decay * (1.0 + 0.02 * (amplification - lowest))
        if points < fewest:
            choice, fewest = (tilts[j], period, log_delta, amplification, decay), points
    return choice


@compiled
def _period(tilts: Array, needed: Array, at: int) -> float:
    """Return the shortest period of a line at one tilt whose aliases are within the tolerance.

    Args:
        needed: At each tilt, the log of the ratio of an alias's bound to the tolerance.
    """
    right, left = math.inf, math.inf
    for k in range(tilts.size):
        if tilts[k] > tilts[at]:
            right = min(right, needed[k] / (tilts[k] - tilts[at]))
        elif tilts[k] < tilts[at]:
            left = min(left, needed[k] / (tilts[at] - tilts[k]))
    return max(left, right)


def guess_epsilon(composition: DirectedComposition, delta: float) -> tuple[float, TiltTable]:
    """Return the saddle-point estimate of epsilon(delta), refined where epsilon changes fast with the tilt.

    Returns:
        The estimate, and moments at tilts around its saddle point.
    """
    wide = table = composition.table_for(delta)
    target = math.log(delta)
    epsilon = 0.0
    for _ in range(5):
        epsilon, gap, largest, smallest = _interpolate(table.rows, target)
        if gap < 0.3 * max(abs(epsilon), 1e-6):
            break
        table = composition.table(largest * (smallest / largest) ** _TWELFTHS)
    return max(0.0, epsilon), wide


@compiled
def _interpolate(rows: Array, target: float) -> tuple[float, float, float, float]:
    """Return the epsilon whose saddle-point estimate of log delta is ``target``, between two tilts of a table.

    Returns:
        epsilon; the distance between the epsilons of the two tilts, 0 if the table ends; the larger and the smaller
        tilt.
    """
    tilts, moments, means, variances = rows[TILTS], rows[MOMENTS], rows[MEANS], rows[VARIANCES]
    logs, epsilons = np.full(tilts.size, math.nan), np.empty(tilts.size)
    above, below = -1, -1
    for j in range(tilts.size):
        epsilons[j] = means[j] - 1.0 / tilts[j] - 1.0 / (1.0 + tilts[j])
        logs[j] = _saddle(tilts[j], moments[j], variances[j], epsilons[j])
        if not math.isfinite(logs[j]) or not math.isfinite(epsilons[j]):
            continue
        if logs[j] < target:
            below = j if below < 0 or logs[j] > logs[below] else below
        else:
            above = j if above < 0 or logs[j] < logs[above] else above
    if above < 0 or below < 0:
        end = max(above, below)
        return (epsilons[end] if end >= 0 else 0.0), 0.0, math.nan, math.nan
    share = (target - logs[below]) / (logs[above] - logs[below])
    epsilon = epsilons[below] + share * (epsilons[above] - epsilons[below])
    first, second = tilts[above], tilts[below]
    return epsilon, epsilons[below] - epsilons[above], max(first, second), min(first, second)


@compiled
def _saddle(tilt: float, moment: float, variance: float, epsilon: float) -> float:
    """Return the saddle-point estimate of log delta."""
    curvature = variance + 1.0 / (tilt * tilt) + 1.0 / ((1.0 + tilt) * (1.0 + tilt))
    return moment - tilt * epsilon - math.log(tilt) - math.log1p(tilt) - 0.5 * math.log(2.0 * math.pi * curvature)


def contour_at(
    composition: DirectedComposition,
    table: TiltTable,
    epsilon: float,
    max_points: int,
    *,
    log_delta: float | None = None,
    window: float = 0.0,
    known: Lines | None = None,
) -> Contour | None:
    """Return the line for deltas near ``epsilon``; None if it would need more than ``max_points``.

    Args:
        known: The steps' lines by their tilts, to use and to extend. Lines without a window serve any window.
    """
    gaussian = composition.mu_squared + window * window
    if window > 0.0:
        table = table.plus(gaussian_table(window * window, table.tilts))
    known, largest, fewest = {} if known is None else known, math.inf, math.inf
    for share in _SHARES if window == 0.0 else _SHARES[:1]:
        choice = choose_line(table, epsilon, log_delta, largest)
        if choice.tilt > largest:
            break
        if choice.tilt not in known:
            known[choice.tilt] = [(step.line(choice.tilt, choice.decay), count) for step, count in composition.steps]
        lines = known[choice.tilt]
        last = truncation_point(partial(_log_envelope, lines, gaussian), choice.decay, choice.log_tolerance)
        points = last * choice.period / (2.0 * math.pi)
        if points <= max_points and choice.period > 0.0:
            values = power_values(lines, gaussian, choice.tilt, choice.period, max(8, math.ceil(points) + 1))
            return Contour(choice.tilt, choice.period, values, window, table, composition.left_out)
        # Where moments explode, the estimate of the decay is wrong; a smaller tilt may take fewer points.
        if points > fewest:
            break
        fewest, largest = points, share * choice.tilt
    return None


def _log_envelope(lines: list[tuple[Line, int]], gaussian: float, t: Array) -> Array:
    total = -0.5 * gaussian * t * t
    for line, count in lines:
        total = total + count * line.log_envelope(t)
    return total
