from __future__ import annotations

import math
import random

import mpmath as mp
import numpy as np
import pytest

from accounting.losses import ratio_quadrature
from accounting.losses.ratio_quadrature import (
    ConvexExcess,
    RatioLaw,
    SymmetrizedExcess,
    log_integral,
    log_sampled_ratio,
)
from accounting.losses.symmetrized_moments import (
    ALLOWANCE,
    MAX_TILT,
    moments_at,
    symmetrized_gaussian_moment,
    symmetrized_laplace_moment,
    upper_moment,
)
from tests.accounting.losses import sampled_references as references

DRAW = random.Random(7)
GAUSSIAN = [
    (10 ** DRAW.uniform(-0.6, 1.5), 10 ** DRAW.uniform(-7, -0.03), 10 ** DRAW.uniform(-2, 1.4)) for _ in range(9)
]
LAPLACE = [(10 ** DRAW.uniform(-3, 1.2), 10 ** DRAW.uniform(-7, -0.03), 10 ** DRAW.uniform(-2, 1.6)) for _ in range(7)]


@pytest.mark.parametrize(("s", "q", "tilt"), [*GAUSSIAN, (0.25, 0.07, 3.0), (20.0, 1e-6, 300.0)])
@pytest.mark.one_in(4)
def test_integral_is_an_upper_bound_gaussian(s: float, q: float, tilt: float) -> None:
    with mp.workdps(25):
        exact = references.symmetrized_gaussian_moment(s, q, tilt)
        assert 0 <= symmetrized_gaussian_moment(s, q, tilt) / exact - 1 < 1.2 * ALLOWANCE


@pytest.mark.parametrize(("loss", "q", "tilt"), LAPLACE)
def test_integral_is_an_upper_bound_laplace(loss: float, q: float, tilt: float) -> None:
    with mp.workdps(45):
        exact = references.laplace_moment(loss, q, tilt, "symmetrized")
        assert 0 <= symmetrized_laplace_moment(loss, q, tilt) / exact - 1 < 1.2 * ALLOWANCE
        law = RatioLaw.laplace(loss, above_zero=False)
        for kind, power in (("remove", tilt + 1.0), ("add", -tilt)):
            value = upper_moment(log_integral(law, math.log(q), ConvexExcess(power)))
            assert 0 <= value / references.laplace_moment(loss, q, tilt, kind) - 1 < 1.2 * ALLOWANCE


@pytest.mark.parametrize(
    ("order", "q", "s", "divergence"),
    [
        (2.0, 0.02, 1.0, 0.00108641218),
        (8.0, 0.02, 1.0, 0.01322124794),
        (2.5, 0.02, 0.65, 0.008068234961),
        (16.0, 0.01, 2.0, 0.0003140221373),
        (32.0, 0.02, 6.0, 0.0002037158751),
    ],
)
def test_divergences_computed_elsewhere(order: float, q: float, s: float, divergence: float) -> None:
    assert symmetrized_gaussian_moment(s, q, order - 1.0) / (order - 1.0) == pytest.approx(divergence, rel=3e-9)


def test_extreme_inputs_give_numbers_below_the_unsampled_moment() -> None:
    for s in (5e-4, 0.05, 1.0, 50.0, 5e5):
        for q in (1e-300, 1e-8, 0.9, 1 - 1e-12):
            for tilt in (1e-3, 1.0, 4095.0, MAX_TILT):
                value = symmetrized_gaussian_moment(s, q, tilt)
                assert 0 < value <= max(0.5 * tilt * (tilt + 1) / s**2 * (1 + 4e-8), 1e-300), (s, q, tilt)
    for loss in (1e-6, 1.0, 30.0, 2000.0):
        for q in (1e-8, 0.9, 1 - 1e-12):
            for tilt in (1e-3, 1.0, 4095.0):
                assert 0 < symmetrized_laplace_moment(loss, q, tilt) <= tilt * loss * (1 + 2e-9)


def test_moments_are_chords_below_the_range_and_infinite_above() -> None:
    values = moments_at(np.array([1e-6, 1e-3, 2.0, 2e5]), lambda tilt: 3.0 * tilt)
    assert values[:3] == pytest.approx([3e-6, 3e-3, 6.0])
    assert math.isinf(values[3])


def test_kernels_keep_their_digits() -> None:
    for log_f in (-0.6, -1e-9, 1e-12, 1e-4, 0.3, 4.0, 60.0, 900.0):
        for tilt in (1e-3, 0.7, 25.0, 1000.0):
            with mp.workdps(60):
                f, x = mp.exp(mp.mpf(log_f)), mp.mpf(tilt)
                cases = {
                    ConvexExcess(tilt + 1.0): f ** (mp.mpf(tilt + 1.0)) - 1 - mp.mpf(tilt + 1.0) * (f - 1),
                    ConvexExcess(-tilt): f ** (-x) - 1 + x * (f - 1),
                }
                if log_f > 0:
                    cases[SymmetrizedExcess(tilt)] = f ** (x + 1) + f ** (-x) - f - 1
                for kernel, exact in cases.items():
                    value = float(kernel.log_value(np.array([log_f]))[0])
                    assert value == pytest.approx(float(mp.log(exact)), rel=1e-12, abs=3e-12), (kernel, log_f)


def test_sampled_ratio_is_accurate_where_it_is_tiny_and_where_it_overflows() -> None:
    for y, q in [
        (1e-9, 1e-7),
        (-30.0, 0.3),
        (5.0, 1e-5),
        (800.0, 1e-300),
        (2000.0, 0.1),
        (0.0, 0.5),
        (-37.0, 1 - 2**-53),
    ]:
        with mp.workdps(60):
            exact = float(mp.log(1 - mp.mpf(q) + mp.mpf(q) * mp.exp(mp.mpf(y))))
        assert float(log_sampled_ratio(np.array([y]), math.log(q))[0]) == pytest.approx(exact, rel=1e-13, abs=1e-300)


def test_fewer_nodes_give_wider_bounds_and_never_wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quadrature's bound of its own error is in the result: coarse rules are sound, only looser."""
    law, kernel = RatioLaw.gaussian_above_zero(2.0), SymmetrizedExcess(6.0)
    fine = log_integral(law, math.log(0.05), kernel)
    looser = []
    for count in (20, 10, 6):
        monkeypatch.setattr(ratio_quadrature, "_node_count", lambda log_q, count=count: count)
        looser.append(log_integral(law, math.log(0.05), kernel))
    assert fine <= looser[0] + 1e-13
    assert looser[0] <= looser[1] <= looser[2]
    assert looser[2] > fine + 1e-6
