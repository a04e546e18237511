"""Report-noisy-max with Gumbel noise, and regularity constants: worked numbers, exact divergences, Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.events.regularity import kappa_pair
from calibrators.bassily_guzman.selection import expected_regret


def softmin(scores: np.ndarray, scale: float) -> np.ndarray:
    weights = np.exp(-(scores - scores.min()) / scale)
    return weights / weights.sum()


def test_gumbel_selection_has_the_law_of_softmin() -> None:
    """W2, and 200 000 draws."""
    scores = np.array([0.3, 0.1, 0.5])
    law = softmin(scores, 0.2)
    np.testing.assert_allclose(law, (0.244728471055, 0.665240955775, 0.0900305731704), rtol=1e-11)
    draws = np.argmin(scores - 0.2 * np.random.default_rng(3).gumbel(size=(200_000, 3)), axis=1)
    counts = np.bincount(draws, minlength=3)
    assert np.sum((counts - 200_000 * law) ** 2 / (200_000 * law)) < 20.0


def test_no_divergence_of_two_selections_passes_what_their_scale_costs() -> None:
    """Noise of scale 1 is rho = width^2 / 8 and epsilon = width. Random scores, and pairs that nearly attain it."""
    generator = np.random.default_rng(11)
    worst_renyi = worst_pure = 0.0
    for trial in range(4000):
        size = 2 if trial % 2 else int(generator.integers(2, 7))
        scores = generator.normal(size=size) * generator.choice([0.01, 1.0, 5.0])
        moved = scores + generator.choice([-0.5, 0.5, 0.0], size=size) * generator.choice([0.05, 1.0, 3.0])
        difference = moved - scores
        width = float(difference.max() - difference.min())
        p, q = softmin(scores, 1.0), softmin(moved, 1.0)
        if width > 0.01:
            order = float(generator.uniform(1.01, 20.0))
            renyi = math.log(float(np.sum(p**order * q ** (1.0 - order)))) / (order - 1.0)
            worst_renyi = max(worst_renyi, renyi / (order * width**2 / 8.0))
            worst_pure = max(worst_pure, float(np.max(np.abs(np.log(p / q)))) / width)
    assert 0.99 < worst_renyi <= 1.0 + 1e-9
    assert 0.9 < worst_pure <= 1.0 + 1e-12


def test_the_regret_is_never_above_its_bound() -> None:
    generator = np.random.default_rng(5)
    worst = 0.0
    for _ in range(500):
        scores = np.sort(generator.exponential(generator.choice([0.1, 1.0, 4.0]), size=6))
        regret = float(softmin(scores, 0.5) @ scores - scores.min())
        worst = max(worst, regret / expected_regret(0.5, 6))
    assert 0.1 < worst <= 1.0


@pytest.mark.parametrize(
    ("norm_order", "dimension", "r", "kappa"),
    [
        (1.0, 1000, 12.7302609626, 34.7236671602),
        (1.0, 5, 2.0, 5.0),
        (1.0, 1, 2.0, 1.0),
        (1.02, 1000, 12.7302609626, 26.4836918404),
        (1.05, 100, 8.06887514888, 14.2759878078),
        (1.5, 100, 3.0, 2.0),
        (1.9, 10, 2.11111111111, 1.11111111111),
        (2.0, 50, 2.0, 1.0),
    ],
)
def test_regularity_pairs_are_the_catalogues(norm_order: float, dimension: int, r: float, kappa: float) -> None:
    """W3."""
    pair = kappa_pair(norm_order, dimension)
    assert (pair.r, pair.kappa) == (pytest.approx(r, rel=1e-10), pytest.approx(kappa, rel=1e-10))
    assert pair.kappa_plus == pair.r - 1.0


@pytest.mark.parametrize("dimension", [1, 2, 5, 7, 8, 50, 1000, 10**6])
@pytest.mark.parametrize("norm_order", [1.0, 1.01, 1.2, 1.9, 2.0])
def test_no_exponent_on_a_grid_has_a_smaller_constant(norm_order: float, dimension: int) -> None:
    q = math.inf if norm_order == 1.0 else norm_order / (norm_order - 1.0)
    grid = np.geomspace(2.0, min(q, 200.0), 20_001)
    values = (grid - 1.0) * dimension ** (2.0 / grid - 2.0 / q)
    assert kappa_pair(norm_order, dimension).kappa <= values.min() * (1.0 + 1e-12)
    assert kappa_pair(norm_order, dimension).kappa >= values.min() * (1.0 - 1e-6)


def test_means_concentrate_in_the_largest_entry_as_the_constant_says() -> None:
    """Random signs in l_inf^d: the mean's squared largest entry stays below kappa / m."""
    generator = np.random.default_rng(2)
    for dimension in (1, 3, 50, 1000):
        signs = generator.choice([-1.0, 1.0], size=(300, 40, dimension))
        squared = np.mean(np.max(np.abs(signs.mean(axis=1)), axis=1) ** 2)
        assert squared <= 1.2 * kappa_pair(1.0, dimension).kappa / 40
