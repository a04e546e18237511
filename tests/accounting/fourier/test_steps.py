"""Complex logarithms, the matrix product and the tables of one step."""

from __future__ import annotations

import cmath
import math

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.steps import StepLine, TiltTable, error_of_exponential, log1p_complex, log_kernel


def small_line(weights: np.ndarray, losses: np.ndarray) -> StepLine:
    """A finite measure as it stands, with no error of its own."""
    return StepLine(
        weights=weights,
        losses=losses,
        log_moment=0.0,
        log_moment_error=0.0,
        relative_error=0.0,
        rounding=1e-14,
        mass=float(np.abs(weights).sum()),
        first_moment=float(np.abs(weights) @ np.abs(losses)),
        envelope=(np.zeros((1, 1)), np.zeros((1, 1)), 0.0),
    )


def test_log1p_complex_is_relatively_accurate_for_small_arguments() -> None:
    """NumPy's loses every digit of the real part below 1e-16; this one none, down to 1e-300."""
    arguments = [
        complex(size * math.cos(angle), size * math.sin(angle))
        for size in (1e-300, 1e-30, 1e-17, 1e-12, 1e-7, 1e-3, 0.2, 0.9, 4.0, 1e8)
        for angle in (0.0, 0.4, 1.2, 2.0, 2.9, -0.7, -2.5)
    ]
    for argument, found in zip(arguments, log1p_complex(np.array(arguments)), strict=True):
        with mp.workdps(700):
            truth = mp.log(1 + mp.mpc(argument))
        # The real part of log(1 + y) is conditioned like |y|, not like itself.
        assert abs(found.imag - float(truth.imag)) <= 1e-15 * abs(argument)
        assert abs(found.real - float(truth.real)) <= 1e-15 * min(abs(argument), 1.0 + abs(float(truth.real)))
        if 0.1 < abs(cmath.phase(argument)) < 1.5 and abs(argument) < 1e-3:
            assert float(found.real) == pytest.approx(float(truth.real), rel=1e-14)


def test_log1p_complex_near_the_pole_is_finite() -> None:
    found = log1p_complex(np.array([-1.0 + 0.0j, -1.0 + 1e-200j, -2.0 + 1e-3j]))
    assert np.isfinite(found).all()
    assert found[2] == pytest.approx(cmath.log(-1.0 + 1e-3j), rel=1e-15)


@pytest.mark.parametrize(("blocks", "width"), [(1, 1), (1, 7), (7, 1), (6, 5)])
def test_the_matrix_product_is_the_sum_it_stands_for(blocks: int, width: int) -> None:
    """1 + sum of w (e^(itl) - 1) at every point of the grid, in order, within the rounding that is told."""
    weights = np.array([0.3 - 0.1j, 0.5 + 0.2j, 0.2 - 0.1j, 1e-9 + 1e-10j])
    losses = np.array([0.8 + 0.1j, -0.4 + 0.02j, 1e-9 + 0.0j, 60.0 + 3.0j])
    line = small_line(weights, losses)
    spacing = 0.37
    logs, quadrature, rounding = line.log_ratios(blocks, width, spacing)
    assert logs.shape == quadrature.shape == rounding.shape == (blocks * width,)
    assert not quadrature.any()
    for k in range(blocks * width):
        with mp.workdps(40):
            t = mp.mpf(k) * mp.mpf(spacing)
            terms = [mp.mpc(w) * mp.expm1(1j * t * mp.mpc(loss)) for w, loss in zip(weights, losses, strict=True)]
            truth = 1 + mp.fsum(terms)
            error = abs(mp.exp(mp.mpc(logs[k])) - truth) / abs(truth)
        assert float(error) <= math.expm1(rounding[k]) + 4e-16


def test_the_matrix_product_keeps_the_digits_of_a_small_change() -> None:
    """With weights of 1e-12 the logarithm is 1e-12 and still has 14 digits."""
    weights, losses = np.array([1e-12 + 3e-13j, 2e-12 - 1e-13j]), np.array([0.3 + 0.1j, -1.0 + 0.2j])
    logs, _, _ = small_line(weights, losses).log_ratios(3, 4, 0.9)
    for k in range(1, 12):
        with mp.workdps(40):
            t = k * mp.mpf(0.9)
            terms = [mp.mpc(w) * mp.expm1(1j * t * mp.mpc(loss)) for w, loss in zip(weights, losses, strict=True)]
            truth = complex(mp.log1p(mp.fsum(terms)))
        assert abs(logs[k] - truth) <= 1e-14 * abs(truth)


def test_errors_are_of_the_modulus_where_the_ratio_nearly_vanishes() -> None:
    """1 + sum of w (e^(itl) - 1) = 0 at some t: the logarithm is useless there, the bound still holds."""
    weights, losses = np.array([0.5 + 0.0j]), np.array([1.0 + 0.0j])
    line = small_line(weights, losses)
    logs, _, rounding = line.log_ratios(1, 2, math.pi)
    assert abs(np.exp(logs[1])) <= math.exp(logs[1].real) * math.expm1(min(rounding[1], 700.0)) + 1e-300


def test_error_of_exponential_bounds_what_an_error_of_the_exponent_does() -> None:
    logs = np.array([-700.0, -30.0, 0.0, 3.0]) + 0.4j
    for error in (1e-18, 1e-9, 0.3, 20.0, 200.0):
        bound = error_of_exponential(logs, np.full(4, error))
        assert np.isfinite(bound).all()
        for phase in (0.0, 1.0, 3.0, -1.5):
            moved = np.exp(logs) * np.expm1(np.minimum(error, 600.0) * np.exp(1j * phase))
            assert np.all(np.abs(moved) <= np.maximum(bound, 0.0) * (1.0 + 1e-12) + 1e-300) or error == 200.0
    assert np.all(np.diff([error_of_exponential(logs, np.full(4, e))[2] for e in (1e-9, 1.0, 29.0, 31.0, 90.0)]) > 0.0)


def test_log_kernel_is_the_supremum_it_stands_for() -> None:
    """B(x) = sup over y of e^(-xy) (1 - e^-y), with B(0) = 1."""
    tilts = np.array([0.0, 1e-9, 0.01, 0.5, 1.0, 7.0, 1e4])
    y = np.geomspace(1e-8, 60.0, 20001)
    for tilt, log_bound in zip(tilts, log_kernel(tilts), strict=True):
        reached = (np.log(-np.expm1(-y)) - tilt * y).max()
        assert reached <= log_bound + 1e-14 * (1.0 + abs(log_bound))
        assert reached >= log_bound - 1e-4


def test_tables_of_several_steps_add_up_with_their_errors() -> None:
    tilts = np.array([0.1, 1.0])
    one = TiltTable.of(tilts, np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0]), np.array([1e-9, 2e-9]))
    seven = one.times(7)
    assert seven.errors.tolist() == (7 * one.errors).tolist()
    both = seven.plus(one)
    for name in ("moments", "means", "variances", "errors"):
        assert getattr(both, name) == pytest.approx(8.0 * getattr(one, name), rel=1e-15)
    assert both.where(np.array([False, True])).errors.tolist() == [1.6e-8]
    assert both.tilts.tolist() == seven.tilts.tolist() == tilts.tolist()


def test_a_step_tells_its_participation_and_its_largest_loss() -> None:
    for kind in Pair:
        step = GaussianPairStep(GaussianPair(kind, 0.8, 0.2), 44.0)
        assert step.participation == 0.2
        assert step.largest_loss == (-math.log1p(-0.2) if kind is Pair.ADD else math.inf)
