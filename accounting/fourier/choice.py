"""The choice of a line to integrate on: its tilt, its period and its number of points.

These choices cannot break soundness: every bound is evaluated for the line that was chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.contour import Contour, gaussian_table, power_values, truncation_point
from accounting.fourier.steps import Line, Step, TiltTable, log_kernel

Array = NDArray[np.float64]
Lines = dict[float, list[tuple[Line, int]]]

#: Aliases and truncation are kept below this fraction of delta.
_LOG_TOLERANCE = math.log(2e-9)
#: log of the largest amplification M(c) e^(-c eps) / delta over the smallest.
_LOG_AMPLIFICATION = math.log(1e6)
_TILTS = 1.3 ** -np.arange(40.0)
_MAX_TILT = 6e7
#: Of the tilt of a line that takes too many points, the largest that is tried after it.
_SHARES = (0.6, 0.5, 0.5)


@dataclass(frozen=True)
class DirectedComposition:
    """One direction of a composition, ready for the contour.

    Attributes:
        steps: Steps with a line, and their counts.
        mu_squared: Of all full-batch Gaussians together.
    """

    steps: tuple[tuple[Step, int], ...]
    mu_squared: float

    def table(self, tilts: Array) -> TiltTable:
        total = gaussian_table(self.mu_squared, tilts)
        for step, count in self.steps:
            total = total.plus(step.table(tilts).times(count))
        return total

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the loss under P."""
        start = self.table(np.array([1e-9]))
        return float(start.means[0]), float(start.variances[0])

    @property
    def largest_loss(self) -> float:
        """The essential supremum of the loss, rounded up; inf where there is none."""
        if self.mu_squared > 0.0:
            return math.inf
        return math.fsum(count * step.largest_loss for step, count in self.steps) * (1.0 + 1e-14)

    def table_at(self, epsilon: float) -> TiltTable:
        """Moments at tilts around the saddle point of delta(eps)."""
        mean, variance = self.moments
        gap = epsilon - mean
        # Were the loss normal, this would be the saddle point; heavier tails only bring it down.
        normal = (gap + math.sqrt(gap * gap + 8.0 * variance)) / max(2.0 * variance, 1e-300)
        bounds = [2.0 * step.largest_tilt(count, epsilon) for step, count in self.steps]
        return self.table(min([4.0 * normal, _MAX_TILT, *bounds]) * _TILTS)

    def table_for(self, delta: float) -> TiltTable:
        """Moments at tilts around the saddle point of epsilon(delta)."""
        mean, variance = self.moments
        return self.table_at(max(0.0, mean + math.sqrt(variance * 2.0 * -math.log(delta))))


@dataclass(frozen=True, slots=True)
class LineChoice:
    """The line to integrate on.

    Attributes:
        tilt: c.
        period: P.
        log_delta: Estimate of log delta.
        log_amplification: log of M(c) e^(-c eps) over delta.
        decay: A value of Im z where |M| has fallen about enough.
    """

    tilt: float
    period: float
    log_delta: float
    log_amplification: float
    decay: float

    @property
    def log_tolerance(self) -> float:
        """What may be left out of the sum, over D(c) e^(-c eps)."""
        return _LOG_TOLERANCE - self.log_amplification


