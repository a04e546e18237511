"""The Renyi filter: caps per order, closed orders, default orders."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, Poisson
from accounting.filters import RenyiFilter, default_orders
from accounting.solve import solve_noise_multiplier
from accounting.units import CLOSED, NANO
from tests.accounting.filters.budgets import ADD_REMOVE


def test_union_bound_over_orders() -> None:
    """cap(order) = epsilon - ln(K / delta) / (order - 1), with the K; two orders checked by hand."""
    budget = RenyiFilter(2.0, 1e-5, (20.0, 64.0))
    for order, cap in zip(budget.orders, budget.caps, strict=True):
        exact = (2.0 - math.log(2 / 1e-5) / (order - 1)) * NANO
        assert exact - 2 <= cap <= exact
    assert budget.caps[0] < (2.0 - math.log(1 / 1e-5) / 19) * NANO - 10**7


def test_closed_orders_admit_nothing() -> None:
    budget = RenyiFilter(1.0, 1e-5, (2.0, 64.0))
    assert budget.caps[0] == CLOSED
    assert not budget.admits((0, budget.caps[1] + 1))
    assert budget.admits((0, budget.caps[1]))
    assert budget.remaining(budget.zero)[0] == 0
    names_both = r"no order is open: with order 3 .* at least about 6\.109; .* above about 13"
    with pytest.raises(InvalidValue, match=names_both) as no:
        RenyiFilter(1.0, 1e-5, (2.0, 3.0))
    assert no.value.pointer == ("epsilon",)
    assert RenyiFilter(6.109, 1e-5, (2.0, 3.0)).caps[1] >= 0
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
    assert 1.27 <= float(str(budget.describe(amounts)["epsilon"])) <= 1.485
    assert budget.admits(amounts)
    twice = budget.add(amounts, amounts)
    assert not budget.admits(twice)
    fits = budget.largest_count_that_fits(events, ADD_REMOVE, amounts)
    assert 0 < fits < count / 2
