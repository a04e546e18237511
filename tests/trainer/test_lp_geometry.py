"""Steps in l_p balls: worked numbers, and optimality against points of the ball."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from trainer.lp_geometry import dual_map, least_in_ball, mirror_step, norm


def ball(rng: np.random.Generator, p: float, d: int, radius: float) -> np.ndarray:
    points = rng.normal(size=(400, d))
    points *= radius / np.linalg.norm(points, p, axis=1)[:, None]
    points[::2] *= rng.uniform(size=(200, 1))
    return points


def test_the_worked_vertex_and_steps() -> None:
    found = least_in_ball(np, np.array([3.0, -4.0]), 1.5, 1.0)
    assert found == pytest.approx([-0.44485135173054, 0.79084684752095], rel=1e-13)
    y, g = np.array([0.5, -0.2, 0.1]), np.array([1.0, 0.5, -2.0])
    free = mirror_step(np, y, g, 0.1, 1.5, 10.0)
    assert free == pytest.approx([0.4166720245914, -0.2314787403509, 0.19905049059221], rel=1e-12)
    held = mirror_step(np, y, g, 0.1, 1.5, 0.3)
    assert held == pytest.approx([0.20703712084642, -0.11501778163869, 0.09890474532264], rel=1e-12)


@pytest.mark.parametrize("p", [1.0 + 1e-9, 1.001, 1.1, 1.5, 2.0])
def test_no_point_of_the_ball_is_better(p: float) -> None:
    rng, radius, eta = np.random.default_rng(4), 0.7, 0.3
    for scale in (1e-150, 1e-3, 1.0, 1e150):
        g = rng.normal(size=5) * scale
        points = ball(rng, p, 5, radius)
        best = least_in_ball(np, g, p, radius)
        assert np.linalg.norm(best, p) <= radius * (1.0 + 1e-12)
        assert g @ best <= (points @ g).min() + 1e-12 * scale

    def phi(x: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.linalg.norm(x, p, axis=-1) ** 2 / (2.0 * (p - 1.0))
        return found

    for size in (0.05, 1.0, 30.0):
        g, y = size * rng.normal(size=5), ball(rng, p, 5, radius)[0]
        slope = dual_map(np, y, p) / (p - 1.0)
        step = mirror_step(np, y, g, eta, p, radius)
        assert norm(np, step, p) <= radius * (1.0 + 1e-12)
        near = step + 1e-3 * rng.normal(size=(200, 5))
        near *= np.minimum(1.0, radius / np.linalg.norm(near, p, axis=1))[:, None]
        others = np.concatenate([ball(rng, p, 5, radius), near])
        value = eta * g @ step + phi(step) - slope @ step
        assert np.all(eta * others @ g + phi(others) - others @ slope >= value - 1e-9 * max(1.0, abs(value)))


def test_nothing_and_other_libraries() -> None:
    zeros = np.zeros(3)
    assert np.array_equal(least_in_ball(np, zeros, 1.5, 1.0), zeros)
    assert np.array_equal(dual_map(np, zeros, 3.0), zeros)
    g = np.array([3.0, -4.0])
    strict = least_in_ball(array_api_strict, array_api_strict.asarray(g), 1.5, 1.0)
    assert np.asarray(strict) == pytest.approx(least_in_ball(np, g, 1.5, 1.0), rel=1e-14)
