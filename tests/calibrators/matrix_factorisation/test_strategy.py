"""The least error of banded Toeplitz matrices: worked numbers, derivatives, dense matrices, other searches."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.signal import lfilter

from accounting.errors import Unsupported
from accounting.factorisations import Array, square_root
from calibrators.correlation import Objective
from calibrators.matrix_factorisation import strategy
from calibrators.matrix_factorisation.strategy import Workload, evaluated, noise_of_steps, on_grid, optimal, start
from calibrators.plan import MAX_COEFFICIENT_BITS
from calibrators.step_sizes import Course, StepSizeSchedule

MEAN, MAX = Objective.MEAN, Objective.MAX
FALLING = tuple(1.0 - t / 200 for t in range(200))


def dense_errors(workload: Workload, coefficients: Array) -> Array:
    """|B_t| of every step, B = A C^-1, with matrices written out."""
    steps = workload.steps
    sizes = np.ones(steps) if workload.step_sizes is None else np.array(workload.step_sizes)
    c = sum(value * np.eye(steps, k=-lag) for lag, value in enumerate(coefficients[:steps]))
    a = np.zeros((steps, steps))
    if workload.step_sizes is None:
        for t in range(steps):
            for i in range(t + 1):
                a[t, i] = sum(workload.momentum**k for k in range(t - i + 1)) if workload.momentum else 1.0
        # a(x) = 1/((1-x)(1-beta x)): prefix sums of the powers of beta.
        return np.sqrt(np.sum((a @ np.linalg.inv(c)) ** 2, axis=1))
    for t in range(steps):
        for i in range(t + 1):
            r = np.arange(i, t + 1)
            a[t, i] = np.sum(sizes[r] * workload.momentum ** (r - i))
    return np.sqrt(np.sum((a @ np.linalg.inv(c)) ** 2, axis=1))


@pytest.mark.parametrize(
    ("workload", "bands", "objective", "scale", "error", "first", "last"),
    [
        (Workload(1000), 2, MEAN, 1.0, 15.920322, 0.750153, 0.661264),
        (Workload(1000), 2, MAX, 1.0, 22.449679, None, None),
        (Workload(2000), 8, MEAN, 1.0, 11.579958, 0.469516, 0.282178),
        (Workload(2000), 8, MAX, 1.0, 16.166878, None, None),
        (Workload(2000, 0.9), 16, MEAN, 0.1, 7.933417, None, None),
        (Workload(10_000), 4, MEAN, 1.0, 35.52, None, None),
    ],
)
def test_worked_optima(workload, bands, objective, scale, error, first, last):
    found = optimal(workload, bands, objective)
    assert scale * found.least == pytest.approx(error, abs=6e-3 if error == 35.52 else 1e-6)
    assert found.at(objective) == pytest.approx(found.least, rel=2.1e-5)
    if first is not None:
        assert (found.coefficients[0], found.coefficients[-1]) == pytest.approx((first, last), abs=2e-3)


def test_worked_errors_without_bands_and_of_the_whole_root():
    assert evaluated(Workload(2000, 0.9), (1.0,))[0] * 0.1 == pytest.approx(31.413931, abs=1e-6)
    root = square_root(1000)
    mean, largest = evaluated(Workload(1000), tuple(root))
    norm = float(np.linalg.norm(root))
    assert norm * largest == pytest.approx(3.265003080672, abs=1e-11)
    assert norm * mean == pytest.approx(3.102239063529, abs=1e-11)


def test_the_root_that_is_cut_is_worse_by_what_was_worked_out():
    for bands, steps, excess in ((2, 2000, 0.05), (8, 2000, 0.15), (32, 2000, 0.16), (64, 10_000, 0.25)):
        cut = square_root(bands)
        attained = float(np.linalg.norm(cut)) * evaluated(Workload(steps), tuple(cut))[0]
        assert attained / optimal(Workload(steps), bands).least - 1.0 == pytest.approx(excess, abs=0.011)


def test_with_step_sizes_and_momentum_the_error_is_less_than_with_a_matrix_for_plain_sums():
    """The matrix for plain sums of equal steps has 2.4552 here, and its last step 2.9086."""
    workload = Workload(200, 0.9, FALLING)
    found = optimal(workload, 8)
    assert 0.1 * found.least == pytest.approx(2.357176, abs=2e-6)
    plain = optimal(Workload(200), 8)
    mean, largest = evaluated(workload, plain.coefficients)
    assert (0.1 * mean, 0.1 * largest) == pytest.approx((2.455159, 2.908607), rel=5e-5)
    alone = evaluated(workload, (1.0,))
    assert (0.1 * alone[0], 0.1 * alone[1]) == pytest.approx((6.399478, 7.651156), abs=1e-6)


WORKLOADS = [Workload(40), Workload(40, 0.8), Workload(40, 0.0, FALLING[:40]), Workload(40, 0.7, FALLING[80:120])]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_errors_are_those_of_the_matrices_written_out(workload):
    random = np.random.default_rng(7)
    for bands in (1, 2, 5, 40):
        coefficients = np.sort(random.uniform(0.1, 1.0, bands))[::-1]
        dense = dense_errors(workload, coefficients)
        mean, largest = evaluated(workload, tuple(coefficients))
        assert mean == pytest.approx(math.sqrt(np.mean(dense**2)), rel=1e-12)
        assert largest == pytest.approx(np.max(dense), rel=1e-12)


@pytest.mark.parametrize(
    ("workload", "objective"),
    [
        (workload, objective)
        for workload in (*WORKLOADS, Workload(9000), Workload(9000, 0.8))
        for objective in Objective
        if workload.step_sizes is None or objective is not MAX
    ],
)
def test_derivatives_are_differences(workload, objective):
    error = strategy._error_of(workload)
    coefficients = np.array([1.0, 0.6, 0.5, 0.3])
    _, slope = error.value_and_slope(coefficients, objective)
    for index in range(4):
        moved = [coefficients.copy() for _ in range(2)]
        moved[0][index] += 1e-6
        moved[1][index] -= 1e-6
        above, below = (error.value_and_slope(each, objective)[0] for each in moved)
        assert slope[index] == pytest.approx((above - below) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("steps", [129, 1000])
def test_columns_between_those_of_the_search_are_nearly_on_the_line(steps):
    """With all columns the search finds the same, and its value is that of the answer to six digits."""
    shares = StepSizeSchedule(Course.COSINE, 0.4, 0.05).shares(steps)
    error = strategy._error_of(Workload(steps, 0.8, shares))
    coefficients = np.array([1.0, 0.6, 0.5, 0.3])
    value, _ = error.value_and_slope(coefficients, MEAN)
    exact = error.mean_and_largest(coefficients)[0] ** 2 * float(coefficients @ coefficients)
    assert value == pytest.approx(exact, rel=1e-4)
    places, weights = strategy._columns(steps)
    assert (places[0], places[-1]) == (0, steps - 1)
    assert float(weights @ (3.0 - places)) == pytest.approx(3.0 - (steps - 1) / 2, rel=1e-12)
    found = optimal(Workload(steps, 0.8, shares), 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy, "_COLUMNS", steps)
        optimal.cache_clear()
        assert optimal(Workload(steps, 0.8, shares), 6).least == pytest.approx(found.least, rel=1e-7)


@pytest.mark.parametrize("momentum", [0.0, 0.95])
def test_rows_that_have_settled_are_summed_up_as_if_they_were_computed(momentum):
    steps, coefficients = 60_000, (0.5, 0.4, 0.3)
    series = lfilter([1.0], [1.0, -momentum], np.ones(steps))
    d = lfilter([1.0], coefficients, series)
    mean, largest = evaluated(Workload(steps, momentum), coefficients)
    assert mean == pytest.approx(math.sqrt(np.sum((1.0 - np.arange(steps) / steps) * d * d)), rel=1e-11)
    assert largest == pytest.approx(math.sqrt(d @ d), rel=1e-11)
    value, slope = strategy._error_of(Workload(steps, momentum)).value_and_slope(np.array(coefficients), MEAN)
    weights = 1.0 - np.arange(steps) / steps
    u = lfilter([1.0], coefficients, d)
    square, energy = 0.5**2 + 0.4**2 + 0.3**2, float(weights @ (d * d))
    assert value == pytest.approx(square * energy, rel=1e-11)
    met = np.array([(weights * d)[lag:] @ u[: steps - lag] for lag in range(3)])
    assert slope == pytest.approx(2.0 * np.array(coefficients) * energy - 2.0 * square * met, rel=1e-9)


@pytest.mark.parametrize("workload", [Workload(30), Workload(30, 0.8), Workload(30, 0.5, FALLING[:30])])
def test_no_other_search_finds_less(workload):
    """Nelder and Mead's, on the matrices written out, and without derivatives."""

    def attained(ratios: Array) -> float:
        coefficients = np.exp(-np.concatenate([[0.0], np.cumsum(np.abs(ratios))]))
        return float(np.linalg.norm(coefficients)) * math.sqrt(np.mean(dense_errors(workload, coefficients) ** 2))

    other = minimize(attained, np.full(3, 0.2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    assert optimal(workload, 4).least == pytest.approx(other.fun, rel=1e-6)


@pytest.mark.parametrize("bands", [3, 5, 9])
def test_random_starts_end_at_the_same_error(bands):
    workload, random = Workload(800), np.random.default_rng(bands)
    error, least = strategy._error_of(workload), optimal(workload, bands).least
    for _ in range(3):
        begin = np.sort(random.uniform(0.05, 1.0, bands))[::-1]
        found = strategy._least(error, begin, MEAN)
        assert np.linalg.norm(found) * error.mean_and_largest(found)[0] == pytest.approx(least, rel=1e-9)


def test_more_bands_never_have_more_error():
    found = [optimal(Workload(500), bands).least for bands in range(1, 20)]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(math.sqrt(501 / 2), rel=1e-12)


def test_bands_of_all_steps_come_near_to_the_root():
    """No lower triangular Toeplitz matrix has less of the largest error than the root of prefix sums."""
    root = square_root(64)
    assert optimal(Workload(64), 64, MAX).least == pytest.approx(float(root @ root), rel=1e-9)


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=40),
    st.integers(8, MAX_COEFFICIENT_BITS),
)
def test_coefficients_on_a_grid_are_exact_do_not_increase_and_have_a_norm_of_at_most_one(values, bits):
    given_ones = np.sort(np.array(values))[::-1]
    found = on_grid(given_ones, bits)
    exact = [Fraction(value) for value in found.tolist()]
    assert all((value * 2**bits).denominator == 1 for value in exact)
    assert exact == sorted(exact, reverse=True)
    assert 0 < sum(value * value for value in exact) <= 1
    assert np.max(np.abs(found - given_ones / np.linalg.norm(given_ones))) <= 1.5 * 2.0**-bits


