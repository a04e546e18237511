"""The worst that the declared errors of a contour's parts allow is inside its bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from accounting.fourier.choice import DirectedComposition, contour_at
from accounting.fourier.contour import Contour, power_values
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.steps import StepLine, TiltTable
from tests.accounting.fourier.contours import (
    KNOWN_TO,
    MU,
    TRAINING,
    contains,
    exact,
    full_batch,
    training_contour,
    training_line,
)


@pytest.mark.parametrize("source", ["errors", "rounding"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_worst_error_of_the_ratios_is_inside(source: str, sign: float) -> None:
    """Every ratio wrong by all that is declared, in the direction that moves the sum most."""
    contour = full_batch(MU, 4.0, 25.0, 64)
    t = np.arange(64) * (2.0 * math.pi / 25.0)
    for epsilon in (2.0, 3.5, 5.0):
        for size in (1e-9, 1e-6, 1e-3):
            declared = size * np.exp(-0.1 * t)
            kernel = np.exp(-1j * t * epsilon) / ((4.0 + 1j * t) * (5.0 + 1j * t))
            worst = sign * declared * np.conj(kernel) / np.abs(kernel)
            wrong = replace(contour.values, ratios=contour.values.ratios + worst, **{source: declared})
            bounds = replace(contour, values=wrong).delta_bounds(epsilon)
            assert contains(bounds, exact(epsilon))
            name = "quadrature" if source == "errors" else source
            assert bounds.error_budget[name] >= 0.99 * abs(bounds.estimate - exact(epsilon)) > 0.0


@pytest.mark.parametrize("shift", [-1e-5, 1e-5])
def test_an_error_of_the_scale_is_inside(shift: float) -> None:
    contour = full_batch(MU, 4.0, 25.0, 64)
    values = replace(contour.values, log_scale=contour.values.log_scale + shift, log_scale_error=1e-5)
    for epsilon in (2.0, 3.5, 5.0):
        assert contains(replace(contour, values=values).delta_bounds(epsilon), exact(epsilon))


@pytest.mark.parametrize("share", [0.25, 0.35])
def test_errors_of_the_table_are_in_the_aliases(share: float) -> None:
    """Moments too low by all that the table declares: the bound of the aliases is that of the true ones."""
    contour = training_contour()
    _, _, count, epsilon, delta = TRAINING
    line, table = training_line(contour.tilt)
    period = contour.period * share
    values = power_values([(line, count)], 0.0, contour.tilt, period, contour.values.ratios.size)
    low = TiltTable.of(table.tilts, table.moments - 3.0, table.means, table.variances, np.full(table.errors.shape, 3.0))
    right = Contour(contour.tilt, period, values, 0.0, table).delta_bounds(epsilon)
    bounds = Contour(contour.tilt, period, values, 0.0, low).delta_bounds(epsilon)
    assert contains(bounds, delta, KNOWN_TO)
    assert bounds.error_budget["aliasing"] >= right.error_budget["aliasing"] * (1.0 - 1e-9)


def wrong_lines(line: StepLine, size: float) -> Iterator[tuple[StepLine, StepLine]]:
    """(a line with declared errors, one that differs from it by as much as they allow)."""
    for phase in (1.0, -1.0, 1j, -1j):
        told = replace(line, rounding=size)
        yield told, replace(line, weights=line.weights * (1.0 + size * phase))
        # A node whose loss is far up the imaginary axis is a constant for all t > 0.
        told = replace(line, relative_error=size)
        weights, losses = np.append(line.weights, -size * phase), np.append(line.losses, 1e9j)
        yield told, replace(line, weights=weights, losses=losses)


@pytest.mark.parametrize("count", [1, 40, 2000])
def test_errors_of_a_composition_contain_the_worst_errors_of_its_steps(count: int) -> None:
    """Counted once for every step."""
    s, q, tilt = 1.0, 0.1, 1.5
    line = GaussianPairStep(GaussianPair(Pair.REMOVE, s, q), 60.0).line(tilt, 1.0)
    for size in (1e-8, 1e-5):
        for told, wrong in wrong_lines(line, size):
            here = power_values([(told, count)], 0.04, tilt, 40.0, 50)
            there = power_values([(wrong, count)], 0.04, tilt, 40.0, 50)
            moved = np.abs(there.ratios - here.ratios)
            # The error of t = 0 is in the scale alone.
            assert np.all(moved[1:] <= (here.errors + here.rounding)[1:] * (1.0 + 1e-9) + 1e-300)
            assert moved.max() > 0.1 * size
    scaled = power_values([(replace(line, log_moment_error=1e-7), count)], 0.0, tilt, 40.0, 50)
    assert scaled.log_scale_error >= count * 1e-7


@pytest.mark.parametrize("shift", [-1e-6, 1e-6])
def test_an_error_of_log_m_is_inside_the_bounds(shift: float) -> None:
    """log M(c) wrong within its error: nodes are divided by it, so that it is no common factor of the line."""
    s, q, epsilon = 0.8, 0.4, 4.0
    step = GaussianPairStep(GaussianPair(Pair.REMOVE, s, q), 60.0)
    composition = DirectedComposition(((step, 3),), 0.01)
    table = composition.table_at(epsilon)
    contour = contour_at(composition, table, epsilon, 3000)
    assert contour is not None
    truth = contour.delta_bounds(epsilon)
    for tilt in (contour.tilt, 2.0 * contour.tilt):
        line = step.line(tilt, 1.0)
        moved = replace(
            line,
            log_moment=line.log_moment + shift,
            weights=line.weights * math.exp(-shift),
            log_moment_error=abs(shift),
        )
        values = power_values([(moved, 3)], 0.01, tilt, 3.0 * contour.period, 20000)
        for other in (epsilon, 1.3 * epsilon):
            found = Contour(tilt, 3.0 * contour.period, values, 0.0, table).delta_bounds(other)
            truth = contour.delta_bounds(other)
            assert found.lower <= truth.upper
            assert found.upper >= truth.lower


def test_envelopes_of_all_steps_make_the_tail() -> None:
    """The bound beyond the last point is that of the product: every step to its count, and the Gaussian."""
    line = GaussianPairStep(GaussianPair(Pair.REMOVE, 1.0, 0.1), 60.0).line(1.5, 1.0)
    short = power_values([(line, 100), (line, 7)], 0.04, 1.5, 40.0, 25)
    long = power_values([(line, 100), (line, 7)], 0.04, 1.5, 40.0, 900)
    assert np.abs(long.ratios[25:]).max() <= math.exp(short.log_tail)
    assert short.decay == 0.04
