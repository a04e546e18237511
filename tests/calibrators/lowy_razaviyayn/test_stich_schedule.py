"""The explicit schedule: worked vectors, and its constants against linear programmes over every sequence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from calibrators.lowy_razaviyayn.stich_schedule import (
    Schedule,
    closed_form,
    constant_schedule,
    is_constant,
    stich_schedule,
)

CASES = [(8, 0.5, 1.5), (3, 0.5, 4.5), (1, 1.0, 1.0), (2, 1.0, 1.0), (50, 1.0, 1.0), (20, 0.1, 2.0), (21, 0.1, 2.0)]
CASES += [(9, 0.5, 4.5), (10, 0.5, 4.5), (100, 0.1, 2.0), (213, 0.5, 4.5), (300, 0.3, 0.5)]
schedules = pytest.mark.parametrize(("last", "a", "g"), CASES)


def largest_weighted_risk(schedule: Schedule, r0: float, c: float, e: float, *, last_distance: float = 0.0) -> float:
    """max of (b/Z) sum zeta_t s_t + last_distance r_{T+1} over nonnegative sequences that obey the recursion, b = 2."""
    a, eta, zeta = schedule.contraction, np.array(schedule.step_sizes), np.array(schedule.weights)
    n = eta.size
    rows, right = np.zeros((n, 2 * n)), c * eta**2 + e * eta
    right[0] += (1.0 - a * eta[0]) * r0
    rows[np.arange(n), np.arange(n)] = 1.0
    rows[np.arange(1, n), np.arange(n - 1)] = -(1.0 - a * eta[1:])
    rows[np.arange(n), n + np.arange(n)] = 2.0 * eta
    objective = np.concatenate([np.zeros(n), -2.0 * zeta])
    objective[n - 1] = -last_distance
    found = linprog(objective, A_ub=rows, b_ub=right, method="highs")
    assert found.success
    return float(-found.fun)


def test_the_worked_schedules():
    decreasing = stich_schedule(8, 0.5, 1.5)
    expected = [0.6666666667] * 5 + [0.5714285714, 0.5, 0.4444444444, 0.4]
    np.testing.assert_allclose(decreasing.step_sizes, expected, rtol=1e-9)
    np.testing.assert_allclose(decreasing.weights, [0, 0, 0, 0, 0.15, 0.175, 0.2, 0.225, 0.25], atol=1e-14)
    constant = stich_schedule(3, 0.5, 4.5)
    np.testing.assert_allclose(constant.step_sizes, [0.2222222222] * 4, rtol=1e-9)
    np.testing.assert_allclose(constant.weights, [0.2077079108, 0.2336713996, 0.2628803245, 0.2957403651], rtol=1e-9)
    trainer = stich_schedule(2, 0.5, 1.5)
    np.testing.assert_allclose(trainer.step_sizes, [0.6666666667] * 3, rtol=1e-9)
    np.testing.assert_allclose(trainer.weights, [0.2105263158, 0.3157894737, 0.4736842105], rtol=1e-9)


def test_an_odd_number_of_rounds_takes_the_longer_half_without_weight():
    schedule = stich_schedule(9, 0.5, 1.5)
    assert [weight > 0.0 for weight in schedule.weights] == [False] * 5 + [True] * 5
    assert schedule.step_sizes[5:7] == pytest.approx([2.0 / 3.0, 4.0 / 7.0])


@schedules
def test_a_schedule_is_feasible(last, a, g):
    schedule = stich_schedule(last, a, g)
    assert len(schedule.step_sizes) == len(schedule.weights) == last + 1
    assert max(schedule.step_sizes) <= 1.0 / g
    assert min(schedule.step_sizes) > 0.0
    assert math.fsum(schedule.weights) == pytest.approx(1.0, abs=1e-14)
    assert all(later <= earlier for earlier, later in zip(schedule.step_sizes, schedule.step_sizes[1:], strict=False))


@pytest.mark.one_in(3)
@schedules
@pytest.mark.parametrize("parts", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.3, 0.2)])
def test_the_worst_case_is_attained_and_the_closed_form_is_above_it(last, a, g, parts):
    schedule = stich_schedule(last, a, g)
    evaluated = schedule.worst_case(*parts)
    assert evaluated == pytest.approx(largest_weighted_risk(schedule, *parts), rel=1e-6, abs=1e-12)
    assert evaluated <= closed_form(last, a, g, *parts) * (1.0 + 1e-12)


@schedules
def test_little_of_stichs_bound_is_used(last, a, g):
    schedule = stich_schedule(last, a, g)
    start = largest_weighted_risk(schedule, 1.0, 0.0, 0.0, last_distance=a)
    noise = largest_weighted_risk(schedule, 0.0, 1.0, 0.0, last_distance=a)
    assert start <= 0.02 * 32.0 * g * math.exp(-a * last / (2.0 * g))
    assert noise <= 2.0 / 9.0 * 36.0 / (a * last), "8 for 36, which long runs tend to"


@pytest.mark.parametrize("step_size", [0.01, 0.1, 0.2])
def test_the_weights_of_an_own_step_size_make_its_worst_case_attained(step_size):
    schedule = constant_schedule(40, 0.5, step_size)
    evaluated = schedule.worst_case(1.0, 0.3, 0.2)
    assert evaluated == pytest.approx(largest_weighted_risk(schedule, 1.0, 0.3, 0.2), rel=1e-6)
    remaining = (1.0 - 0.5 * step_size) ** 41
    start = 0.5 * remaining / (1.0 - remaining)
    assert evaluated == pytest.approx(start + 0.3 * step_size + 0.2, rel=1e-12)


def test_a_step_too_long_to_weigh_leaves_the_last_point():
    assert constant_schedule(3, 0.5, 4.0).weights == (0.0, 0.0, 0.0, 1.0)


def test_weights_of_a_long_run_do_not_overflow():
    schedule = constant_schedule(99_999, 1.0, 0.3)
    assert math.fsum(schedule.weights) == pytest.approx(1.0)
    assert schedule.worst_case(1.0, 0.0) < 1e-200


def test_noise_and_drift_may_differ_from_step_to_step():
    schedule = stich_schedule(30, 0.5, 1.5)
    many = schedule.worst_case(1.0, np.full(31, 0.3), np.full(31, 0.2))
    assert many == pytest.approx(schedule.worst_case(1.0, 0.3, 0.2), rel=1e-12)


def test_the_branches_meet_at_g_over_a():
    assert is_constant(9, 0.5, 4.5)
    assert not is_constant(10, 0.5, 4.5)