@pytest.mark.parametrize(("steps", "bands"), [(1000, 1), (1000, 2), (2000, 8), (2000, 32), (1_000_000, 16)])
def test_rounding_takes_few_bits_and_costs_next_to_nothing(steps, bands):
    found = optimal(Workload(steps), bands)
    bits = max(Fraction(value).denominator.bit_length() - 1 for value in found.coefficients)
    assert bits <= 14
    assert found.least * (1.0 - 1e-9) <= found.mean <= found.least * (1.0 + 2.1e-5)


def test_the_noise_of_one_step_is_that_of_a_row_of_the_inverse():
    least = strategy._least(strategy._error_of(Workload(2000)), start(Workload(2000), 8), MEAN)
    first, last = noise_of_steps(tuple(least / np.linalg.norm(least)), 2000)
    assert (first, last) == pytest.approx((2.13, 3.28), abs=0.006)
    found = optimal(Workload(2000), 8)
    assert noise_of_steps(found.coefficients, 2000) == pytest.approx((first, last), rel=0.01)
    inverse = np.linalg.inv(sum(value * np.eye(30, k=-lag) for lag, value in enumerate(found.coefficients)))
    assert noise_of_steps(found.coefficients, 30)[1] == pytest.approx(np.linalg.norm(inverse[-1]), rel=1e-12)
    assert noise_of_steps((0.5, 0.25), 10**6)[1] == pytest.approx(2.0 / math.sqrt(0.75), rel=1e-12)


