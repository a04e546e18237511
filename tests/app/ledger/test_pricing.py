"""What events cost and how many would fit: the answers are the filter's own, with far less work."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import NoCostInFilter, Unsupported
from accounting.events import Event, Gaussian, Laplace, Mechanism, Poisson, ZcDp
from accounting.filters import PrivacyFilter, PureDpFilter, RenyiFilter, ZcdpFilter
from accounting.relations import NeighboringRelation
from app.ledger import pricing
from app.ledger.pricing import Shortfall, price

RELATION = NeighboringRelation.REPLACE_ONE
FILTERS: list[PrivacyFilter] = [ZcdpFilter(2e-6), ZcdpFilter(0.5), RenyiFilter(3.0, 1e-5, (4.0, 16.5, 64.0))]

# Costs of much less than a nano-unit, of a few, of no whole number of them, and of many.
MECHANISMS: list[Mechanism] = [
    ZcDp(0.0),
    ZcDp(3e-12),
    ZcDp(1e-9),
    ZcDp(1.7e-9),
    ZcDp(0.01),
    Gaussian(7.0),
    Gaussian(30000.0),
    Laplace(9.0),
]


@settings(max_examples=400, deadline=None)
@given(
    budget_filter=st.sampled_from(FILTERS),
    events=st.lists(
        st.builds(Event, st.sampled_from(MECHANISMS), count=st.integers(1, 40) | st.integers(1, 10**6)),
        min_size=1,
        max_size=12,
    ),
    used=st.integers(0, 3),
)
def test_same_as_the_filters_own(budget_filter: PrivacyFilter, events: list[Event], used: int) -> None:
    amounts = tuple(max(0, cap * used // 4) for cap in budget_filter.caps)
    fits = Shortfall(budget_filter, RELATION, tuple(events), amounts).largest_count_that_fits()
    assert fits == budget_filter.largest_count_that_fits(events, RELATION, amounts)


def test_many_costs_far_below_a_unit_are_rounded_once() -> None:
    # Each alone costs a whole unit, all twelve together cost two.
    events = (*(Event(ZcDp(1e-10 + number * 1e-13)) for number in range(12)), Event(ZcDp(1.0)))
    assert Shortfall(ZcdpFilter(2e-9), RELATION, events, (0,)).largest_count_that_fits() == 12


def test_a_list_is_priced_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    work = 0
    cost = ZcdpFilter.cost

    def counted(budget_filter: ZcdpFilter, events: Any, relation: NeighboringRelation) -> Any:
        nonlocal work
        work += len(events)
        return cost(budget_filter, events, relation)

    monkeypatch.setattr(ZcdpFilter, "cost", counted)
    events = tuple(Event(Gaussian(10.0 + number / 1000), count=10**5) for number in range(1000))
    most = 700 * 10**5
    used = (ZcdpFilter(10**6).caps[0] - cost(ZcdpFilter(10**6), events[:700], RELATION).amounts[0],)
    assert Shortfall(ZcdpFilter(10**6), RELATION, events, used).largest_count_that_fits() == most
    assert work < 5000


class Clock:
    """Every look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def _sampled(different: int, same: int = 1) -> tuple[Event, ...]:
    return tuple(Event(Gaussian(5.0 + number), Poisson(0.1)) for number in range(different)) * same


def test_a_price_that_takes_too_long_is_refused_and_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    price.cache_clear()
    monkeypatch.setattr(pricing, "monotonic", Clock())
    budget_filter = RenyiFilter(3.0, 1e-5, (8.0, 16.0))
    assert price(budget_filter, _sampled(10, same=3), RELATION) == budget_filter.cost(_sampled(10, same=3), RELATION)
    for _ in range(2):
        with pytest.raises(Unsupported, match=r"10 of their 11 different sampled steps") as caught:
            price(budget_filter, _sampled(11), RELATION)
        assert caught.value.pointer == ("events",)
    # Steps without sampling take no time.
    plain = tuple(Event(Gaussian(5.0 + number)) for number in range(100))
    assert price(budget_filter, plain, RELATION) == budget_filter.cost(plain, RELATION)


def test_an_event_without_a_cost_is_named_by_its_place() -> None:
    events = (Event(Laplace(9.0)), Event(Laplace(8.0)), Event(Gaussian(5.0), Poisson(0.1)))
    with pytest.raises(NoCostInFilter) as caught:
        price(PureDpFilter(1.0), events, RELATION)
    assert caught.value.pointer[:2] == ("events", 2)
