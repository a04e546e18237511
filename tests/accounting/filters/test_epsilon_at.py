"""What amounts, and full budgets, mean as an epsilon at any delta."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.conversions.single_order import canonne_kamath_steinke, smallest_over_orders
from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian
from accounting.filters import (
    ApproximateDpFilter,
    ApproximateGaussianDpFilter,
    GaussianDpFilter,
    PrivacyFilter,
    PureDpFilter,
    RenyiFilter,
    ZcdpFilter,
)
from accounting.filters.privacy_filter import float_of_nano
from accounting.units import CLOSED, NANO, SATURATED, exact
from tests.accounting.filters.budgets import ADD_REMOVE, FILTERS, by_kind
from tests.accounting.filters.stopping import attained_delta
from tests.accounting.references import gaussian_delta, gaussian_epsilon

DELTAS = (1e-18, 1e-5, 0.5)
#: The reference is bisected, and not below this.
TINY = mp.mpf(10) ** -50


@by_kind
def test_nothing_charged_is_epsilon_zero_and_saturated_amounts_are_none(budget: PrivacyFilter) -> None:
    for delta in (0.0, *DELTAS):
        assert budget.epsilon_at(budget.zero, delta) == 0.0
        assert budget.epsilon_at((SATURATED,) * len(budget.caps), delta) is None
        assert budget.epsilon_at((SATURATED + 1,) * len(budget.caps), delta) is None
    for ask in (budget.limit_epsilon_at, lambda delta: budget.epsilon_at(budget.caps, delta)):
        for bad in (-1e-9, 0.6, math.nan, "1e-5"):
            with pytest.raises(InvalidValue) as refused:
                ask(bad)
            assert refused.value.pointer == ("delta",)


@by_kind
def test_at_delta_zero_only_what_has_no_delta_has_an_epsilon(budget: PrivacyFilter) -> None:
    one = (1,) * len(budget.caps)
    assert budget.epsilon_at(one, 0.0) == (1e-9 if budget.kind in ("pure_dp", "approximate_gaussian_dp") else None)
    assert budget.limit_epsilon_at(0.0) == (1.0 if budget.kind == "pure_dp" else None)


def test_pure_charges_are_their_own_epsilon() -> None:
    for delta in (0.0, *DELTAS):
        assert PureDpFilter(1.0).epsilon_at((300_000_000,), delta) == 0.3
        assert PureDpFilter(1.9999999999).limit_epsilon_at(delta) == 1.999999999


def test_approximate_charges_are_their_own_epsilon_where_delta_is_not_below_theirs() -> None:
    budget = ApproximateDpFilter(2.0, 1e-5)
    assert budget.epsilon_at((300_000_000, 10**12), 1e-6) == 0.3
    assert budget.epsilon_at((300_000_000, 10**12 + 1), 1e-6) is None
    assert budget.epsilon_at((300_000_000, 0), 0.0) == 0.3
    assert budget.epsilon_at((0, 10**12), 1e-7) is None
    assert budget.epsilon_at((0, 10**12), 1e-6) == 0.0
    assert budget.epsilon_at((SATURATED, 10**12), 0.5) is None
    assert [budget.limit_epsilon_at(delta) for delta in (9.9e-6, 1e-5, 1e-3)] == [None, 2.0, 2.0]


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", [1e-9, 1e-4, 0.5, 40.0])
@pytest.mark.one_in(16)
def test_zcdp_charges_cost_what_their_rho_does(rho: float, delta: float) -> None:
    """Between the Gaussian that has this rho and the best single order."""
    found = ZcdpFilter(100.0).epsilon_at((round(rho * NANO),), delta)
    assert found is not None
    best = smallest_over_orders(
        lambda order: canonne_kamath_steinke(order, rho * order, delta), 1.0 + math.sqrt(-math.log(delta) / rho)
    )
    assert gaussian_epsilon(mp.sqrt(2 * mp.mpf(rho)), delta) - TINY <= found <= best * (1 + 1e-9)
    assert ZcdpFilter(rho).limit_epsilon_at(delta) == found


def test_zcdp_at_a_known_number() -> None:
    assert ZcdpFilter(1.0).epsilon_at((NANO // 2,), 1e-5) == pytest.approx(4.728385649, abs=1e-8)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("mu_squared", [1, 1_000_000, 1_210_000_000, 49 * NANO])
@pytest.mark.one_in(16)
def test_gaussian_charges_cost_what_one_gaussian_does(mu_squared: int, delta: float) -> None:
    found = GaussianDpFilter(30.0).epsilon_at((mu_squared,), delta)
    assert found is not None
    truth = gaussian_epsilon(mp.sqrt(mp.mpf(mu_squared) / NANO), delta)
    assert truth - TINY <= found <= truth * (1 + mp.mpf(10) ** -9) + mp.mpf(10) ** -14


def test_gaussian_limit_is_that_of_its_mu() -> None:
    assert GaussianDpFilter(1.0).limit_epsilon_at(1e-5) == pytest.approx(4.3771780957, abs=1e-9)


# -- renyi_dp ---------------------------------------------------------------------------------------------------------


def penalty(order: float, delta: float) -> float:
    """What epsilon is above the divergence (Canonne, Kamath & Steinke 2020)."""
    return (-math.log(delta) - math.log(order)) / (order - 1) + math.log1p(-1 / order)


def test_renyi_charges_cost_their_best_order_with_its_share_of_delta() -> None:
    budget = RenyiFilter(2.0, 1e-5, (20.0, 64.0, 300.0))
    amounts = (100_000_000, 400_000_000, 1_900_000_000)
    for delta in DELTAS:
        by_hand = [
            amount / NANO + penalty(order, delta / 3) for amount, order in zip(amounts, budget.orders, strict=True)
        ]
        found = budget.epsilon_at(amounts, delta)
        assert found is not None
        assert 0 <= found - max(0.0, min(by_hand)) <= 1.001e-9
    # Another order is best at another delta.
    assert by_hand.index(min(by_hand)) == 0
    assert 0.4 + penalty(64.0, 3e-18) < 0.1 + penalty(20.0, 3e-18)


def test_a_closed_order_is_open_at_a_larger_delta_and_an_unknown_amount_is_passed_over() -> None:
    budget, delta = RenyiFilter(1.0, 1e-12, (4.0, 64.0)), 1e-3
    assert budget.caps[0] == CLOSED
    low, high = (penalty(order, delta / 2) for order in budget.orders)
    assert budget.epsilon_at((10**7, 9 * 10**8), delta) == pytest.approx(0.9 + high, abs=2e-9)
    assert budget.epsilon_at((10**7, 4 * NANO), delta) == pytest.approx(0.01 + low, abs=2e-9)
    assert budget.epsilon_at((10**7, SATURATED), delta) == pytest.approx(0.01 + low, abs=2e-9)
    assert budget.epsilon_at((SATURATED, 10**8), delta) == pytest.approx(0.1 + high, abs=2e-9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_at_its_own_delta_a_renyi_budget_admits_what_costs_at_most_its_epsilon(data: st.DataObject) -> None:
    budget = RenyiFilter(data.draw(st.sampled_from([0.5, 1.6, 7.0])), 1e-5, (3.5, 8.0, 30.0, 100.0))
    amounts = tuple(data.draw(near(cap)) for cap in budget.caps)
    found = budget.epsilon_at(amounts, budget.delta)
    assert found is not None
    if budget.admits(amounts):
        assert found <= budget.epsilon + 1.001e-9
    else:
        assert found > budget.epsilon - 1.001e-9


def near(cap: int) -> st.SearchStrategy[int]:
    cap = max(cap, 0)
    return st.integers(0, 2 * cap + 10) | st.integers(max(cap - 2, 0), cap + 2)


def test_a_full_renyi_budget_is_worth_its_worst_order() -> None:
    """Any one order may be the one that admitted: the others' amounts may be anything."""
    budget = RenyiFilter(1.6, 1e-5)
    assert budget.limit_epsilon_at(1e-5) == 1.6
    for delta in DELTAS:
        limit = budget.limit_epsilon_at(delta)
        assert limit is not None
        full = []
        for index in range(len(budget.orders)):
            alone = tuple(cap if at == index else SATURATED for at, cap in enumerate(budget.caps))
            assert budget.admits(alone)
            full.append(budget.epsilon_at(alone, delta))
        assert all(epsilon is not None and epsilon <= limit + 2e-9 for epsilon in full)
        assert max(epsilon or 0.0 for epsilon in full) >= limit - 2e-9
    # What the amounts of a budget with every order full would suggest is too little.
    assert (budget.epsilon_at(budget.caps, 1e-9) or 0.0) < 0.7 * (budget.limit_epsilon_at(1e-9) or 0.0)


