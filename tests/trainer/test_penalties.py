"""Proximal steps and gradients of penalties, alone and followed by a projection."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
from scipy import optimize

from calibrators.geometry import Box, Domain, L1Ball, L1Penalty, L2Ball, L2Penalty, LpBall, Penalty, Simplex
from trainer.loop import Step
from trainer.penalties import gradient, prox

PENALTIES: list[Penalty] = [L2Penalty(0.8), L1Penalty(0.6)]
DOMAINS: list[Domain | None] = [
    None,
    L2Ball(0.9),
    L1Ball(1.1),
    LpBall(1.5, 0.8),
    LpBall(4.0, 0.8),
    Box(-0.3, 0.8),
    Box(0.2, 0.8),
    Simplex(1.0),
]


def value(penalty: Penalty, x: np.ndarray) -> float:
    if isinstance(penalty, L2Penalty):
        return 0.5 * penalty.strength * float(np.sum(x * x))
    return penalty.strength * float(np.sum(np.abs(x)))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_prox_is_the_minimiser(penalty: Penalty) -> None:
    """(y - x) / step_size is in the penalty's subdifferential at x."""
    y, step_size = np.random.default_rng(1).normal(size=50), 0.7
    x = prox(penalty, np, y, step_size)
    slopes = (y - x) / step_size
    if isinstance(penalty, L2Penalty):
        np.testing.assert_allclose(slopes, penalty.strength * x, rtol=1e-12)
        return
    away = x != 0.0
    assert 5 < np.count_nonzero(away) < 45
    np.testing.assert_allclose(slopes[away], penalty.strength * np.sign(x[away]), rtol=1e-12)
    assert np.all(np.abs(slopes[~away]) <= penalty.strength)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.one_in(16)
def test_projected_prox_is_the_constrained_prox(penalty: Penalty, domain: Domain | None) -> None:
    """No point of the domain is better: against points nearby, and against what a search finds."""
    rng = np.random.default_rng(2)
    step = Step(np.zeros(0), 1, 0.7, domain, penalty)

    def objective(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.sum((x - y) ** 2)) / (2.0 * 0.7) + value(penalty, x)

    for _ in range(10):
        y = 1.5 * rng.normal(size=4)
        ours = step.project(step.prox(y))
        least = objective(ours, y)
        for size in (1e-3, 1e-2, 0.1, 1.0):
            for _ in range(50):
                other = step.project(ours + size * rng.normal(size=4))
                assert objective(other, y) >= least - 1e-9
        found = optimize.minimize(lambda x, y=y: objective(step.project(x), y), y, method="Nelder-Mead")
        assert found.fun >= least - 1e-9


@pytest.mark.parametrize("penalty", PENALTIES)
def test_gradients_are_the_derivative(penalty: Penalty) -> None:
    x, h = np.random.default_rng(3).normal(size=6), 1e-6
    slopes = [(value(penalty, x + h * e) - value(penalty, x - h * e)) / (2.0 * h) for e in np.eye(6)]
    np.testing.assert_allclose(gradient(penalty, x), slopes, rtol=1e-8)
    assert gradient(penalty, np.zeros(3)).tolist() == [0.0] * 3


def test_without_a_penalty_nothing_happens() -> None:
    y = np.array([1.0, -2.0])
    assert prox(None, np, y, 0.5) is y
    assert gradient(None, y).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_any_array_library_gives_the_same(penalty: Penalty) -> None:
    y = np.random.default_rng(5).normal(size=9)
    strict = array_api_strict.asarray(y)
    np.testing.assert_array_equal(np.asarray(prox(penalty, array_api_strict, strict, 0.3)), prox(penalty, np, y, 0.3))
    np.testing.assert_array_equal(np.asarray(gradient(penalty, strict)), gradient(penalty, y))
