from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, Poisson, PureDp, ZcDp
from accounting.filters import (
    PrivacyFilter,
    PureDpFilter,
    RenyiFilter,
    ZcdpFilter,
    default_orders,
    filter_from_json,
)
from accounting.relations import NeighboringRelation
from accounting.solve import solve_noise_multiplier
from accounting.units import CLOSED, MAX_LIMIT, NANO, SATURATED, from_nano

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
FILTERS: list[PrivacyFilter] = [PureDpFilter(1.0), ZcdpFilter(0.5), RenyiFilter(1.6, 1e-5)]


@pytest.mark.parametrize("budget", FILTERS, ids=lambda budget: budget.kind)
def test_every_filter_admits_nothing_used_and_refuses_what_passes_all_caps(budget: PrivacyFilter) -> None:
    assert budget.admits(budget.zero)
    assert budget.admits(budget.caps)
    assert not budget.admits(tuple(cap + 1 for cap in budget.caps))
    assert not budget.admits((SATURATED,) * len(budget.caps))
    assert budget.remaining(budget.zero) == budget.caps
    assert budget.remaining((SATURATED,) * len(budget.caps)) == budget.zero
    assert budget.add((SATURATED,) * len(budget.caps), (SATURATED,) * len(budget.caps))[0] == SATURATED < 2**62
    assert max(budget.caps) <= SATURATED


@pytest.mark.parametrize("budget", FILTERS, ids=lambda budget: budget.kind)
def test_filters_survive_json(budget: PrivacyFilter) -> None:
    copy = filter_from_json(json.loads(json.dumps(budget.to_json())))
    assert copy == budget
    assert copy.caps == budget.caps
    assert json.loads(json.dumps(budget.describe(budget.caps)))
    assert budget.describe_limit()
    with pytest.raises(InvalidValue, match="renyi_dp, zcdp or pure_dp"):
        filter_from_json({"kind": "gaussian_dp", "mu": 1})
    with pytest.raises(InvalidValue, match="list of numbers"):
        filter_from_json({"kind": "renyi_dp", "epsilon": 1, "delta": 1e-5, "orders": 7})


def test_limits_are_rounded_down_and_costs_up() -> None:
    assert PureDpFilter(1.9999999999).caps == (1_999_999_999,)
    assert ZcdpFilter(0.1).caps == (100_000_000,)
    assert ZcdpFilter(1.0).cost([Event(ZcDp(1.0000000001))], ADD_REMOVE).amounts == (NANO + 1,)
    budget = PureDpFilter(1.0)
    step = budget.cost([Event(PureDp(1e-6))], ADD_REMOVE).amounts[0]
    assert budget.admits((step * 10**6,))
    assert not budget.admits((step * (10**6 + 1),))


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
    with pytest.raises(InvalidValue, match="no order is open"):
        RenyiFilter(1.0, 1e-5, (2.0, 3.0))
    with pytest.raises(InvalidValue, match="increasing"):
        RenyiFilter(1.0, 1e-5, (64.0, 32.0))


def test_limits_outside_their_range_are_refused() -> None:
    for bad in (0.0, -1.0, math.nan, 2 * MAX_LIMIT, "1"):
        with pytest.raises(InvalidValue):
            ZcdpFilter(bad)  # type: ignore[arg-type]  # on purpose
    for delta in (0.0, 1.0, math.inf):
        with pytest.raises(InvalidValue):
            RenyiFilter(1.0, delta)


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


def test_one_more_does_not_fit() -> None:
    events = [Event(Gaussian(30.0), Poisson(0.2), 40), Event(Gaussian(20.0), Poisson(0.1), 10**6)]
    for budget in FILTERS[1:]:
        fits = budget.largest_count_that_fits(events, ADD_REMOVE, budget.zero)
        first = min(fits, 40)
        inside = [Event(Gaussian(30.0), Poisson(0.2), first)]
        inside += [Event(Gaussian(20.0), Poisson(0.1), fits - 40)] if fits > 40 else []
        beyond = [events[0], Event(Gaussian(20.0), Poisson(0.1), fits + 1 - 40)]
        assert budget.admits(budget.cost(inside, ADD_REMOVE).amounts)
        assert not budget.admits(budget.cost(beyond, ADD_REMOVE).amounts)
        assert budget.largest_count_that_fits(events, ADD_REMOVE, budget.caps) == 0
        assert budget.largest_count_that_fits(events[:1], ADD_REMOVE, budget.zero) == 40


def test_amounts_are_described_exactly() -> None:
    assert PureDpFilter(3.0).describe((1_500_000_001,)) == {"epsilon": "1.500000001"}
    assert ZcdpFilter(3.0).describe_remaining((NANO,)) == {"rho": "2"}
    assert from_nano(0) == "0"
    budget = RenyiFilter(1.6, 1e-5)
    assert budget.describe(budget.zero)["epsilon"] == "0"
    assert budget.describe_remaining(budget.zero)["epsilon"] == "1.6"
    assert budget.describe_limit()["epsilon"] == "1.6"
    assert budget.describe(budget.caps)["epsilons"] == [from_nano(cap) for cap in budget.caps]
    described = float(str(budget.describe(budget.caps)["epsilon"]))
    assert 1.6 - 2e-9 <= described <= 1.6 + 2e-9


def test_order_of_charges_does_not_matter_and_costs_add_up() -> None:
    a, b = Event(Gaussian(9.0), Poisson(0.1), 20), Event(PureDp(0.01), count=5)
    for budget in (ZcdpFilter(9.0), RenyiFilter(9.0, 1e-6)):
        together = budget.cost([a, b], ADD_REMOVE).amounts
        apart = budget.add(budget.cost([b], ADD_REMOVE).amounts, budget.cost([a], ADD_REMOVE).amounts)
        assert all(0 <= x - y <= 1 for x, y in zip(apart, together, strict=True))