def test_a_limit_beyond_what_is_counted_is_none() -> None:
    """An order very near 1 makes an epsilon at another delta larger than any amount."""
    budget = RenyiFilter(1e9, 0.5, (1.0 + 1e-8, 2.0))
    assert budget.caps[0] > 0
    assert budget.limit_epsilon_at(0.5) == 1e9
    assert budget.limit_epsilon_at(1e-5) == pytest.approx(1e9 + math.log(0.5 / 1e-5) / 1e-8, rel=1e-6)
    assert budget.limit_epsilon_at(1e-300) is None


# -- every filter -----------------------------------------------------------------------------------------------------


@pytest.mark.one_in(5)
@by_kind
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_bounds_every_admitted_total(budget: PrivacyFilter, data: st.DataObject) -> None:
    amounts = tuple(data.draw(near(cap)) for cap in budget.caps)
    delta = data.draw(st.sampled_from(DELTAS))
    if not budget.admits(amounts):
        amounts = tuple(min(amount, max(cap, 0)) for amount, cap in zip(amounts, budget.caps, strict=True))
    limit, found = budget.limit_epsilon_at(delta), budget.epsilon_at(amounts, delta)
    if limit is not None:
        assert found is not None
        assert found <= limit * (1 + 1e-11) + 1.001e-9


