"""Mixtures of normal laws: integrals against 30 digits, divergences against brute force in two dimensions."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from calibrators.wang_erm.mixtures import largest_mean, log_moments, mixture_divergences

Vector = np.ndarray


def ratio(q: float, a: float, places: Vector) -> Vector:
    """r_a."""
    found: Vector = (1.0 - q) * np.exp(-q * a * places - 0.5 * (q * a) ** 2)
    found += q * np.exp((1.0 - q) * a * places - 0.5 * ((1.0 - q) * a) ** 2)
    return found


def log_moment(q: float, a: float, power: float, shift: float) -> float:
    """The logarithm of E r_a(Z + s)^w by mpmath."""
    mpmath.mp.dps = 30
    q_, a_, w, s = (mpmath.mpf(number) for number in (q, a, power, shift))

    def integrand(t: mpmath.mpf) -> mpmath.mpf:
        rest, taken = -q_ * a_ * (t + s), (1 - q_) * a_ * (t + s)
        r = (1 - q_) * mpmath.exp(rest - (q_ * a_) ** 2 / 2) + q_ * mpmath.exp(taken - ((1 - q_) * a_) ** 2 / 2)
        return (r**w - 1) * mpmath.npdf(t)

    peak = max(w, 0) * a_
    points = [-40 - peak, -16, -8, -4, -2, 0, 2, 4, 8, 16, *([16 + peak] if peak > 0 else []), 40 + peak]
    return float(mpmath.log1p(mpmath.quad(integrand, points)))


@pytest.mark.parametrize(
    ("q", "a", "power", "shift"),
    [
        (0.01, 0.2, 16.0, 0.0),
        (0.01, 0.2, -15.0, 0.0),
        (0.01, 0.2, 16.0, -0.01),
        (0.3, 2.0, 4.0, 0.5),
        (0.3, 2.0, -6.0, 0.0),
        (0.05, 6.0, 2.5, 0.1),
        (0.05, 6.0, -3.0, 0.1),
        (1e-4, 0.5, 40.0, 0.001),
        (0.9, 1.0, 20.0, 0.2),
    ],
)
def test_integrals_are_enclosed(q: float, a: float, power: float, shift: float) -> None:
    lower, upper = (float(bound[0]) for bound in log_moments(q, a, np.array([power]), np.array([shift])))
    truth = log_moment(q, a, power, shift)
    assert lower <= truth * (1.0 + 1e-15)
    assert truth * (1.0 - 1e-15) <= upper <= lower + 1e-9 * abs(truth)


def test_several_powers_share_their_nodes() -> None:
    powers, shifts = np.array([1.2, 7.0, 90.0]), np.array([0.0, 0.01, 0.1])
    together = log_moments(0.02, 0.3, powers, shifts)[1]
    alone = [float(log_moments(0.02, 0.3, powers[i : i + 1], shifts[i : i + 1])[1][0]) for i in range(3)]
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    assert float(log_moments(1.0, 0.3, powers, shifts)[1].max()) <= 1e-12, "everybody is in the batch"


def divergence(q: float, moved: Vector, one: Vector, other: Vector, order: float) -> float:
    """Of two mixtures in two dimensions, by equally spaced nodes about the tilted mean."""
    spacing, reach = 0.3, 9.0
    axis = np.arange(-reach, reach, spacing)
    nodes = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2) + order * moved

    def log_law(mean: Vector, apart: Vector) -> Vector:
        rest = math.log1p(-q) - 0.5 * np.sum((nodes - mean + q * apart) ** 2, axis=1)
        found: Vector = np.logaddexp(rest, math.log(q) - 0.5 * np.sum((nodes - mean - (1.0 - q) * apart) ** 2, axis=1))
        return found

    powers = order * log_law(moved, one) - (order - 1.0) * log_law(np.zeros(2), other)
    integral = float(np.sum(np.exp(powers))) * spacing**2 / (2.0 * math.pi)
    return math.log(integral) / (order - 1.0)


@pytest.mark.parametrize(
    ("q", "distance", "one", "other", "order", "tight"),
    [
        (0.011, 0.0011, 0.2, 0.2, 16.0, 0.95),
        (0.02, 0.004, 0.4, 0.2, 6.0, 0.9),
        (0.3, 0.2, 1.0, 1.0, 3.0, 0.3),
        (0.1, 0.05, 0.8, 0.8, 4.0, 0.5),
        (0.5, 0.5, 2.0, 1.0, 2.0, 0.3),
        (0.2, 0.4, 1.5, 1.5, 1.5, 0.3),
        (0.7, 0.3, 0.6, 1.0, 5.0, 0.2),
    ],
)
def test_no_directions_and_no_lengths_exceed_the_bound(
    q: float, distance: float, one: float, other: float, order: float, tight: float
) -> None:
    """Random directions, along one line, at right angles; at all lengths up to the largest."""
    rng = np.random.default_rng(5)
    bound = float(mixture_divergences(q, distance, one, other, np.array([order]))[0])
    largest = 0.0
    for trial in range(160):
        angles = rng.uniform(0.0, 2.0 * math.pi, 3)
        if trial % 4 == 1:
            angles = math.pi * rng.integers(0, 2, 3)
        if trial % 4 == 2:
            angles = 0.5 * math.pi * rng.integers(0, 4, 3)
        moved, first, second = (np.array([math.cos(angle), math.sin(angle)]) for angle in angles)
        lengths = rng.uniform(0.0, 1.0, 3) if trial % 5 == 0 else np.ones(3)
        found = divergence(
            q, distance * lengths[0] * moved, one * lengths[1] * first, other * lengths[2] * second, order
        )
        assert found <= bound
        largest = max(largest, found)
    assert largest >= tight * bound


@pytest.mark.parametrize(("q", "distance", "a", "order"), [(0.01, 0.001, 0.2, 30.0), (0.3, 0.1, 1.5, 4.0)])
def test_the_mean_under_the_weighted_law_is_bounded(q: float, distance: float, a: float, order: float) -> None:
    nodes = np.linspace(-14.0, 14.0, 200_001)
    bound, means = float(largest_mean(q, distance, a, np.array([order]))[0]), []
    for length in (a, 0.5 * a):
        for shift in np.linspace(-order * distance, order * distance, 5):
            weights = np.exp(-0.5 * nodes**2) * ratio(q, length, nodes + shift) ** (1.0 - order)
            means.append(abs(float(np.sum(nodes * weights) / np.sum(weights))))
    assert max(means) <= bound


def test_members_that_lie_apart_have_no_bound() -> None:
    assert mixture_divergences(0.1, 0.1, 9.0, 1.0, np.array([2.0])).tolist() == [math.inf]
    assert mixture_divergences(0.1, 0.1, 1.0, 1.0, np.array([2.0, 1e4])).tolist()[1] == math.inf