def choose_line(
    table: TiltTable, epsilon: float, log_delta: float | None = None, largest: float = math.inf
) -> LineChoice:
    """The tilt with the fewest points among those whose amplification is harmless.

    Args:
        table: log D at tilts in any order; 0 may be among them.
        log_delta: where it is known better than by the saddle-point estimate.
        largest: the tilt is at most this, if one of the table is.
    """
    # A moment that is not known (its window was too narrow for the tilt) counts as large.
    exponents = table.moments + np.minimum(table.errors, 1e6) - table.tilts * epsilon
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        logs = exponents - np.log(table.tilts) - np.log1p(table.tilts)
        best = int(np.nanargmin(logs))
        if log_delta is None:
            log_delta = min(float(_saddle_log_delta(table, epsilon)[best]), 0.0)
        candidates = np.flatnonzero(logs <= logs[best] + _LOG_AMPLIFICATION)
        smaller = candidates[table.tilts[candidates] <= largest]
        candidates = smaller if smaller.size else candidates
        needed = np.logaddexp(0.0, exponents + log_kernel(table.tilts) - (_LOG_TOLERANCE + log_delta))
        gaps = table.tilts - table.tilts[candidates, None]
        periods = needed / np.where(gaps == 0.0, np.nan, np.abs(gaps))
    right = np.where(gaps > 0.0, periods, math.inf).min(axis=1)
    left = np.where(gaps < 0.0, periods, math.inf).min(axis=1)
    both = np.maximum(right, left)
    amplification = exponents[candidates] - log_delta
    variances = np.maximum(table.variances[candidates], 1e-300)
    decays = np.sqrt(2.0 * np.maximum(amplification - _LOG_TOLERANCE, 1.0) / variances)
    # A larger amplification is more rounding: it must win points to be taken.
    pick = int(np.argmin(both * decays * (1.0 + 0.02 * (amplification - amplification.min()))))
    return LineChoice(
        tilt=float(table.tilts[candidates[pick]]),
        period=float(both[pick]),
        log_delta=log_delta,
        log_amplification=float(amplification[pick]),
        decay=float(decays[pick]),
    )


def guess_epsilon(composition: DirectedComposition, delta: float) -> float:
    """The saddle-point estimate of epsilon(delta), refined where epsilon changes fast with the tilt."""
    table = composition.table_for(delta)
    target = math.log(delta)
    epsilon = 0.0
    for _ in range(5):
        epsilons = table.means - 1.0 / table.tilts - 1.0 / (1.0 + table.tilts)
        logs = _saddle_log_delta(table, epsilons)
        known = np.isfinite(logs) & np.isfinite(epsilons)
        order = np.argsort(logs[known])
        sorted_logs, sorted_epsilons = logs[known][order], epsilons[known][order]
        epsilon = float(np.interp(target, sorted_logs, sorted_epsilons))
        place = int(np.searchsorted(sorted_logs, target))
        if not 0 < place < sorted_logs.size:
            break
        high, low = sorted_epsilons[place - 1], sorted_epsilons[place]
        if high - low < 0.3 * max(abs(epsilon), 1e-6):
            break
        ends = table.tilts[known][order][[place - 1, place]]
        table = composition.table(np.geomspace(ends.max(), ends.min(), 12))
    return max(0.0, epsilon)


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
    """The line for deltas near ``epsilon``; None where it would need more than ``max_points``.

    Args:
        known: the steps' lines by their tilts, to take from and to add to: those without a window serve with any.
    """
    gaussian = composition.mu_squared + window * window
    if window > 0.0:
        table = table.plus(gaussian_table(window * window, table.tilts))
    known, largest = {} if known is None else known, math.inf
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
            return Contour(choice.tilt, choice.period, values, window, table)
        # Where moments explode the estimate of the decay misleads: a smaller tilt may do.
        largest = share * choice.tilt
    return None


def _log_envelope(lines: list[tuple[Line, int]], gaussian: float, t: Array) -> Array:
    total = -0.5 * gaussian * t * t
    for line, count in lines:
        total = total + count * line.log_envelope(t)
    return total


def _saddle_log_delta(table: TiltTable, epsilons: Array | float) -> Array:
    """The saddle-point estimate of log delta at each (tilt, epsilon)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        curvature = table.variances + 1.0 / table.tilts**2 + 1.0 / (1.0 + table.tilts) ** 2
        logs = table.moments - table.tilts * epsilons - np.log(table.tilts) - np.log1p(table.tilts)
        saddle: Array = logs - 0.5 * np.log(2.0 * math.pi * curvature)
    return saddle