@pytest.mark.one_in(5)
@by_kind
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_more_charges_and_a_smaller_delta_never_cost_less(budget: PrivacyFilter, data: st.DataObject) -> None:
    amounts = tuple(data.draw(st.integers(1, 2 * max(cap, 1))) for cap in budget.caps)
    more = tuple(amount + data.draw(st.integers(0, amount)) for amount in amounts)
    deltas = sorted(data.draw(st.lists(st.floats(1e-18, 0.5), min_size=2, max_size=3)))
    found = [known(budget.epsilon_at(amounts, delta)) for delta in deltas]
    assert all(b <= a * (1 + 1e-11) for a, b in pairwise(found))
    assert known(budget.epsilon_at(more, deltas[0])) >= found[0] * (1 - 1e-11)


def known(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


@pytest.mark.one_in(4)
@pytest.mark.parametrize("budget", FILTERS[2:], ids=lambda budget: budget.kind)
@pytest.mark.parametrize("noise", [0.7, 3.0, 40.0])
def test_a_gaussian_that_was_charged_is_as_private_as_is_said(budget: PrivacyFilter, noise: float) -> None:
    amounts = budget.cost([Event(Gaussian(noise), count=4)], ADD_REMOVE).amounts
    for delta in DELTAS:
        epsilon = budget.epsilon_at(amounts, delta)
        if isinstance(budget, ApproximateGaussianDpFilter) and epsilon is None:
            # More goes with this mu squared than there is.
            assert amounts[0] / NANO * budget.price_terms[1][0] > 0.98 * delta
            continue
        assert epsilon is not None
        assert gaussian_delta(2.0 / noise, epsilon) <= delta


@pytest.mark.one_in(2)
@pytest.mark.parametrize("budget", [ZcdpFilter(50.0), GaussianDpFilter(30.0), RenyiFilter(50.0, 1e-3)])
def test_valid_for_adaptive_charges(budget: PrivacyFilter) -> None:
    """Whoever looks at the loss after every charge and stops at will gains nothing where epsilon was fixed before.

    Charges go on while `epsilon_at` stays within that epsilon. An epsilon that is read off when the analyst likes its
    outputs is another matter: there more than delta is attained.
    """
    variance, delta, limit = 9.0 / 500, 1e-3, 12.0
    step = budget.cost([Event(Gaussian(variance**-0.5))], ADD_REMOVE).amounts

    def epsilon_of(charges: int) -> float:
        return known(budget.epsilon_at(tuple(charges * amount for amount in step), delta))

    admitted = bisect_right(range(1, 1000), limit, key=epsilon_of)
    assert 200 < admitted < 999
    best, _ = attained_delta(admitted, variance, lambda _: limit)
    assert best <= delta * (1 + 2e-3)
    if budget.kind == "gaussian_dp":
        assert best > 0.95 * delta
        assert attained_delta(admitted, variance, epsilon_of)[0] > 3 * delta


@settings(max_examples=150, deadline=None, derandomize=True)
@given(amount=st.integers(0, 2**62) | st.integers(0, 10**10))
def test_amounts_become_the_smallest_float_whose_decimal_is_not_below(amount: int) -> None:
    found = float_of_nano(amount)
    assert exact(found) >= Fraction(amount, NANO)
    assert found == 0.0 or exact(math.nextafter(found, 0.0)) < Fraction(amount, NANO)
