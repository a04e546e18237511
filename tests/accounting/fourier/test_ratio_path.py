"""The path's bounds: norms on shifted lines, and what is left out beyond the nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from tests.accounting.fourier.ratio_checks import log_count_for

DIGITS = 40.0
PAIRS = (
    PoissonGaussianLoss(4.0, 0.02),
    PoissonGaussianLoss(0.7, 0.4),
    PoissonGaussianLoss(2.0, 1e-6),
    PoissonLaplaceLoss(1.0, 0.3),
    PoissonLaplaceLoss(5.0, 1e-3),
)
EVERY_PAIR = pytest.mark.parametrize("pair", PAIRS)


def step_of(pair: PoissonGaussianLoss | PoissonLaplaceLoss) -> RatioStep:
    return SymmetrizedLoss(pair).contour_step(log_count_for(DIGITS), remove=True)


def norm_on_line(part: RatioPart, angle: float, scale: float, tilt: float, reach: float) -> float:
    """log of the integral of the integrand's modulus at t = 0, by a fine rule of its own."""
    length = (reach - part.low) / scale
    u = np.arange(-40.0, length + 40.0, 0.01)
    y, derivative = part._path(u, angle, scale)
    log_f = part._log_f(y).real
    square = (y * y).real
    logs = part.log_scale - 0.5 * y.real - 0.5 * part.curvature * square + np.log(np.abs(derivative) * 0.01)
    return float(np.logaddexp.reduce(logs + (tilt + 1.0 if part.upward else -tilt) * log_f))


@EVERY_PAIR
@pytest.mark.parametrize("tilt", [0.5, 8.0, 300.0])
def test_norms_on_shifted_lines_are_bounded(pair: PoissonGaussianLoss | PoissonLaplaceLoss, tilt: float) -> None:
    """For every scale that may be chosen."""
    step = step_of(pair)
    log_moment = float(step.table(np.array([tilt])).moments[0])
    for part in step.parts:
        chosen, _, reach = part.best_scale(2.0, tilt, DIGITS)
        for scale in np.minimum(chosen * np.array([0.25, 1.0, 4.0, 16.0]), 1.2):
            bound = float(part.log_growth(np.array([scale]), 2.0, tilt, reach)[0])
            assert norm_on_line(part, 2.0, scale, tilt, reach) - log_moment <= bound


def test_norms_of_the_add_direction_are_bounded() -> None:
    """Without the other half of the pair, M is not large where f is small."""
    step, tilt = PoissonLaplaceLoss(5.0, 0.5).contour_step(log_count_for(DIGITS), remove=False), 300.0
    log_moment = float(step.table(np.array([tilt])).moments[0])
    for scale in (0.1, 0.4, 1.2):
        bound = float(step.parts[0].log_growth(np.array([scale]), 2.0, tilt, 5.0)[0])
        assert norm_on_line(step.parts[0], 2.0, scale, tilt, 5.0) - log_moment <= bound


def test_scales_that_would_pass_a_zero_of_the_ratio_are_refused() -> None:
    """Below the axis a Gaussian's path stays where the real part of f's exponential is positive."""
    downward = step_of(PoissonGaussianLoss(1.0, 0.5)).parts[1]
    wide, narrow = downward.log_growth(np.array([1.0, 0.5]), 2.0, 3.0, 13.0)
    assert math.isinf(wide)
    assert math.isfinite(narrow)


@EVERY_PAIR
def test_what_is_left_out_is_bounded(pair: PoissonGaussianLoss | PoissonLaplaceLoss) -> None:
    """Nodes are taken away at both ends until it shows."""
    tilts = np.array([0.5, 6.0])
    for part in step_of(pair).parts:
        scale, growth, reach = part.best_scale(1.5, 6.0, DIGITS)
        spacing = 2.0 * math.pi * 1.5 / (DIGITS + growth)
        nodes = part.grid(scale, spacing, DIGITS, reach)
        masses, _, losses = part.real_nodes(nodes, spacing, scale)
        for first, last in ((0.1, 1.0), (0.3, 1.0), (0.0, 0.9), (0.0, 0.8), (0.2, 0.85)):
            kept = slice(int(first * nodes.size), int(last * nodes.size))
            bound = part.log_left_out(nodes[kept], scale, tilts)
            logs = masses + tilts[:, None] * losses
            logs[:, kept] = -math.inf
            left_out = np.logaddexp.reduce(logs, axis=1)
            # A part whose left end is as good as nothing may have its ends' weights rounded.
            assert (left_out <= bound + 1e-9).all(), (part, first, last)


def test_tilts_out_of_reach_have_no_moment() -> None:
    """Where M's mass is too far out for the rule, no bound is made of it, and the others are as without it."""
    step = step_of(PoissonGaussianLoss(2.5, 1e-8))
    table = step.table(np.array([1.0, 50.0, 1e7]))
    assert math.isinf(table.moments[2])
    assert math.isinf(table.errors[2])
    alone = step.table(np.array([1.0, 50.0]))
    assert np.allclose(table.moments[:2], alone.moments, rtol=1e-9, atol=1e-18)
    with pytest.raises(OverflowError):
        step.line(1e7, 1.0)
