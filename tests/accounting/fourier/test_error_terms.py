"""Every named error term of a contour: its knob coarsened, the term seen to grow, the truth inside."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from accounting.fourier.contour import Contour, power_values
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
