"""Costs in renyi_dp budgets: a divergence per order."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import pytest

from accounting.errors import NoCostInFilter
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp, RenyiDp, WithoutReplacement, ZcDp
from accounting.filters import renyi_dp_cost
from accounting.losses.poisson_moments import MAX_BINOMIAL_ORDER
from accounting.losses.rules import loss_of
from accounting.relations import NeighboringRelation
from accounting.units import NANO, SATURATED, exact
from tests.accounting.filters.costs.cells import ADD_REMOVE, FULL, ORDERS, REPLACE, SPECIAL, up
from tests.accounting.filters.costs.truths import displaced_moment, sampled_laplace_moment, symmetrized_moment
from tests.accounting.references import poisson_moment


def test_renyi_gaussian_is_exact() -> None:
    expected = tuple(math.ceil(exact(order) * Fraction(8, 32) * NANO) for order in ORDERS)
    assert renyi_dp_cost((FULL,), ADD_REMOVE, ORDERS).amounts == expected
    assert renyi_dp_cost((FULL,), REPLACE, ORDERS).amounts == tuple(4 * amount for amount in expected)


@pytest.mark.parametrize(("relation", "pair"), [(ADD_REMOVE, "remove"), (SPECIAL, "remove"), (REPLACE, "replace")])
def test_renyi_sampled_gaussian_is_a_proved_bound_per_order(relation: NeighboringRelation, pair: str) -> None:
    event = Event(Gaussian(2.0), Poisson(0.05), 300)
    for order, amount in zip(ORDERS, renyi_dp_cost((event,), relation, ORDERS).amounts, strict=True):
        divergence = 300 * poisson_moment(2.0, 0.05, order - 1, pair) / (mp.mpf(order) - 1)
        assert divergence * NANO <= amount <= divergence * NANO * (1 + 2e-9) + 1
        assert amount < renyi_dp_cost((Event(Gaussian(2.0), count=300),), relation, (order,)).amounts[0]


@pytest.mark.one_in(1000)
@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
def test_renyi_fixed_size_gaussian_is_a_proved_bound_per_order(relation: NeighboringRelation) -> None:
    event = Event(Gaussian(4.0), WithoutReplacement(5, 100), 300)
    unsampled = renyi_dp_cost((Event(Gaussian(4.0), count=300),), relation, ORDERS).amounts
    for order, amount, full in zip(ORDERS, renyi_dp_cost((event,), relation, ORDERS).amounts, unsampled, strict=True):
        moment = symmetrized_moment if relation is REPLACE else displaced_moment
        divergence = 300 * moment(4.0, 0.05, order - 1) / (mp.mpf(order) - 1) * NANO
        assert amount <= full + 1 + full * 1e-11
        assert min(divergence, mp.mpf(full) - 1) <= amount <= divergence * (1 + mp.mpf("1e-6")) + 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("relation", "pair"), [(ADD_REMOVE, "remove"), (SPECIAL, "remove"), (REPLACE, "replace")])
def test_renyi_sampled_laplace_is_a_proved_bound_per_order(relation: NeighboringRelation, pair: str) -> None:
    event = Event(Laplace(2.0), Poisson(0.2), 300)
    for order, amount in zip(ORDERS, renyi_dp_cost((event,), relation, ORDERS).amounts, strict=True):
        divergence = 300 * sampled_laplace_moment(2.0, 0.2, order - 1, pair) / (mp.mpf(order) - 1) * NANO
        assert divergence <= amount <= divergence * (1 + mp.mpf("1e-6")) + 1


@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
def test_renyi_fixed_size_laplace_is_between_what_is_attained_and_no_sampling(relation: NeighboringRelation) -> None:
    event, full = (
        Event(Laplace(4.0), sampling, 300) for sampling in (WithoutReplacement(20, 100), Event(PureDp(1)).sampling)
    )
    bounds = renyi_dp_cost((event,), relation, ORDERS).amounts
    unsampled = renyi_dp_cost((full,), relation, ORDERS).amounts
    # One direction of the pair at distance 2 under replace_one; Poisson's pair is attained with null records, too.
    scale = 2.0 if relation is REPLACE else 4.0
    for order, amount, most in zip(ORDERS, bounds, unsampled, strict=True):
        attained = 300 * sampled_laplace_moment(scale, 0.2, order - 1, "remove") / (mp.mpf(order) - 1) * NANO
        assert attained <= amount <= most


def test_renyi_laplace_is_exact() -> None:
    for relation, scale in ((ADD_REMOVE, 2.0), (REPLACE, 4.0)):
        e = mp.mpf("0.5")
        for order, amount in zip(
            ORDERS, renyi_dp_cost((Event(Laplace(scale), count=9),), relation, ORDERS).amounts, strict=True
        ):
            a = mp.mpf(order)
            inside = (a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)) / (2 * a - 1)
            assert 0 <= amount - up(9 * mp.log(inside) / (a - 1)) <= 1


def test_renyi_pure_is_exact() -> None:
    e = mp.mpf("0.7")
    cost = renyi_dp_cost((Event(PureDp(0.7), count=9),), REPLACE, ORDERS)
    for order, amount in zip(ORDERS, cost.amounts, strict=True):
        a, p = mp.mpf(order), mp.exp(e) / (1 + mp.exp(e))
        inside = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
        assert 0 <= amount - up(9 * mp.log(inside) / (a - 1)) <= 1


def test_renyi_zcdp_is_rho_times_order() -> None:
    expected = tuple(math.ceil(exact(order) * exact(0.3) * NANO) for order in ORDERS)
    assert renyi_dp_cost((Event(ZcDp(0.1), count=3),), REPLACE, ORDERS).amounts == expected


def test_renyi_stated_curve_is_exact_at_its_orders_and_interpolated_between() -> None:
    event = Event(RenyiDp((2.0, 8.0, 16.0), (0.1, 0.4, 0.5)), count=3)
    cost = renyi_dp_cost((event,), REPLACE, (1.5, 2.0, 4.0, 8.0, 12.0, 16.0, 16.5)).amounts
    assert (cost[1], cost[3], cost[5]) == (300_000_000, 1_200_000_000, 1_500_000_000)
    # Below the first order the divergence is not larger; (order - 1) times divergence is convex between two.
    assert cost[0] == pytest.approx(300_000_000, abs=2)
    assert cost[2] == pytest.approx(3 * (0.1 * 1 * 4 / 6 + 0.4 * 7 * 2 / 6) / 3 * NANO, abs=2)
    assert cost[4] == pytest.approx(3 * (0.4 * 7 * 4 / 8 + 0.5 * 15 * 4 / 8) / 11 * NANO, abs=2)
    assert cost[0] >= 300_000_000
    assert cost[6] == SATURATED
    million = Event(RenyiDp((4.0,), (1e-6,)), count=10**6)
    assert renyi_dp_cost((million,), REPLACE, (4.0,)).amounts == (NANO,)


def test_a_stated_curve_below_all_orders_of_the_budget_is_refused() -> None:
    event = Event(RenyiDp((2.0, 8.0), (0.1, 0.4)))
    with pytest.raises(NoCostInFilter, match=r"up to order 8, .* begin at 11") as caught:
        renyi_dp_cost((FULL, event), REPLACE, (11.0, 16.0))
    assert caught.value.pointer == ("events", 1, "mechanism")


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (Event(Gaussian(2.0), Poisson(0.5), 3), ADD_REMOVE),
        (Event(Gaussian(2.0), Poisson(0.999999), 3), REPLACE),
        (Event(Gaussian(0.2), Poisson(0.5), 3), REPLACE),
        (Event(Gaussian(0.5), WithoutReplacement(99, 100), 3), SPECIAL),
        (Event(Laplace(0.5), Poisson(0.9), 3), ADD_REMOVE),
        (Event(Laplace(0.5), WithoutReplacement(99, 100), 3), SPECIAL),
    ],
)
def test_never_above_the_unsampled_cost(event: Event, relation: NeighboringRelation) -> None:
    """Also beyond the orders of which a sampled moment is tried, where an earlier version saturated."""
    orders = (1.001, 1.5, 7.3, 40.0, 40.5, MAX_BINOMIAL_ORDER - 0.5, MAX_BINOMIAL_ORDER + 1.0, 1e7)
    sampled = renyi_dp_cost((event,), relation, orders).amounts
    unsampled = renyi_dp_cost((Event(event.mechanism, count=3),), relation, orders).amounts
    # Near order 1 both are bounded by chords.
    assert all(
        0 < a <= b * (1 + 2e-2 * (order < 1.01)) + 1 + b * 1e-11
        for a, b, order in zip(sampled, unsampled, orders, strict=True)
    )
    assert all(amount < SATURATED for amount in sampled)
    assert unsampled[-1] * 0.4 < sampled[-1]


def test_one_evaluation_of_the_moments_serves_all_orders_and_all_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(event: Event, relation: NeighboringRelation) -> object:
        asked.append(1)
        return loss_of(event, relation)

    monkeypatch.setattr("accounting.filters.renyi_dp.loss_of", counted)
    events = tuple(Event(Gaussian(3.0 + index / 7), Poisson(0.0123), count) for index in range(5) for count in (1, 9))
    first = renyi_dp_cost(events, ADD_REMOVE, ORDERS)
    assert len(asked) == 2 * 5  # with and without sampling
    assert renyi_dp_cost(events, ADD_REMOVE, ORDERS) == first
    assert len(asked) == 2 * 5
