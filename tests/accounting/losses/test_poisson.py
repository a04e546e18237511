from __future__ import annotations

import random

import numpy as np
import pytest

from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss, PoissonReplaceLoss
from tests.accounting.references import poisson_delta

DRAW = random.Random(20)
CASES = [
    (10 ** DRAW.uniform(-1.3, 3), 10 ** DRAW.uniform(-8, -0.01), DRAW.choice([-1, 1]) * 10 ** DRAW.uniform(-3, 1.3))
    for _ in range(120)
]


@pytest.mark.one_in(1000)
@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
def test_profile_agrees_with_long_precision(direction: str) -> None:
    for s, q, size in CASES:
        epsilon = size * (q / s if abs(size) < 0.1 else 1.0 / s)
        pair = PoissonReplaceLoss if direction == "replace" else PoissonGaussianLoss
        value = float(pair(s, q).excess(np.array([epsilon]), remove=direction != "add")[0])
        value += -np.expm1(epsilon) if epsilon < 0 else 0.0
        exact = poisson_delta(s, q, epsilon, direction)
        if exact > 1e-250:
            assert abs(value / exact - 1) < 1e-12, (s, q, epsilon)
        else:
            assert value < 1e-240


def test_replace_one_dominates_every_pair_of_contributions() -> None:
    """u fixed, v on a grid of lengths and angles in two dimensions: hockey sticks by Gauss-Hermite quadrature."""
    s, q = 0.8, 0.3
    x, w = np.polynomial.hermite.hermgauss(60)
    grid = np.sqrt(2) * s * x
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    weights = np.outer(w, w).reshape(-1) / np.pi

    def ratio(shift: np.ndarray) -> np.ndarray:
        return np.asarray(1 - q + q * np.exp((2 * points @ shift - shift @ shift) / (2 * s * s)))

    for epsilon in (0.0, 0.5, 1.2):
        worst = float(PoissonReplaceLoss(s, q).excess(np.array([epsilon]))[0])
        for angle in np.linspace(0, np.pi, 7):
            for length in (0.0, 0.5, 1.0):
                u, v = np.array([1.0, 0.0]), length * np.array([np.cos(angle), np.sin(angle)])
                stick = weights @ np.maximum(ratio(u) - np.exp(epsilon) * ratio(v), 0.0)
                assert stick <= worst + 2e-3


def test_directions_sampling_and_sensitivity_order_the_profiles() -> None:
    epsilons = np.linspace(0, 4, 41)
    for s, q in [(0.5, 0.1), (2.0, 0.01)]:
        loss = PoissonGaussianLoss(s, q)
        remove, add = loss.excess(epsilons, remove=True), loss.excess(epsilons, remove=False)
        assert np.all(add <= remove)
        assert np.all(remove <= PoissonReplaceLoss(s, q).excess(epsilons))
        assert np.all(remove <= GaussianLoss(1 / s).excess(epsilons))


def test_support_holds_the_stated_mass() -> None:
    for loss in (PoissonGaussianLoss(0.7, 0.01), PoissonReplaceLoss(0.7, 0.01), GaussianLoss(1.3)):
        for remove in (True, False):
            support = loss.support(-40.0, remove=remove)
            delta = float(loss.excess(np.array([support.upper]), remove=remove)[0])
            assert delta <= support.upper_mass + 1e-300
            assert support.lower < 0 < support.upper


def test_a_probability_that_one_cannot_tell_from_zero_warns_nobody() -> None:
    excess = PoissonGaussianLoss(1.0, 1e-18).excess(np.array([0.0, 1.0]), remove=True)
    # q times the excess of a full batch, to first order in q: 2 Phi(1/2) - 1 at 0.
    assert excess.tolist() == pytest.approx([0.38292492254802624e-18, 0.0], rel=1e-9, abs=1e-30)
