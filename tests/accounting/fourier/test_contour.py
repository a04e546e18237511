"""The alias identity, bounds far from where a contour was made, tails, and the choice of a line."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier.choice import DirectedComposition, choose_line, contour_at
from accounting.fourier.contour import LineValues, gaussian_table, truncation_point
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from tests.accounting.fourier.contours import (
    KNOWN_TO,
    MU,
    TILTS,
    TRAINING,
    contains,
    exact,
    full_batch,
    training_contour,
)


@cache
def profile(epsilon: float) -> mp.mpf:
    """delta at any real epsilon, in 40 digits."""
    with mp.workdps(40):
        eps, mu, root = mp.mpf(epsilon), mp.mpf(MU), mp.sqrt(2)
        likely, unlikely = mp.erfc((eps / mu - mu / 2) / root), mp.erfc((eps / mu + mu / 2) / root)
        return (likely - mp.exp(eps) * unlikely) / 2


def aliases(tilt: float, period: float, epsilon: float, *sides: int) -> float:
    """The sum of e^(cmP) delta(eps + mP) over m of the given signs."""
    ms = (side * m for side in sides for m in range(1, 1 + math.ceil(45.0 / (period * (1.0 if side > 0 else tilt)))))
    with mp.workdps(40):
        return float(mp.fsum(mp.exp(mp.mpf(tilt) * m * period) * profile(epsilon + m * period) for m in ms))


@pytest.mark.parametrize("tilt", [0.3, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("period", [1.5, 4.0, 15.0])
def test_the_sum_is_the_truth_and_its_aliases(tilt: float, period: float) -> None:
    """S(eps) = sum over all m of e^(cmP) delta(eps + mP), for eps of both signs."""
    contour = full_batch(MU, tilt, period, math.ceil(12.0 / MU * period / (2.0 * math.pi)) + 8)
    for epsilon in (-2.0, 0.7, 6.0):
        truth = exact(epsilon)
        bounds = contour.delta_bounds(epsilon)
        folded = aliases(tilt, period, epsilon, -1, 1)
        errors = math.fsum(bounds.error_budget[name] for name in ("rounding", "quadrature", "truncation"))
        assert abs(bounds.estimate - truth - folded) <= errors <= 1e-6 * bounds.estimate
        assert contains(bounds, truth)
        # The aliases are bounded from above, all of them.
        assert bounds.error_budget["aliasing"] >= folded * (1.0 - 1e-12)


@pytest.mark.parametrize(("tilt", "side"), [(0.4, -1), (14.0, 1)])
def test_each_side_of_the_aliases_is_bounded(tilt: float, side: int) -> None:
    """A small tilt brings the smaller losses in, a large one the larger ones: neither bound may be left out."""
    period, epsilon = 5.0, 3.0
    contour = full_batch(MU, tilt, period, 60)
    of_side = aliases(tilt, period, epsilon, side)
    other = aliases(tilt, period, epsilon, -side)
    bounds = contour.delta_bounds(epsilon)
    assert of_side > 10.0 * other
    assert of_side > 1e-6 * exact(epsilon)
    assert bounds.error_budget["aliasing"] >= of_side
    assert contains(bounds, exact(epsilon))


def test_without_tilts_on_one_side_nothing_is_claimed_from_below() -> None:
    for tilts in (TILTS[TILTS < 2.0], TILTS[TILTS > 2.0]):
        bounds = full_batch(MU, 2.0, 20.0, 60, tilts=tilts).delta_bounds(3.0)
        assert bounds.lower == 0.0
        assert bounds.upper >= exact(3.0) or math.isinf(bounds.upper)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.3, 6.0])
def test_bounds_hold_far_from_the_epsilon_they_were_made_for(mu: float) -> None:
    """Tight near it, sound everywhere, negative epsilons included."""
    centre = mu * mu / 2.0 + 3.0 * mu
    composition = DirectedComposition((), mu * mu)
    contour = contour_at(composition, composition.table_at(centre), centre, 3000)
    assert contour is not None
    near = contour.delta_bounds(centre)
    assert near.width <= 1e-8 * exact(centre, mu)
    for factor in (-4.0, -0.5, 0.0, 0.2, 0.7, 0.99, 1.01, 1.3, 2.0, 8.0, 50.0, 1e4):
        epsilon = centre * factor
        bounds = contour.delta_bounds(epsilon)
        truth = exact(epsilon, mu)
        assert bounds.lower <= truth * (1.0 + 1e-13)
        assert bounds.upper >= truth * (1.0 - 1e-13)


def test_bounds_of_a_training_run_hold_far_from_its_epsilon() -> None:
    """Lines made for other epsilons agree with each other wherever they are asked."""
    s, q, count, _, _ = TRAINING
    composition = DirectedComposition(((GaussianPairStep(GaussianPair(Pair.REMOVE, s, q), 53.0), count),), 0.0)
    contours = [contour_at(composition, composition.table_at(at), at, 3000) for at in (4.0, 9.4, 15.0)]
    for epsilon in (-1.0, 0.0, 3.0, 8.0, 9.4, 11.0, 20.0, 60.0):
        bounds = [contour.delta_bounds(epsilon) for contour in contours if contour is not None]
        assert len(bounds) == 3
        assert max(b.lower for b in bounds) <= min(b.upper for b in bounds)


def test_a_training_run_is_known_to_the_tolerance() -> None:
    bounds = training_contour().delta_bounds(TRAINING[3])
    assert contains(bounds, TRAINING[4], KNOWN_TO)
    assert bounds.width <= 1e-8 * TRAINING[4]
    assert sum(bounds.error_budget.values()) <= bounds.width * (1.0 + 1e-12) + bounds.upper - bounds.lower


def test_tail_sums_bound_the_sums() -> None:
    """For |D(c + it)/D(c)| = e^(-mu^2 t^2 / 2) exactly."""
    for mu, spacing in ((1.0, 0.3), (0.2, 0.05), (3.0, 1.0)):
        for last in (0.5, 2.0, 6.0):
            log_tail = -0.5 * mu * mu * last * last
            values = LineValues(np.ones(1, complex), np.zeros(1), np.zeros(1), 0.0, 0.0, log_tail, mu * mu)
            t = last + spacing * np.arange(200_000)
            decayed = np.exp(-0.5 * mu * mu * t * t)
            assert spacing * decayed.sum() <= values.tail_sum(last, spacing)
            if last > spacing:
                assert spacing * (decayed / t**2).sum() <= values.tail_sum_over_squares(last, spacing)
            plain = replace(values, decay=0.0)
            assert math.isinf(plain.tail_sum(last, spacing))
            if last > spacing:
                assert spacing * math.exp(log_tail) * (1.0 / t**2).sum() <= plain.tail_sum_over_squares(last, spacing)


def test_truncation_point_is_the_first_that_serves() -> None:
    tolerance = math.log(1e-9)

    def envelope(t: np.ndarray) -> np.ndarray:
        return np.asarray(-0.5 * t * t)

    last = truncation_point(envelope, 1.0, tolerance)
    assert -0.5 * last**2 - math.log(math.pi * last) <= tolerance
    before = last / 1.2
    assert -0.5 * before**2 - math.log(math.pi * before) > tolerance
    assert math.isinf(truncation_point(np.zeros_like, 1e-9, tolerance))


def test_numbers_out_of_range_become_no_bound() -> None:
    """Overflow says nothing: [0, inf]."""
    contour = full_batch(60.0, 30.0, 25.0, 64)
    assert (contour.delta_bounds(0.0).lower, contour.delta_bounds(0.0).upper) == (0.0, math.inf)
    good = full_batch(MU, 4.0, 25.0, 64)
    for broken in (np.full(64, math.inf), np.full(64, math.nan)):
        bounds = replace(good, values=replace(good.values, errors=broken)).delta_bounds(3.0)
        assert (bounds.lower, bounds.upper) == (0.0, math.inf)


def test_many_epsilons_are_evaluated_like_one() -> None:
    """One product of (epsilons x points), with and without a window, tight or far away."""
    epsilons = np.array([-2.0, 0.0, 2.0, 3.5, 5.0, 40.0, 1e4])
    for window in (0.0, 0.05):
        contour = full_batch(MU, 4.0, 25.0, 64, window=window)
        many = contour.evaluate(epsilons)
        estimates, slopes = contour.estimates(epsilons)
        for k, epsilon in enumerate(epsilons):
            one = contour.delta_bounds(float(epsilon))
            assert many.upper[k] == pytest.approx(one.upper, rel=1e-12)
            assert many.lower[k] == pytest.approx(one.lower, rel=1e-9)
            assert many.lower[k] <= exact(float(epsilon)) * (1.0 + 1e-13)
            assert many.upper[k] >= exact(float(epsilon)) * (1.0 - 1e-13)
            assert (estimates[k], slopes[k]) == pytest.approx(contour.estimate(float(epsilon)), rel=1e-9)
            assert estimates[k] == pytest.approx(one.estimate, rel=1e-4)


def test_the_slope_is_the_derivative() -> None:
    contour = full_batch(MU, 4.0, 25.0, 64)
    for epsilon in (2.0, 3.5, 5.0):
        step = 1e-4
        difference = (exact(epsilon - step) - exact(epsilon + step)) / (2.0 * step)
        assert contour.estimate(epsilon)[1] == pytest.approx(difference, rel=1e-6)


def test_the_choice_keeps_aliases_and_amplification_in_hand() -> None:
    """A tilt between two of the table, a period that makes both alias bounds small."""
    table = gaussian_table(MU * MU, np.geomspace(1e-3, 2e3, 120))
    choice = choose_line(table, 3.5)
    assert math.exp(choice.log_delta) == pytest.approx(exact(3.5), rel=0.2)
    assert choice.log_amplification < math.log(1e6)
    contour = full_batch(MU, choice.tilt, choice.period, 200)
    assert contour.delta_bounds(3.5).error_budget["aliasing"] <= 1e-8 * exact(3.5)
