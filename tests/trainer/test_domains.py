"""Projections: in the domain, nearest to the point, and equal to what a solver finds."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from calibrators.geometry import Box, Domain, L1Ball, L2Ball, LpBall, Simplex
from trainer.domains import project

DOMAINS: list[Domain] = [
    L2Ball(1.5),
    L1Ball(2.0),
    Simplex(1.0),
    Simplex(0.1),
    Box(-0.5, 1.0),
    Box(0.25, 0.25),
    LpBall(1.2, 1.0),
    LpBall(3.0, 0.7),
    LpBall(50.0, 2.0),
]
POINTS = st.lists(st.floats(-10.0, 10.0).map(lambda v: round(v, 3)), min_size=1, max_size=8).map(np.array)


def excess(domain: Domain, point: np.ndarray) -> float:
    """How far the point lies outside; at most 0 in the domain."""
    match domain:
        case L2Ball():
            return float(np.linalg.norm(point)) - domain.radius
        case L1Ball():
            return float(np.sum(np.abs(point))) - domain.radius
        case LpBall():
            largest = float(np.abs(point).max()) or 1.0
            ratios = np.sum((np.abs(point) / largest) ** domain.norm_order)
            return largest * float(ratios ** (1.0 / domain.norm_order)) - domain.radius
        case Simplex():
            return max(float(-point.min()), abs(float(point.sum()) - domain.scale))
    return float(max((domain.lower - point).max(), (point - domain.upper).max()))


def members(domain: Domain, size: int, rng: np.random.Generator) -> np.ndarray:
    """Points of the domain, at its edge and inside; its vertices, where there are any."""
    drawn = rng.normal(size=(200, size)) ** 3
    match domain:
        case Simplex():
            inside = domain.scale * rng.dirichlet(np.full(size, 0.3), 200)
            return np.vstack([inside, domain.scale * np.eye(size)])
        case Box():
            return np.clip(drawn, domain.lower, domain.upper)
    order = {"l1_ball": 1.0, "l2_ball": 2.0}.get(domain.kind) or domain.norm_order  # type: ignore[union-attr]  # balls
    largest = np.abs(drawn).max(axis=1, keepdims=True)
    lengths = largest * np.sum((np.abs(drawn) / largest) ** order, axis=1, keepdims=True) ** (1.0 / order)
    edge = domain.radius * drawn / lengths
    return np.vstack([edge, 0.5 * edge, domain.radius * np.eye(size), -domain.radius * np.eye(size)])


@settings(max_examples=60, deadline=None)
@given(POINTS, st.sampled_from(DOMAINS), st.sampled_from([1.0, 1e-6, 1e6]))
def test_projections_are_in_the_domain_and_nearest(point: np.ndarray, domain: Domain, scale: float) -> None:
    """<y - P(y), x - P(y)> <= 0 for every x of the domain: a projection, and no other point, meets that."""
    y = scale * point
    nearest = project(domain, np, y)
    assert excess(domain, nearest) <= 1e-9
    others = members(domain, point.size, np.random.default_rng(1))
    gaps = (others - nearest) @ (y - nearest)
    assert gaps.max() <= 1e-9 * max(1.0, float(np.linalg.norm(y)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("domain", DOMAINS)
def test_points_of_the_domain_stay(domain: Domain) -> None:
    for x in members(domain, 6, np.random.default_rng(2)):
        np.testing.assert_allclose(project(domain, np, x), x, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("domain", [L2Ball(1.5), L1Ball(2.0), Simplex(1.0), LpBall(1.5, 1.0), LpBall(3.0, 0.7)])
@pytest.mark.one_in(3)
def test_projections_are_what_a_solver_finds(domain: Domain) -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        y = 2.0 * rng.normal(size=5)
        if isinstance(domain, Simplex):
            constraint: Any = [{"type": "eq", "fun": lambda x: np.sum(x) - domain.scale}]
            bounds = [(0.0, None)] * 5
        else:
            constraint = [{"type": "ineq", "fun": lambda x: -excess(domain, x)}]
            bounds = None
        found = optimize.minimize(
            lambda x, y=y: 0.5 * np.sum((x - y) ** 2),
            np.full(5, 0.2),
            jac=lambda x, y=y: x - y,
            constraints=constraint,
            bounds=bounds,
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-14},
        )
        ours = project(domain, np, y)
        assert np.sum((ours - y) ** 2) <= np.sum((found.x - y) ** 2) + 1e-6
        np.testing.assert_allclose(ours, found.x, atol=2e-3)


@pytest.mark.parametrize("norm_order", [1.0 + 1e-6, 1.01, 2.0, 4.0, 1000.0])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_l_p_balls_are_met_to_the_last_digits_at_every_size(norm_order: float, scale: float) -> None:
    rng = np.random.default_rng(4)
    y, domain = scale * rng.normal(size=30), LpBall(norm_order, 0.3 * scale)
    nearest = project(domain, np, y)
    assert abs(excess(domain, nearest)) <= 1e-12 * domain.radius
    if norm_order == 2.0:
        np.testing.assert_allclose(nearest, project(L2Ball(domain.radius), np, y), rtol=1e-11)
    if norm_order == 1000.0:
        np.testing.assert_allclose(nearest, np.clip(y, -domain.radius, domain.radius), rtol=0.01, atol=1e-12 * scale)


def test_worked_projections() -> None:
    assert project(L2Ball(5.0), np, np.array([6.0, 8.0])).tolist() == pytest.approx([3.0, 4.0])
    assert project(L1Ball(1.0), np, np.array([2.0, -1.5, 0.1])).tolist() == pytest.approx([0.75, -0.25, 0.0])
    assert project(Simplex(1.0), np, np.zeros(4)).tolist() == [0.25] * 4
    assert project(Simplex(2.0), np, np.array([3.0, 0.0])).tolist() == [2.0, 0.0]
    assert project(Box(-1.0, 0.5), np, np.array([-2.0, 0.1, 7.0])).tolist() == [-1.0, 0.1, 0.5]
    point = np.array([1e300, -1.0])
    assert project(None, np, point) is point


@pytest.mark.parametrize("domain", DOMAINS)
def test_any_array_library_projects_alike(domain: Domain) -> None:
    y = np.random.default_rng(5).normal(size=9)
    strict = project(domain, array_api_strict, array_api_strict.asarray(y))
    np.testing.assert_allclose(np.asarray(strict), project(domain, np, y), rtol=1e-12, atol=1e-15)
