from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.events import Event, Laplace
from accounting.groups import group_delta_for_epsilon, group_epsilon_for_delta
from accounting.losses.laplace import LaplaceLoss
from accounting.relations import NeighboringRelation

EPSILONS = [1e-6, 1e-3, 0.1, 2.0, 50.0, 900.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@mp.workdps(60)
def test_moment_is_exact_and_rounded_up(epsilon: float) -> None:
    for tilt in (1e-3, 0.5, 1.0, 30.0, 1000.0):
        e, x = mp.mpf(epsilon), mp.mpf(tilt)
        exact = mp.log(((x + 1) * mp.exp(x * e) + x * mp.exp(-(x + 1) * e)) / (2 * x + 1))
        value = float(LaplaceLoss(epsilon).log_moment(np.array([tilt]))[0])
        assert 0 <= value / exact - 1 < 3e-12


@pytest.mark.parametrize("epsilon", EPSILONS)
@mp.workdps(60)
def test_zcdp_rho_bounds_the_moments_and_is_attained(epsilon: float) -> None:
    loss = LaplaceLoss(epsilon)
    e = mp.mpf(epsilon)
    rho = mp.mpf(loss.zcdp_rho) * (1 + mp.mpf(10) ** -12)
    assert abs(loss.zcdp_rho / (e + mp.exp(-e) - 1) - 1) < 1e-12
    assert rho <= e * e / 2 * (1 + mp.mpf(10) ** -11)
    for order in ("1.0001", "1.5", "2", "8", "300"):
        a = mp.mpf(order)
        divergence = mp.log((a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)) / (2 * a - 1)) / (a - 1)
        assert divergence <= rho * a
    near_one = mp.mpf("1.00000001")
    divergence = mp.log(near_one * mp.exp((near_one - 1) * e) + (near_one - 1) * mp.exp(-near_one * e))
    divergence = (divergence - mp.log(2 * near_one - 1)) / (near_one - 1)
    assert divergence >= rho * mp.mpf("0.9999")


@pytest.mark.thorough
@mp.workdps(60)
def test_excess_is_the_integral_of_the_densities() -> None:
    loss = LaplaceLoss(1.5)
    for epsilon in (0.0, 0.3, 1.2, 1.5, 2.0):
        exact = mp.quad(
            lambda x, e=epsilon: max(mp.exp(-abs(x - 1.5)) / 2 - mp.exp(e) * mp.exp(-abs(x)) / 2, mp.mpf(0)),
            [-5, 0, (1.5 + epsilon) / 2, 1.5, 4, 60],
        )
        assert float(loss.excess(np.array([epsilon]))[0]) == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("size", [1, 3])
def test_near_its_largest_loss_the_truth_is_still_inside(size: int) -> None:
    """The largest loss is a rounded quotient, and a small delta is decided by its last digits."""
    rng = np.random.default_rng(7)
    for _ in range(100):
        noise, share = math.exp(rng.uniform(-2.0, 3.0)), math.exp(rng.uniform(-32.0, -2.0))
        event, relation = Event(Laplace(noise)), NeighboringRelation.ADD_OR_REMOVE_ONE
        with mp.workdps(50):
            largest = size / mp.mpf(noise)
            epsilon = float(largest * (1 - share))
            exact_delta = -mp.expm1((epsilon - largest) / 2)
            delta = group_delta_for_epsilon([event], relation, epsilon, size).value
            assert delta.lower <= exact_delta <= delta.upper
            exact_epsilon = largest + 2 * mp.log1p(-mp.mpf(delta.upper))
            found = group_epsilon_for_delta([event], relation, delta.upper, size).value
            assert found.lower <= exact_epsilon <= found.upper