def test_few_steps_have_optima_too():
    """Of two steps with two bands: c = (1, v) has (1 + v^2)(2 + (1 - v)^2) / 2, least at a root of its derivative."""
    assert [optimal(Workload(steps), 1).least for steps in (1, 2)] == pytest.approx([1.0, math.sqrt(1.5)])
    v = np.roots([2.0, -3.0, 4.0, -1.0])
    v = float(v[np.isreal(v)].real[0])
    assert optimal(Workload(2), 2).least == pytest.approx(math.sqrt((1 + v * v) * (2 + (1 - v) ** 2) / 2), rel=1e-9)


def test_the_search_begins_at_the_root_of_the_workload():
    for momentum in (0.0, 0.9):
        root = start(Workload(20, momentum), 20)
        series = lfilter([1.0], [1.0, -momentum], np.ones(20))
        assert np.convolve(root, root)[:20] == pytest.approx(series, rel=1e-12)


@pytest.mark.parametrize(
    ("workload", "bands", "objective", "pointer"),
    [
        (Workload(strategy.MOST_SIZES + 1, 0.0, (1.0,) * (strategy.MOST_SIZES + 1)), 2, MEAN, ("step_size_schedule",)),
        (Workload(40, 0.0, FALLING[:40]), 2, MAX, ("correlation", "objective")),
        (Workload(10**9), 32, MEAN, ("iterations",)),
    ],
)
def test_what_is_not_computed_is_refused(workload, bands, objective, pointer):
    with pytest.raises(Unsupported) as caught:
        optimal(workload, bands, objective)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_many_more_steps_than_rows_are_computed_are_summed_up_in_closed_form(momentum: float) -> None:
    """With C = 1 row i of the workload adds d_i = (1 - beta^(i+1)) / (1 - beta)."""
    steps, beta = 10**8, momentum
    _, largest = evaluated(Workload(steps, momentum), (1.0,))
    exact = (steps - 2.0 * beta / (1.0 - beta) + beta**2 / (1.0 - beta**2)) / (1.0 - beta) ** 2
    assert largest**2 == pytest.approx(exact, rel=1e-12)
