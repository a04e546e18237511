"""The bound of accelerated mirror descent: worked numbers, geometries, the best number of steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrators.wang_erm.accelerated import Accelerated, Entropic, Euclidean

#: zCDP noise of one step at n = 10^4, epsilon 1, delta 1e-6, G = 1: sqrt(2 / rho) / n.
ZCDP_STEP = math.sqrt(2.0 / 0.01746890477) / 1e4


def test_the_worked_numbers_of_the_l2_ball() -> None:
    ball = Euclidean(radius=2.0, dimension=5)
    assert ball.width == pytest.approx(4.255384324, rel=1e-9)
    assert (ball.dual_moment, ball.divergence) == (20.0, 0.5)
    # Gaussian Poincare: W <= G_C^2 + |C|^2 / 4, the squared diameter 16 by 4.
    assert ball.width**2 + 4.0 == pytest.approx(22.10829575, rel=1e-9)
    theorem = Accelerated(ball, smoothness=1.0)
    assert theorem.scaled_smoothness == 4.0
    assert theorem.bound(0.1, 20) == pytest.approx(0.2239795918, rel=1e-9)


@pytest.mark.parametrize(
    ("dimension", "width", "moment"), [(10, 1.880715694, 3.799620856), (1000, 3.435410191, 11.91418414)]
)
def test_the_worked_numbers_of_the_l1_ball(dimension: int, width: float, moment: float) -> None:
    ball = Entropic(radius=1.0, dimension=dimension)
    assert ball.width == pytest.approx(width, rel=1e-9)
    assert ball.dual_moment == pytest.approx(moment, rel=1e-9)
    assert ball.divergence == pytest.approx(math.log(2 * dimension))
    assert ball.dual_moment <= ball.width**2 + 1.0
    assert Entropic(3.0, dimension).dual_moment == pytest.approx(9.0 * moment, rel=1e-9)


def test_the_worked_number_of_steps() -> None:
    theorem = Accelerated(Euclidean(radius=2.0, dimension=5), smoothness=1.0)
    assert theorem.best_iterations(ZCDP_STEP) == 63
    assert theorem.bound(ZCDP_STEP * math.sqrt(63), 63) == pytest.approx(0.007843715115, rel=1e-9)
    assert math.sqrt(4.0 * math.sqrt(24.0 / (20.0 * ZCDP_STEP**2))) == pytest.approx(63.99325892, rel=1e-9)


def test_the_chosen_number_of_steps_has_the_least_bound_of_all() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        geometry = rng.choice([Euclidean, Entropic])(10.0 ** rng.uniform(-2, 2), int(rng.integers(1, 200)))
        theorem = Accelerated(geometry, 10.0 ** rng.uniform(-2, 2))
        noise = theorem.smoothness * geometry.radius * 10.0 ** rng.uniform(-4, 1)
        chosen = theorem.best_iterations(noise)
        bounds = [theorem.bound(noise * math.sqrt(count), count) for count in range(1, 2 * chosen + 3)]
        assert bounds[chosen - 1] == pytest.approx(min(bounds), rel=1e-12)


def test_the_moments_are_those_of_simulated_noise_whatever_the_size() -> None:
    noise = np.abs(np.random.default_rng(1).standard_normal((200_000, 7)))
    largest = noise.max(axis=1)
    ball = Entropic(1.0, 7)
    assert ball.width == pytest.approx(largest.mean(), abs=5.0 * largest.std() / 447.0)
    assert ball.dual_moment == pytest.approx((largest**2).mean(), abs=5.0 * (largest**2).std() / 447.0)
    one = Entropic(1.0, 1)
    assert (one.width, one.dual_moment) == (pytest.approx(math.sqrt(2.0 / math.pi)), pytest.approx(1.0))
    # E max |N_j| is below sqrt(2 ln 2p), and near it for many.
    many = Entropic(1.0, 10**10)
    assert 0.95 < many.width / math.sqrt(2.0 * math.log(2e10)) < 1.0
    assert Euclidean(1.0, 10**6).width == pytest.approx(Euclidean(1.0, 10**6 - 1).width, rel=1e-6)
