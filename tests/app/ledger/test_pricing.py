"""What events cost and how many would fit: the answers are the filter's own, with far less work."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import ENGINE_VERSION
from accounting.errors import AccountingError, NoCostInFilter, Unsupported
from accounting.events import Event, Gaussian, Laplace, Mechanism, Poisson, PureDp, ShuffleModel, ZcDp
from accounting.filters import ApproximateDpFilter, PrivacyFilter, PureDpFilter, RenyiFilter, ZcdpFilter
from accounting.relations import NeighboringRelation
from app.ledger import pricing
from app.ledger.commands import Quote
from app.ledger.pricing import largest_count_that_fits, price
from app.ledger.states import BudgetState, Path

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


def path_of(*levels: tuple[PrivacyFilter, tuple[int, ...]]) -> Path:
    """Budgets with these filters and what is spent in them."""
    return tuple(BudgetState("bud", each, RELATION, used, each.zero, each.zero) for each, used in levels)


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
@pytest.mark.thorough
def test_same_as_the_filters_own(budget_filter: PrivacyFilter, events: list[Event], used: int) -> None:
    amounts = tuple(max(0, cap * used // 4) for cap in budget_filter.caps)
    fits = largest_count_that_fits(path_of((budget_filter, amounts)), tuple(events), None)
    assert fits == budget_filter.largest_count_that_fits(events, RELATION, amounts)


def test_many_costs_far_below_a_unit_are_rounded_once() -> None:
    # Each alone costs a whole unit, all twelve together cost two.
    events = (*(Event(ZcDp(1e-10 + number * 1e-13)) for number in range(12)), Event(ZcDp(1.0)))
    assert largest_count_that_fits(path_of((ZcdpFilter(2e-9), (0,))), events, None) == 12


def test_what_fits_fits_every_budget_of_the_path() -> None:
    events = (Event(ZcDp(0.01), count=30), Event(ZcDp(0.02), count=30))
    wide, narrow = (ZcdpFilter(10.0), (0,)), (ZcdpFilter(0.5), (100_000_000,))
    assert largest_count_that_fits(path_of(wide, narrow), events, None) == 35
    assert largest_count_that_fits(path_of(narrow, wide), events, None) == 35
    assert largest_count_that_fits(path_of(wide, (ZcdpFilter(0.1), (95_000_000,))), events, None) == 0
    assert largest_count_that_fits(path_of(wide, wide), events, None) == 60


@pytest.mark.parametrize("used", [(0, 0), (10**9, 10**12)])
def test_in_an_approximate_dp_budget_each_prefix_is_priced_as_a_whole(used: tuple[int, int]) -> None:
    budget_filter = ApproximateDpFilter(3.0, 1e-5)
    events = (Event(Gaussian(10.0), count=20), Event(Laplace(9.0), count=40))
    fits = largest_count_that_fits(path_of((budget_filter, used)), events, 1e-6)
    assert fits == budget_filter.largest_count_that_fits(events, RELATION, used, 1e-6)
    assert 0 < fits < 60
    # Its own delta does not fit, whatever the count.
    assert largest_count_that_fits(path_of((budget_filter, (0, 10**13))), events, 1e-6) == 0


def test_a_list_is_priced_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    work = 0
    cost = ZcdpFilter.cost

    def counted(budget_filter: ZcdpFilter, events: Any, *relation_and_delta: Any) -> Any:
        nonlocal work
        work += len(events)
        return cost(budget_filter, events, *relation_and_delta)

    monkeypatch.setattr(ZcdpFilter, "cost", counted)
    events = tuple(Event(Gaussian(10.0 + number / 1000), count=10**5) for number in range(1000))
    most = 700 * 10**5
    used = (ZcdpFilter(10**6).caps[0] - cost(ZcdpFilter(10**6), events[:700], RELATION).amounts[0],)
    assert largest_count_that_fits(path_of((ZcdpFilter(10**6), used)), events, None) == most
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
    monkeypatch.setattr(pricing, "_PRICES", {})
    monkeypatch.setattr(pricing, "monotonic", Clock())
    budget_filter = RenyiFilter(3.0, 1e-5, (8.0, 16.0))
    thirty = _sampled(10, same=3)
    assert price(budget_filter, thirty, RELATION).amounts == budget_filter.cost(thirty, RELATION).amounts
    for _ in range(2):
        with pytest.raises(Unsupported, match=r"10 of their 11 different sampled steps") as caught:
            price(budget_filter, _sampled(11), RELATION)
        assert caught.value.pointer == ("events",)
    # Steps without sampling take no time.
    plain = tuple(Event(Gaussian(5.0 + number)) for number in range(100))
    assert price(budget_filter, plain, RELATION).amounts == budget_filter.cost(plain, RELATION).amounts


def test_an_event_without_a_cost_is_named_by_its_place() -> None:
    events = (Event(Laplace(9.0)), Event(Laplace(8.0)), Event(Gaussian(5.0), Poisson(0.1)))
    with pytest.raises(NoCostInFilter) as caught:
        price(PureDpFilter(1.0), events, RELATION)
    assert caught.value.pointer[:2] == ("events", 2)


def test_a_price_names_its_engine_and_keeps_the_warnings() -> None:
    sampled = (Event(Gaussian(5.0), Poisson(0.1)),)
    cost = ZcdpFilter(1.0).cost(sampled, RELATION)
    quoted = price(ZcdpFilter(1.0), sampled, RELATION)
    assert quoted == Quote(cost.amounts, ENGINE_VERSION, tuple((each.code, each.detail) for each in cost.warnings))
    assert [code for code, _ in quoted.warnings] == ["no_amplification"]


def test_a_price_of_shuffled_messages_says_what_it_requires() -> None:
    """same_randomiser_is_said_to_be_required: by the event's place in what was reserved."""
    events = (Event(Laplace(9.0)), Event(PureDp(0.5), ShuffleModel(64, 0.5, 0.0)))
    quoted = price(ApproximateDpFilter(1.0, 1e-5), events, NeighboringRelation.REPLACE_ONE, 1e-6)
    [(code, detail)] = quoted.warnings
    assert code == "same_randomizer_required"
    assert detail.startswith("Shuffled messages (event 1) are accounted for users who all apply the same local")


@pytest.mark.parametrize("budget_filter", [*FILTERS, ApproximateDpFilter(1.0, 1e-5)])
def test_nothing_costs_nothing(budget_filter: PrivacyFilter) -> None:
    assert price(budget_filter, (), RELATION) == Quote(budget_filter.zero, ENGINE_VERSION)


def test_a_price_does_not_depend_on_the_limit() -> None:
    events = (Event(Gaussian(9.0), Poisson(0.1), count=7), Event(Laplace(4.0)))
    small, large = (RenyiFilter(epsilon, 1e-5, (8.0, 64.0)) for epsilon in (2.0, 900.0))
    assert price(small, events, RELATION).amounts == price(large, events, RELATION).amounts


def test_a_list_that_needs_a_delta_and_has_none_is_refused() -> None:
    budget_filter = ApproximateDpFilter(1.0, 1e-5)
    with pytest.raises(AccountingError) as caught:
        price(budget_filter, (Event(Gaussian(9.0)),), RELATION)
    assert (caught.value.code, caught.value.pointer) == ("missing_charge_delta", ("charge", "delta"))
    stated = price(budget_filter, (Event(Laplace(8.0), count=2),), RELATION)
    assert stated.amounts == price(budget_filter, (Event(Laplace(8.0), count=2),), RELATION, 1e-6).amounts
