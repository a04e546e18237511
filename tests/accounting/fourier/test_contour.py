"""The alias identity and every named error term: each knob coarsened, its term seen to grow, the truth inside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from accounting.composition.evaluator import Bounds
from accounting.fourier.choice import DirectedComposition, choose_line, contour_at
from accounting.fourier.contour import Contour, LineValues, gaussian_table, power_values, truncation_point
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.steps import StepLine, TiltTable
from tests.accounting.references import gaussian_delta

TILTS = np.concatenate([[0.0], np.geomspace(1e-3, 2e3, 120)])
MU = 1.3
#: Noise, probability, count, epsilon and delta to ten digits: a 30-digit contour of its own found it.
TRAINING = (1.0, 0.02, 5000, 9.4, 1.0039287035e-5)
KNOWN_TO = 1e-10


def full_batch(
    mu: float, tilt: float, period: float, points: int, *, window: float = 0.0, tilts: np.ndarray = TILTS
) -> Contour:
    """Full-batch Gaussians alone, through the public constructors."""
    mu_squared = mu * mu + window * window
    values = power_values([], mu_squared, tilt, period, points)
    return Contour(tilt, period, values, window, gaussian_table(mu_squared, tilts))


def exact(epsilon: float, mu: float = MU) -> float:
    return float(gaussian_delta(mu, epsilon))


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


def contains(bounds: Bounds, truth: float, slack: float = 1e-14) -> bool:
    return bounds.lower <= truth * (1.0 + slack) and truth * (1.0 - slack) <= bounds.upper


def training_contour(digits: float = 60.0, window: float = 0.0) -> Contour:
    s, q, count, epsilon, _ = TRAINING
    composition = DirectedComposition(((GaussianPairStep(GaussianPair(Pair.REMOVE, s, q), digits), count),), 0.0)
    contour = contour_at(composition, composition.table_at(epsilon), epsilon, 3000, window=window)
    assert contour is not None
    return contour


def training_line(tilt: float, digits: float = 60.0) -> tuple[StepLine, TiltTable]:
    s, q, count, _, _ = TRAINING
    step = GaussianPairStep(GaussianPair(Pair.REMOVE, s, q), digits)
    return step.line(tilt, 1.0), step.table(tilt * np.geomspace(0.05, 4.0, 40)).times(count)


# --- the identity


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


# --- each knob


def test_each_knob_grows_its_term_truncation() -> None:
    """The sum cut early: what is missing is inside, and at some epsilons nothing but this term covers it."""
    tilt, period = 4.0, 25.0
    whole = full_batch(MU, tilt, period, 64)
    terms, needed = [], 0
    for points in (49, 36, 25, 16, 9):
        contour = full_batch(MU, tilt, period, points)
        terms.append(contour.delta_bounds(3.5).error_budget["truncation"])
        for epsilon in np.linspace(3.0, 4.5, 16):
            bounds = contour.delta_bounds(float(epsilon))
            assert contains(bounds, exact(float(epsilon)))
            others = math.fsum(width for name, width in bounds.error_budget.items() if name != "truncation")
            missing = abs(bounds.estimate - whole.delta_bounds(float(epsilon)).estimate)
            needed += missing > others
    assert terms == sorted(terms)
    assert terms[-1] > 1e6 * terms[0]
    assert needed > 8


def test_each_knob_grows_its_term_truncation_of_a_training_run() -> None:
    contour = training_contour()
    _, _, count, epsilon, delta = TRAINING
    line, table = training_line(contour.tilt)
    terms = []
    for share in (1.0, 0.8, 0.6, 0.45, 0.3):
        points = max(4, int(contour.values.ratios.size * share))
        values = power_values([(line, count)], 0.0, contour.tilt, contour.period, points)
        bounds = Contour(contour.tilt, contour.period, values, 0.0, table).delta_bounds(epsilon)
        assert contains(bounds, delta, KNOWN_TO)
        terms.append(bounds.error_budget["truncation"])
    assert terms == sorted(terms)
    assert terms[-1] > 1e-3 * delta > 1e4 * terms[0]


def test_each_knob_grows_its_term_aliasing() -> None:
    """The period halved, and halved again: the aliases grow, and without their bound the truth would be outside."""
    contour = training_contour()
    _, _, count, epsilon, delta = TRAINING
    line, table = training_line(contour.tilt)
    terms = []
    for share in (1.0, 0.5, 0.35, 0.25):
        period = contour.period * share
        values = power_values([(line, count)], 0.0, contour.tilt, period, contour.values.ratios.size)
        bounds = Contour(contour.tilt, period, values, 0.0, table).delta_bounds(epsilon)
        assert contains(bounds, delta, KNOWN_TO)
        terms.append(bounds.error_budget["aliasing"])
        if share < 1.0:
            assert bounds.upper > delta * (1.0 + 1e-6)
            assert bounds.upper - math.fsum(bounds.error_budget.values()) <= delta
    assert terms == sorted(terms)
    assert terms[1] > 100.0 * terms[0]


def test_each_knob_grows_its_term_quadrature() -> None:
    """Nodes further apart."""
    contour = training_contour()
    _, _, count, epsilon, delta = TRAINING
    terms, errors = [], []
    for digits in (60.0, 40.0, 28.0, 22.0, 18.0):
        line, table = training_line(contour.tilt, digits)
        values = power_values([(line, count)], 0.0, contour.tilt, contour.period, contour.values.ratios.size)
        bounds = Contour(contour.tilt, contour.period, values, 0.0, table).delta_bounds(epsilon)
        assert contains(bounds, delta, KNOWN_TO)
        terms.append(bounds.error_budget["quadrature"])
        errors.append(abs(bounds.estimate - delta))
    assert terms == sorted(terms)
    assert terms[-1] > 1e6 * terms[0]
    assert errors[-1] > 10.0 * errors[0]


def test_each_knob_grows_its_term_window() -> None:
    """A wider window: quadratically, and the truth lies half a correction below the sum."""
    terms = []
    for window in (0.01, 0.02, 0.04, 0.08, 0.16):
        contour = full_batch(MU, 4.0, 25.0, 64, window=window)
        for epsilon in (2.0, 3.5, 5.0):
            bounds = contour.delta_bounds(epsilon)
            truth = exact(epsilon)
            assert contains(bounds, truth)
            others = math.fsum(width for name, width in bounds.error_budget.items() if name != "window")
            # Above the truth by more than everything else explains: the correction is needed.
            assert bounds.upper - truth > 2.0 * others
            assert bounds.estimate == pytest.approx(truth, rel=0.2 * (bounds.upper / truth - 1.0))
        terms.append(bounds.error_budget["window"])
    for narrow, wide in pairwise(terms):
        assert wide == pytest.approx(4.0 * narrow, rel=0.3)


def test_each_knob_grows_its_term_window_of_a_training_run() -> None:
    terms = []
    for window in (0.01, 0.02, 0.04):
        bounds = training_contour(window=window).delta_bounds(TRAINING[3])
        assert contains(bounds, TRAINING[4], KNOWN_TO)
        assert bounds.upper > TRAINING[4] * (1.0 + 1e-6)
        terms.append(bounds.error_budget["window"])
    assert terms[1] == pytest.approx(4.0 * terms[0], rel=0.05)
    assert terms[2] == pytest.approx(4.0 * terms[1], rel=0.05)


def test_a_window_cut_early_still_holds() -> None:
    """The density of the correction is cut as well: its tail is in the term."""
    terms = []
    for points in (49, 36, 25, 16, 9):
        contour = full_batch(MU, 4.0, 25.0, points, window=0.1)
        for epsilon in np.linspace(3.0, 4.5, 7):
            assert contains(contour.delta_bounds(float(epsilon)), exact(float(epsilon)))
        terms.append(contour.delta_bounds(3.5).error_budget["window"])
    assert terms[-1] > 2.0 * terms[0]


def test_each_knob_grows_its_term_rounding() -> None:
    """A line further from the saddle point amplifies every rounding error; the truth stays inside."""
    _, _, count, epsilon, delta = TRAINING
    best = training_contour()
    terms, amplifications = [], []
    for share in (1.0, 1.5, 2.0, 2.5):
        tilt = best.tilt * share
        line, table = training_line(tilt)
        values = power_values([(line, count)], 0.0, tilt, 3.0 * best.period, 6 * best.values.ratios.size)
        bounds = Contour(tilt, 3.0 * best.period, values, 0.0, table).delta_bounds(epsilon)
        assert contains(bounds, delta, KNOWN_TO)
        terms.append(bounds.error_budget["rounding"])
        amplifications.append(math.exp(values.log_scale - tilt * epsilon))
    assert terms == sorted(terms)
    assert terms[-1] > 10.0 * terms[0]
    assert amplifications[-1] > 10.0 * amplifications[0]


def test_ratios_in_single_precision_are_inside_the_rounding_that_they_declare() -> None:
    contour = full_batch(MU, 4.0, 25.0, 64)
    single = contour.values.ratios.astype(np.complex64).astype(np.complex128)
    coarse = replace(contour.values, ratios=single, rounding=2.0**-23 * np.abs(single) + 1e-45)
    for epsilon in np.linspace(3.0, 4.5, 10):
        bounds = replace(contour, values=coarse).delta_bounds(float(epsilon))
        fine = contour.delta_bounds(float(epsilon))
        assert contains(bounds, exact(float(epsilon)))
        assert bounds.error_budget["rounding"] > 1e4 * fine.error_budget["rounding"]
        assert abs(bounds.estimate - exact(float(epsilon))) > 10.0 * fine.error_budget["rounding"]


# --- the worst that the declared errors allow


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
    low = replace(table, moments=table.moments - 3.0, errors=np.full(table.errors.shape, 3.0))
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
        slopes = contour.slopes(epsilons)
        for k, epsilon in enumerate(epsilons):
            one = contour.delta_bounds(float(epsilon))
            assert many.upper[k] == pytest.approx(one.upper, rel=1e-12)
            assert many.lower[k] == pytest.approx(one.lower, rel=1e-9)
            assert many.lower[k] <= exact(float(epsilon)) * (1.0 + 1e-13)
            assert many.upper[k] >= exact(float(epsilon)) * (1.0 - 1e-13)
            assert slopes[k] == pytest.approx(contour.slope(float(epsilon)), rel=1e-9)


def test_the_slope_is_the_derivative() -> None:
    contour = full_batch(MU, 4.0, 25.0, 64)
    for epsilon in (2.0, 3.5, 5.0):
        step = 1e-4
        difference = (exact(epsilon - step) - exact(epsilon + step)) / (2.0 * step)
        assert contour.slope(epsilon) == pytest.approx(difference, rel=1e-6)


def test_the_choice_keeps_aliases_and_amplification_in_hand() -> None:
    """A tilt between two of the table, a period that makes both alias bounds small."""
    table = gaussian_table(MU * MU, np.geomspace(1e-3, 2e3, 120))
    choice = choose_line(table, 3.5)
    assert math.exp(choice.log_delta) == pytest.approx(exact(3.5), rel=0.2)
    assert choice.log_amplification < math.log(1e6)
    contour = full_batch(MU, choice.tilt, choice.period, 200)
    assert contour.delta_bounds(3.5).error_budget["aliasing"] <= 1e-8 * exact(3.5)
