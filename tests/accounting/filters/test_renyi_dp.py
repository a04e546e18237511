"""The Renyi filter: caps per order, closed orders, default orders."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, Poisson
from accounting.filters import RenyiFilter, default_orders
from accounting.filters.renyi_dp import MIRONOV
from accounting.solve import solve_noise_multiplier
from accounting.units import CLOSED, NANO
from tests.accounting.filters.budgets import ADD_REMOVE


def test_each_order_has_its_share_of_delta() -> None:
    """At its cap the bound of an order's delta is a K-th of the budget's, to the digits of a nano-unit."""
    budget = RenyiFilter(2.0, 1e-5, (20.0, 64.0))
    old = RenyiFilter(2.0, 1e-5, (20.0, 64.0), MIRONOV)
    for a, cap, before in zip(budget.orders, budget.caps, old.caps, strict=True):
        rho = mp.mpf(cap) / NANO
        delta = mp.exp((a - 1) * (rho - 2)) * (1 - mp.mpf(1) / a) ** (a - 1) / a
        assert 0.5e-5 * (1 - 1e-6) < delta <= mp.mpf("0.5e-5")
        exact = (2.0 - math.log(2 / 1e-5) / (a - 1)) * NANO
        assert exact - 2 <= before <= exact
        assert before < cap


def test_an_older_budget_keeps_its_caps_until_its_limit_changes() -> None:
    stored = {"kind": "renyi_dp", "epsilon": "2", "delta": "0.00001", "orders": ["20", "64"]}
    old = RenyiFilter.from_json(stored)
    assert "conversion" not in old.to_json()
    assert RenyiFilter.from_json(old.to_json()).caps == old.caps == RenyiFilter(2.0, 1e-5, (20.0, 64.0), MIRONOV).caps
    changed = old.with_limit({"epsilon": 2.0})
    assert changed == RenyiFilter(2.0, 1e-5, (20.0, 64.0))
    assert RenyiFilter.from_json(changed.to_json()) == changed
    with pytest.raises(InvalidValue, match="canonne_2020 or mironov_2017"):
        RenyiFilter(2.0, 1e-5, (20.0,), "other")


def test_closed_orders_admit_nothing() -> None:
    budget = RenyiFilter(1.0, 1e-5, (2.0, 64.0))
    assert budget.caps[0] == CLOSED
    assert not budget.admits((0, budget.caps[1] + 1))
    assert budget.admits((0, budget.caps[1]))
    assert budget.remaining(budget.zero)[0] == 0
    names_both = r"none of the orders can be used: with order 3 .* at least about 5\.153; .* above 13"
    with pytest.raises(InvalidValue, match=names_both) as no:
        RenyiFilter(1.0, 1e-5, (2.0, 3.0))
    assert no.value.pointer == ("epsilon",)
    assert RenyiFilter(5.153, 1e-5, (2.0, 3.0)).caps[1] >= 0
    assert RenyiFilter(1.0, 1e-5, (2.0, 13.3)).caps[1] >= 0
    with pytest.raises(InvalidValue, match="increasing"):
        RenyiFilter(1.0, 1e-5, (64.0, 32.0))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(epsilon=st.floats(1e-3, 1e3), delta=st.floats(1e-15, 0.1))
def test_default_orders_are_sixteen_distinct_open_ones(epsilon: float, delta: float) -> None:
    orders = default_orders(epsilon, delta)
    assert len(orders) == 16
    assert sorted(set(orders)) == list(orders)
    assert orders[0] > 1.0
    assert all(cap > 0 for cap in RenyiFilter(epsilon, delta).caps)


@pytest.mark.parametrize(("probability", "count"), [(0.2, 100), (0.2, 1000), (0.02, 5000), (1.0, 50)])
def test_a_plan_calibrated_to_one_fits_once_in_one_point_six(probability: float, count: int) -> None:
    found = solve_noise_multiplier(
        lambda s: [Event(Gaussian(s), Poisson(probability), count)], ADD_REMOVE, epsilon=1.0, delta=1e-5
    )
    events = [Event(Gaussian(found.noise_multiplier), Poisson(probability), count)]
    budget = RenyiFilter(1.6, 1e-5)
    amounts = budget.cost(events, ADD_REMOVE).amounts
    assert 1.15 <= float(str(budget.describe(amounts)["epsilon"])) <= 1.28
    assert budget.admits(amounts)
    twice = budget.add(amounts, amounts)
    assert not budget.admits(twice)
    fits = budget.largest_count_that_fits(events, ADD_REMOVE, amounts)
    assert 0 < fits < 0.6 * count
