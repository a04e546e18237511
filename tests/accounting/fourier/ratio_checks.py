"""What every step with ends and atoms must satisfy, checked against a 30-digit law."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath as mp
import numpy as np

from accounting.fourier.ratio_step import RatioStep
from accounting.fourier.steps import StepLine
from accounting.losses.privacy_loss import ratio_digits
from tests.accounting.fourier.ratio_truths import Law, distance

DIGITS = 40.0


def log_count_for(digits: float) -> float:
    """The logarithm of a number of steps for which a ratio step has so many digits."""
    return digits - ratio_digits(0.0)


LOG_COUNT = log_count_for(DIGITS)


def check_table(step: RatioStep, law: Law, tilts: list[float]) -> None:
    """moment_within_its_error, with about the right mean and variance; a table has fewer digits than a line."""
    coarse, table = step.table(np.array(tilts)), replace(step, digits=step.digits + 22.0).table(np.array([0.0, *tilts]))
    assert (np.abs(coarse.moments - table.moments[1:]) <= coarse.errors + table.errors[1:]).all()
    assert coarse.errors.max() <= 1e-6
    assert abs(table.moments[0]) <= table.errors[0] <= 1e-13
    for tilt, moment, mean, variance, error in zip(
        tilts, table.moments[1:], table.means[1:], table.variances[1:], table.errors[1:], strict=True
    ):
        truth = law.moment(tilt).real
        assert abs(mp.log(truth) - mp.mpf(moment)) <= error <= 1e-13 * (10.0 + abs(moment)), tilt
        second = float(law.second_moment(tilt))
        assert math.isclose(variance + mean * mean, second, rel_tol=1e-9)


def check_line(step: RatioStep, law: Law, tilt: float, largest: float) -> None:
    """line_within_its_error, for t up to where the panels of ``law`` end."""
    line = step.line(tilt, 1.0)
    assert line.relative_error < 1e-14
    assert line.losses.imag.min() >= 0.0
    for t in largest * np.array([1.0, 0.1, 0.003]):
        error, allowed = distance(line, law, tilt, float(t))
        assert error <= allowed <= 1e-10, t


def check_envelope(step: RatioStep, tilt: float, largest: float) -> None:
    """envelope_is_above_and_falls: on a fine grid of the line's own values, for places of decay far apart."""
    for decay in (largest / 300.0, largest / 20.0, largest):
        line = step.line(tilt, decay)
        spacing = 2.0 * largest / 4096
        t = np.arange(4096, dtype=np.float64) * spacing
        values = line.log_ratios(64, 64, spacing)[0].real
        highest_behind = np.maximum.accumulate(values[::-1])[::-1]
        envelope = line.log_envelope(t)
        assert (np.diff(envelope) <= 1e-14).all()
        assert (envelope >= highest_behind - 1e-13).all()


def decay_of(line: StepLine, t: float) -> tuple[float, float]:
    """log |M(c + it)/M(c)| and its envelope."""
    value = line.log_ratios(1, 2, t)[0].real[1]
    return float(value), float(line.log_envelope(np.array([t]))[0])
