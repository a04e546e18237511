"""Mixtures whose branch is seen, on lines: weighted sums of the branches' transforms."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.composition.composition import Composition
from accounting.composition.fourier import directed
from accounting.fourier.mixture import GaussianLine, GaussianStep, MixtureStep
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.privacy_loss import Direction
from accounting.losses.stated import RandomizedResponseLoss, ZcdpLoss
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from tests.accounting.fourier import ratio_truths
from tests.accounting.fourier.ratio_checks import log_count_for

WEIGHTS, MUS = (0.7, 0.2, 0.1), (0.01, 0.4, 3.0)


def truth(weights: tuple[float, ...], mus: tuple[float, ...], z: np.ndarray) -> np.ndarray:
    return np.asarray(sum(w * np.exp(0.5 * mu * mu * z * (z + 1.0)) for w, mu in zip(weights, mus, strict=True)))


@pytest.mark.parametrize("tilt", [1e-3, 1.7, 12.0])
def test_gaussian_branches_have_their_moment_line_and_envelope(tilt: float) -> None:
    """moment_within_its_error, line_within_its_error, envelope_is_above_and_falls."""
    step = MixtureStep(WEIGHTS, tuple(GaussianStep(mu) for mu in MUS), 0.0)
    table = step.table(np.array([tilt, 0.0]))
    assert abs(table.moments[0] - np.log(truth(WEIGHTS, MUS, np.array([tilt]))[0])) <= table.errors[0] + 1e-15
    assert table.moments[1] == 0.0
    h = 1e-4
    moments = step.table(np.array([tilt - h * tilt, tilt, tilt + h * tilt])).moments
    assert table.means[0] == pytest.approx((moments[2] - moments[0]) / (2 * h * tilt), rel=1e-4)
    curvature = (moments[2] - 2 * moments[1] + moments[0]) / (h * tilt) ** 2
    assert table.variances[0] == pytest.approx(curvature, rel=2e-2, abs=1e-2)
    line = step.line(tilt, 1.0)
    spacing = 0.01
    logs, quadrature, rounding = line.log_ratios(20, 20, spacing)
    t = np.arange(400) * spacing
    exact = truth(WEIGHTS, MUS, tilt + 1j * t) / truth(WEIGHTS, MUS, np.array([tilt + 0j]))[0]
    allowed = np.abs(np.exp(logs)) * np.expm1(quadrature + rounding) + 2e-15
    assert (np.abs(np.exp(logs) - exact) <= allowed).all()
    assert quadrature.max() == 0.0
    envelope = line.log_envelope(t)
    assert (np.diff(envelope) <= 0.0).all()
    behind = np.maximum.accumulate(logs.real[::-1])[::-1]
    assert (np.exp(envelope) >= np.exp(behind) - 1e-13).all()


def test_small_changes_lose_no_digits() -> None:
    """A hundred million steps multiply the logarithm: its relative error is what counts."""
    weights, mus = (0.5, 0.5), (1e-5, 2e-5)
    step = MixtureStep(weights, tuple(GaussianStep(mu) for mu in mus), 0.0)
    moment = float(step.table(np.array([3.0])).moments[0])
    assert moment == pytest.approx(0.5 * 0.5 * 12.0 * (1e-10 + 4e-10), rel=1e-9)
    logs, _, rounding = step.line(3.0, 1.0).log_ratios(1, 2, 0.5)
    assert logs[1].real == pytest.approx(-0.5 * 0.25 * 2.5e-10, rel=1e-8)
    assert rounding[1] <= 1e-12 * abs(logs[1])


def test_branches_with_quadratures_keep_their_errors() -> None:
    """A symmetrised pair and its mixture with itself are the same line, within what both allow."""
    pair = SymmetrizedLoss(PoissonGaussianLoss(1.0, 0.3)).contour_step(log_count_for(40.0), remove=True)
    alone, mixed = pair.line(3.0, 5.0), MixtureStep((0.4, 0.6), (pair, pair), 0.0).line(3.0, 5.0)
    one, quadrature, rounding = alone.log_ratios(8, 8, 0.5)
    two, wider, more = mixed.log_ratios(8, 8, 0.5)
    assert np.abs(one - two).max() <= 1e-12
    assert (wider >= quadrature * (1 - 1e-6)).all()
    assert (more >= rounding * (1 - 1e-6)).all()
    law = ratio_truths.symmetrized_gaussian(1.0, 0.3, 3.0)
    assert abs(float(np.real(law.moment(3.0))) - np.exp(mixed.log_moment)) <= 1e-11 * np.exp(mixed.log_moment)


def test_what_has_no_line_makes_the_mixture_have_none() -> None:
    known = VisibleMixtureLoss((0.5, 0.5), (GaussianLoss(1.0), RandomizedResponseLoss(0.3)))
    unknown = VisibleMixtureLoss((0.5, 0.5), (GaussianLoss(1.0), ZcdpLoss(0.1)))
    assert directed(Composition(((known, 3),)), Direction.REMOVE) is not None
    assert directed(Composition(((unknown, 3),)), Direction.REMOVE) is None


def test_an_unknown_moment_of_a_branch_is_an_unknown_moment() -> None:
    pair = SymmetrizedLoss(PoissonGaussianLoss(0.3, 0.3)).contour_step(log_count_for(40.0), remove=True)
    table = MixtureStep((0.5, 0.5), (pair, GaussianStep(0.1)), 0.0).table(np.array([1.0, 1e7]))
    assert np.isfinite(table.moments[0])
    assert np.isinf(table.moments[1])
    assert np.isinf(table.errors[1])
    assert isinstance(GaussianStep(0.1).line(1.0, 1.0), GaussianLine)


def test_a_branch_without_a_line_is_within_the_error() -> None:
    """Its share counts twice as an error, and stays in the envelope for good."""
    weights, mus, tilt, spacing = (0.9, 0.0999, 1e-4), (0.3, 0.5, 0.8), 2.0, 0.05
    step = MixtureStep(weights, tuple(GaussianStep(mu) for mu in mus), 1e-2)
    line = step.line(tilt, 1.0)
    assert len(line.lines) == 2
    assert line.log_moment == pytest.approx(np.log(truth(weights, mus, np.array([tilt]))[0]), rel=1e-13)
    logs, quadrature, rounding = line.log_ratios(20, 20, spacing)
    t = np.arange(400) * spacing
    exact = truth(weights, mus, tilt + 1j * t) / truth(weights, mus, np.array([tilt + 0j]))[0]
    off = np.abs(np.exp(logs) - exact)
    assert (off <= np.abs(np.exp(logs)) * np.expm1(quadrature + rounding) + 2e-15).all()
    assert off.max() > 0.5 * line.left_out > 0.0
    assert (np.exp(line.log_envelope(t)) >= np.abs(exact) - 1e-13).all()
    assert line.log_envelope(np.array([1e3]))[0] == pytest.approx(np.log(line.left_out), rel=1e-9)
