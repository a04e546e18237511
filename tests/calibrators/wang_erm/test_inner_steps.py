"""What an inner step is charged: an upper bound, near the truth, and above what an analyst can see."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, WithoutReplacement
from accounting.losses.rules import loss_of
from accounting.relations import NeighboringRelation
from calibrators.wang_erm.inner_steps import ORDERS, SHARES, InnerSteps, batch_divergences, step_divergence

REPLACE_ONE = NeighboringRelation.REPLACE_ONE


def of_the_engine(noise: float, batch: int, records: int, orders: np.ndarray) -> np.ndarray:
    """The engine's own divergences of a sum whose records move it by 1, by another quadrature, to nine digits."""
    loss = loss_of(Event(Gaussian(2.0 * noise), WithoutReplacement(batch, records)), REPLACE_ONE)
    divergences: np.ndarray = loss.log_moment(orders - 1.0) / (orders - 1.0)
    return divergences


def direct(noise: float, q: float, order: float) -> float:
    """The same by mpmath, from the formula as it is published."""
    mpmath.mp.dps = 25
    nu, q, lam = mpmath.mpf(noise), mpmath.mpf(q), mpmath.mpf(order)

    def integrand(x: mpmath.mpf) -> mpmath.mpf:
        ratio = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * nu**2))
        return (ratio**lam + ratio ** (1 - lam) - ratio - 1) * mpmath.npdf(x, 0, nu)

    points = [mpmath.mpf(1) / 2 + step * nu for step in (0, 1, 2, 4, 8, 16)] + [lam + 20 * nu]
    return float(mpmath.log1p(mpmath.quad(integrand, sorted(points))) / (lam - 1))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("q", [1e-5, 1e-3, 1e-2, 0.1, 0.5])
@pytest.mark.parametrize("noise", [0.3, 0.8, 2.0, 7.5, 50.0, 1e4])
def test_a_batchs_divergence_is_bounded_and_hardly_more(noise: float, q: float) -> None:
    orders = np.array([1.05, 1.3, 2.0, 3.7, 8.0, 24.0, 90.0, 700.0])
    found, known = batch_divergences(noise, q, orders), of_the_engine(noise, round(1e6 * q), 10**6, orders)
    assert np.all(found >= known * (1.0 - 3e-9))
    # Where batches hide who is in them; elsewhere no order is of use.
    hidden = (known < 1.5 * known[0] * orders / orders[0]) | (orders < 4.0)
    assert np.all(found[hidden] <= known[hidden] * 1.003)


@pytest.mark.parametrize(("noise", "q", "order"), [(0.9, 0.02, 3.5), (2.0, 1e-4, 8.0), (13.0, 0.3, 40.0)])
def test_the_bound_holds_against_the_published_formula(noise: float, q: float, order: float) -> None:
    found, truth = float(batch_divergences(noise, q, np.array([order]))[0]), direct(noise, q, order)
    assert truth <= found <= 1.001 * truth


@pytest.mark.parametrize(
    ("order", "batch", "sigma", "share", "step", "epsilon"),
    [
        (8, 1, 4.0, 0.9, 2.408826945e-07, 1.550916402),
        (16, 100, 0.6, 0.8, 9.163097278e-06, 0.9708955357),
        (24, 1000, 0.6, 0.8, 1.336915511e-05, 0.8565350027),
    ],
)
def test_the_worked_numbers_of_a_step(
    order: int, batch: int, sigma: float, share: float, step: float, epsilon: float
) -> None:
    """n = 1e4, G = 1: at one share of the variance, per step and for 32657 of them at delta 1e-6."""
    n, nu, orders = 10_000, math.sqrt(share) * sigma * batch / 4.0, np.array([float(order)])
    snapshot = order * (2.0 / n) ** 2 / (2.0 * (1.0 - share) * sigma**2)
    exact = float(of_the_engine(nu, batch, n, orders)[0]) + snapshot
    assert exact == pytest.approx(step, rel=2e-9)
    assert step <= float(batch_divergences(nu, batch / n, orders)[0]) + snapshot <= step * 1.0005
    slack = math.log((order - 1) / order) - (math.log(1e-6) + math.log(order)) / (order - 1)
    assert 32657 * exact + slack == pytest.approx(epsilon, rel=2e-9)
    # What is charged is no more, near the best share and for the best order.
    charged = epsilon_for_delta([InnerSteps(n, 32657)(sigma * batch / 2.0, 17, batch)], REPLACE_ONE, 1e-6)
    assert charged.value.upper <= 1.002 * epsilon


def test_a_step_is_charged_the_least_of_what_is_proved_at_every_order() -> None:
    s, q = 9.0, 0.02
    orders, found = step_divergence(s, q)
    shared = [
        batch_divergences(math.sqrt(w) * s / 2.0, q, np.array(orders))
        + np.array(orders) * q * q / (2.0 * (1.0 - w) * s * s)
        for w in SHARES
    ]
    unsampled = np.array(orders) * (2.0 + q) ** 2 / (2.0 * s * s)
    np.testing.assert_allclose(found, np.min([*shared, unsampled], axis=0), rtol=1e-12)
    assert np.all(np.array(found) >= np.min([*shared, unsampled], axis=0) * (1.0 - 1e-15))
    assert len(ORDERS) == 64
    # More noise costs less at every order, a larger share of the records more.
    assert np.all(np.array(step_divergence(1.1 * s, q)[1]) < np.array(found))
    assert np.all(np.array(step_divergence(s, 1.1 * q)[1]) >= np.array(found))


def test_noise_without_a_known_divergence_is_refused() -> None:
    with pytest.raises(InvalidValue) as refused:
        step_divergence(1e-3, 0.5)
    assert refused.value.pointer == ("noise_multiplier",)


@pytest.mark.parametrize(("s", "q", "order"), [(3.0, 0.05, 2.0), (6.0, 0.3, 3.0), (1.5, 0.01, 1.5), (40.0, 0.9, 8.0)])
def test_the_worst_neighbours_of_a_step_are_within_the_charge(s: float, q: float, order: float) -> None:
    """One dimension, the extreme record: the law of v itself, whose two parts share one noise and one record.

    In units of sigma: the snapshot's gradient moves by q/s, the batch's mean by 2/s where the record is in it.
    """
    grid = np.linspace(-30.0 * order, 30.0 * order, 400_001)

    def law(sign: float) -> np.ndarray:
        base = 0.5 * q / s * sign
        density: np.ndarray = (1.0 - q) * stats.norm.pdf(grid, base) + q * stats.norm.pdf(grid, base + sign / s)
        return np.maximum(density, 1e-300)

    # All other records' changes are alike, and so no part of the difference.
    for one, other in ((law(1.0), law(-1.0)), (law(-1.0), law(1.0))):
        integral = np.trapezoid(np.exp(order * np.log(one) - (order - 1.0) * np.log(other)), grid)
        divergence = math.log(integral) / (order - 1.0)
        orders, charged = step_divergence(s, q)
        assert divergence <= np.interp(order, orders, charged)
