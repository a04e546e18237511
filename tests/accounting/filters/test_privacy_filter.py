"""What every filter does: admission, rounding, additivity, prefixes, storage."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.canonical import canonical_bytes
from accounting.errors import InvalidValue
from accounting.events import (
    ApproximateDp,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    ShuffledEpochs,
    WithoutReplacement,
    ZcDp,
    prefix_of_events,
)
from accounting.filters import FILTERS as FILTER_KINDS
from accounting.filters import (
    ApproximateDpFilter,
    GaussianDpFilter,
    PrivacyFilter,
    PureDpFilter,
    RenyiFilter,
    ZcdpFilter,
    filter_from_json,
)
from accounting.units import ATTO, MAX_LIMIT, NANO, SATURATED, exact, from_nano
from tests.accounting.filters.budgets import (
    ADD_REMOVE,
    FILTERS,
    MECHANISMS,
    REPLACE,
    by_additive_kind,
    by_kind,
    events_for,
    is_within,
)


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
    canonical = json.loads(canonical_bytes(budget.to_json()))
    assert filter_from_json(canonical) == budget
    assert hash(copy) == hash(budget)


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do() -> None:
    for kind in ("renyi", None, 3):
        with pytest.raises(
            InvalidValue, match="pure_dp, approximate_dp, approximate_gaussian_dp, zcdp, gaussian_dp or renyi_dp"
        ) as caught:
            filter_from_json({"kind": kind, "mu": 1})
        assert caught.value.pointer == ("kind",)
    with pytest.raises(InvalidValue, match="list of numbers"):
        filter_from_json({"kind": "renyi_dp", "epsilon": 1, "delta": 1e-5, "orders": 7})


def test_the_base_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        PrivacyFilter()  # type: ignore[abstract]  # on purpose
    assert list(FILTER_KINDS) == [budget.kind for budget in FILTERS]


def test_limits_are_rounded_down_and_costs_up() -> None:
    assert PureDpFilter(1.9999999999).caps == (1_999_999_999,)
    assert ZcdpFilter(0.1).caps == (100_000_000,)
    assert ZcdpFilter(1.0).cost([Event(ZcDp(1.0000000001))], ADD_REMOVE).amounts == (NANO + 1,)
    budget = PureDpFilter(1.0)
    step = budget.cost([Event(PureDp(1e-6))], ADD_REMOVE).amounts[0]
    assert budget.admits((step * 10**6,))
    assert not budget.admits((step * (10**6 + 1),))


def test_limits_outside_their_range_are_refused() -> None:
    for bad in (0.0, -1.0, math.nan, 2 * MAX_LIMIT, "1"):
        with pytest.raises(InvalidValue):
            ZcdpFilter(bad)  # type: ignore[arg-type]  # on purpose
    for delta in (0.0, 1.0, math.inf):
        with pytest.raises(InvalidValue):
            RenyiFilter(1.0, delta)


def test_one_more_does_not_fit() -> None:
    events = [Event(Gaussian(30.0), Poisson(0.2), 40), Event(Gaussian(20.0), Poisson(0.1), 10**6)]
    for budget in (ZcdpFilter(0.5), GaussianDpFilter(1.1), RenyiFilter(1.6, 1e-5)):
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


@pytest.mark.one_in(4)
@by_additive_kind
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_costs_are_additive_and_never_cheaper_apart(budget: PrivacyFilter, data: st.DataObject) -> None:
    lists = [data.draw(events_for(budget.kind)) for _ in range(2)]
    together = budget.cost(lists[0] + lists[1], REPLACE).amounts
    apart = budget.add(*(budget.cost(events, REPLACE).amounts for events in lists))
    assert all(0 <= a - b <= 1 for a, b in zip(apart, together, strict=True))
    assert budget.cost(lists[1] + lists[0], REPLACE).amounts == together


@pytest.mark.one_in(3)
@by_additive_kind
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_costs_are_monotone(budget: PrivacyFilter, data: st.DataObject) -> None:
    events = data.draw(events_for(budget.kind))
    whole = budget.cost(events, REPLACE).amounts
    steps = data.draw(st.integers(1, sum(event.count for event in events)))
    assert all(
        0 <= a <= b <= SATURATED
        for a, b in zip(budget.cost(prefix_of_events(events, steps), REPLACE).amounts, whole, strict=True)
    )
    assert all(isinstance(amount, int) for amount in whole)
    if not any(isinstance(event.sampling, WithoutReplacement | ShuffledEpochs) for event in events):
        assert all(a <= b for a, b in zip(budget.cost(events, ADD_REMOVE).amounts, whole, strict=True))


@pytest.mark.one_in(4)
@by_additive_kind
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_costs_are_rounded_up_and_saturate(budget: PrivacyFilter, data: st.DataObject) -> None:
    """Against rational sums of what one step costs, in 1e-9 (1e-18 for delta), for events with a rational cost."""
    rational = [
        m
        for m in MECHANISMS[budget.kind]
        if budget.kind in ("pure_dp", "approximate_dp") or isinstance(m, Gaussian | ZcDp)
    ]
    events = data.draw(
        st.lists(st.builds(Event, st.sampled_from(rational), count=st.integers(1, 10**8)), min_size=1, max_size=6)
    )
    costs = zip(*(_exact_units(budget, event) for event in events), strict=True)
    for amount, units in zip(budget.cost(events, REPLACE).amounts, costs, strict=True):
        assert amount == min(math.ceil(sum(units)), SATURATED)


def _exact_units(budget: PrivacyFilter, event: Event) -> list[Fraction]:
    mechanism, count = event.mechanism, event.count
    rho = Fraction(0)
    if isinstance(mechanism, ZcDp):
        rho = count * exact(mechanism.rho)
    if isinstance(mechanism, Gaussian):
        rho = count * (2 / exact(mechanism.noise_multiplier)) ** 2 / 2
    if isinstance(budget, RenyiFilter):
        return [rho * exact(order) * NANO for order in budget.orders]
    if isinstance(budget, ZcdpFilter | GaussianDpFilter):
        return [rho * NANO * (2 if isinstance(budget, GaussianDpFilter) else 1)]
    epsilon = exact(mechanism.epsilon) if isinstance(mechanism, PureDp | ApproximateDp) else Fraction(0)
    if isinstance(mechanism, Laplace):
        epsilon = 2 / exact(mechanism.noise_multiplier)
    delta = exact(mechanism.delta) if isinstance(mechanism, ApproximateDp) else Fraction(0)
    return [count * epsilon * NANO, count * delta * ATTO][: len(budget.caps)]


@by_kind
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_admission_is_monotone_and_zero_is_admitted(budget: PrivacyFilter, data: st.DataObject) -> None:
    amounts = tuple(data.draw(st.integers(0, 2 * max(cap, 1))) for cap in budget.caps)
    more = tuple(amount + data.draw(st.integers(0, 3)) for amount in amounts)
    assert budget.admits(amounts) or not budget.admits(more)
    assert budget.admits(tuple(min(amount, cap) for amount, cap in zip(amounts, budget.caps, strict=True)))
    within = [amount <= cap for amount, cap in zip(amounts, budget.caps, strict=True)]
    assert budget.admits(amounts) == is_within(budget.kind, within)
    assert all(0 <= left <= max(cap, 0) for left, cap in zip(budget.remaining(amounts), budget.caps, strict=True))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("budget", [*FILTERS, RenyiFilter(1.0, 1e-5, (2.0, 64.0))], ids=lambda budget: budget.kind)
@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=st.data())
def test_headroom_is_not_negative_exactly_where_a_total_is_admitted(budget: PrivacyFilter, data: st.DataObject) -> None:
    used = tuple(
        data.draw(st.integers(max(cap - 2, 0), cap + 2) | st.sampled_from([0, 2 * cap + 9, SATURATED, 3 * SATURATED]))
        if cap > 0
        else data.draw(st.integers(0, 3))
        for cap in budget.caps
    )
    room = budget.headroom(used)
    rooms = [cap - amount for cap, amount in zip(budget.caps, used, strict=True)]
    both = min(rooms[:2]) if budget.kind in ("approximate_dp", "approximate_gaussian_dp") else max(rooms)
    assert room == (max(both, rooms[2]) if budget.kind == "approximate_gaussian_dp" else both)
    assert budget.admits(used) == (room >= 0)
    # The room is what fits: one unit more at every position does not.
    if room >= 0:
        assert budget.admits(tuple(amount + room for amount in used))
    assert not budget.admits(tuple(amount + max(room, 0) + 1 for amount in used))


@pytest.mark.one_in(5)
@by_kind
@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_budget_is_as_full_as_the_number_that_its_limit_is_stated_in(
    budget: PrivacyFilter, data: st.DataObject
) -> None:
    def amounts() -> tuple[int, ...]:
        """Near the caps, or anywhere below twice as much."""
        near = [st.integers(max(cap - 2, 0), max(cap, 0) + 2) | st.integers(0, 2 * max(cap, 0)) for cap in budget.caps]
        return tuple(map(data.draw, near))

    used = amounts()
    stated, share, left = budget.stated(used), budget.share_used(used), budget.left(used)
    assert left == max(0, budget.stated_limit - stated)
    if budget.admits(used):
        assert stated + left == budget.stated_limit
        assert share <= 1.0
    if budget.kind != "approximate_dp":
        assert stated / budget.stated_limit <= share <= (stated / budget.stated_limit) * (1 + 1e-15)
    else:
        assert share > 1.0 or budget.admits(used)
    more = budget.add(used, amounts())
    assert budget.stated(more) >= stated
    assert budget.share_used(more) >= share
    assert budget.share_used((SATURATED,) * len(budget.caps)) == math.inf


@by_kind
def test_a_negative_amount_is_never_admitted(budget: PrivacyFilter) -> None:
    for index in range(len(budget.caps)):
        assert not budget.admits(tuple(-1 if at == index else 0 for at in range(len(budget.caps))))


@pytest.mark.one_in(3)
@by_additive_kind
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_largest_count_fits_and_one_more_does_not(budget: PrivacyFilter, data: st.DataObject) -> None:
    events = data.draw(events_for(budget.kind))
    used = tuple(max(cap, 0) * data.draw(st.integers(0, 4)) // 4 for cap in budget.caps)

    def fits(steps: int) -> bool:
        if steps == 0:
            return budget.admits(used)
        return budget.admits(budget.add(used, budget.cost(prefix_of_events(events, steps), REPLACE).amounts))

    count = budget.largest_count_that_fits(events, REPLACE, used)
    assert fits(count)
    assert count == sum(event.count for event in events) or not fits(count + 1)


amounts_of_a_limit = st.floats(1e-4, 1e4) | st.integers(1, 10**4) | st.sampled_from([0.1, 1e-3, 1.9999999999, 3.3e-5])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(limit=amounts_of_a_limit, delta=st.floats(1e-17, 0.5))
def test_caps_are_rounded_down_and_survive_canonical_bytes(limit: float, delta: float) -> None:
    filters = [PureDpFilter(limit), ApproximateDpFilter(limit, delta), ZcdpFilter(limit), GaussianDpFilter(limit)]
    for budget in filters:
        read = filter_from_json(json.loads(canonical_bytes(budget.to_json())))
        assert read == budget
        assert read.caps == budget.caps
        assert all(0 <= cap < SATURATED for cap in budget.caps)
        assert budget.describe_remaining(budget.zero) == budget.describe_limit()
    units = exact(limit) ** 2 * NANO
    assert units - 1 < filters[3].caps[0] <= units
    assert all(exact(limit) * NANO - 1 < budget.caps[0] <= exact(limit) * NANO for budget in filters[:3])
    assert exact(delta) * ATTO - 1 < filters[1].caps[1] <= exact(delta) * ATTO
