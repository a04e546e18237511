"""Costs in approximate_dp budgets: tight at the reservation's delta, or sums."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import AccountingError, InvalidValue
from accounting.events import (
    ApproximateDp,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RenyiDp,
    WithoutReplacement,
    ZcDp,
)
from accounting.filters import approximate_dp_cost, pure_dp_cost
from accounting.relations import NeighboringRelation
from accounting.units import ATTO, NANO, SATURATED
from tests.accounting.filters.costs.cells import (
    ADD_REMOVE,
    FULL,
    ONE_OF_EACH,
    ORDERS,
    REPLACE,
    SAMPLED_LAPLACE,
    SPECIAL,
    up,
)
from tests.accounting.references import gaussian_epsilon, normal_cdf


def test_approximate_dp_gaussian_is_tight() -> None:
    for relation, mu in ((ADD_REMOVE, math.sqrt(0.5)), (SPECIAL, math.sqrt(0.5)), (REPLACE, math.sqrt(2.0))):
        epsilon, delta = approximate_dp_cost((FULL,), relation, 1e-6).amounts
        assert 0 <= epsilon - up(gaussian_epsilon(mu, 1e-6)) <= 2
        assert delta == 10**12


@pytest.mark.one_in(5)
@pytest.mark.parametrize("sampling", [Poisson(0.05), WithoutReplacement(5, 100)])
@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
def test_above_the_certified_epsilon(sampling: Poisson | WithoutReplacement, relation: NeighboringRelation) -> None:
    events = (Event(Gaussian(2.0), sampling, 20),)
    certified = epsilon_for_delta(events, relation, 1e-5).value
    epsilon, delta = approximate_dp_cost(events, relation, 1e-5).amounts
    assert epsilon == math.ceil(Fraction(certified.upper) * NANO)
    assert delta == 10**13
    assert epsilon < 0.9 * approximate_dp_cost((Event(Gaussian(2.0), count=20),), relation, 1e-5).amounts[0]


def test_approximate_dp_pure_and_laplace_add_up_without_a_delta() -> None:
    events = (Event(Laplace(4.0), count=3), Event(PureDp(0.1), count=2))
    assert approximate_dp_cost(events, REPLACE).amounts == (1_700_000_000, 0)
    assert approximate_dp_cost(events, ADD_REMOVE, 1e-3).amounts == (950_000_000, 0)


@pytest.mark.parametrize(("event", "relation", "largest"), SAMPLED_LAPLACE[:3])
def test_approximate_dp_sampled_laplace_adds_up(event: Event, relation: NeighboringRelation, largest: mp.mpf) -> None:
    assert approximate_dp_cost((event,), relation).amounts == (*pure_dp_cost((event,), relation).amounts, 0)


def test_stated_deltas_are_charged() -> None:
    stated = Event(ApproximateDp(0.1, 1e-7), count=3)
    assert approximate_dp_cost((stated,), REPLACE).amounts == (300_000_000, 3 * 10**11)
    assert approximate_dp_cost((stated, Event(Laplace(4.0))), ADD_REMOVE).amounts == (550_000_000, 3 * 10**11)
    assert approximate_dp_cost((Event(ApproximateDp(0.0, 1e-30)),), ADD_REMOVE).amounts == (0, 1)
    assert approximate_dp_cost((Event(ApproximateDp(0.0, 1.0), count=10**8),), ADD_REMOVE).amounts == (0, SATURATED)
    epsilon, delta = approximate_dp_cost((stated, Event(Gaussian(5.0))), ADD_REMOVE, 1e-6).amounts
    assert delta == 10**12 + 3 * 10**11
    mixed = epsilon_for_delta([Event(PureDp(0.1), count=3), Event(Gaussian(5.0))], ADD_REMOVE, 1e-6).value
    assert epsilon == math.ceil(Fraction(mixed.upper) * NANO)
    assert gaussian_epsilon(0.2, 1e-6) * NANO < epsilon <= up(gaussian_epsilon(0.2, 1e-6) + mp.mpf("0.3")) + 1


def test_a_mixture_that_states_its_delta_is_not_cheaper_than_it_is() -> None:
    """Attained: the stated step reveals everything with probability delta, and is randomised response otherwise."""
    events = (Event(ApproximateDp(0.5, 1e-3)), Event(Gaussian(1.0)))
    epsilon, delta = approximate_dp_cost(events, ADD_REMOVE, 1e-5).amounts
    assert delta == 10**15 + 10**13
    eps, stated = mp.mpf(epsilon) / NANO, mp.mpf("0.001")

    def hockey_stick(shift: mp.mpf) -> mp.mpf:
        return normal_cdf(mp.mpf(1) / 2 - shift) - mp.exp(shift) * normal_cdf(-mp.mpf(1) / 2 - shift)

    likely = mp.exp(mp.mpf("0.5")) / (1 + mp.exp(mp.mpf("0.5")))
    inner = likely * hockey_stick(eps - mp.mpf("0.5")) + (1 - likely) * hockey_stick(eps + mp.mpf("0.5"))
    attained = stated + (1 - stated) * inner
    assert mp.mpf("0.0010099") < attained <= mp.mpf(delta) / ATTO


def test_approximate_dp_zcdp_and_renyi_are_converted_at_the_delta() -> None:
    rho = approximate_dp_cost((Event(ZcDp(0.1), count=5),), REPLACE, 1e-5).amounts
    # Between the Gaussian that attains it and Canonne, Kamath & Steinke's single-order conversion, 4.7283856.
    assert up(mp.mpf("4.3771780957")) <= rho[0] <= 4_728_386_987
    assert rho[1] == 10**13
    event = Event(RenyiDp(ORDERS, (0.1, 0.2, 0.3, 0.4)), count=3)
    epsilon, delta = approximate_dp_cost((event,), REPLACE, 1e-5).amounts
    best = min(
        3 * e + (math.log(1e5) + (a - 1) * math.log1p(-1 / a) - math.log(a)) / (a - 1)
        for a, e in zip(ORDERS, (0.1, 0.2, 0.3, 0.4), strict=True)
    )
    assert 0.1 * NANO < epsilon <= best * NANO * (1 + 1e-6)
    assert delta == 10**13


@pytest.mark.parametrize("name", ["gaussian", "zcdp", "renyi_dp"])
def test_a_charge_delta_that_is_needed_and_missing_is_asked_for(name: str) -> None:
    with pytest.raises(AccountingError, match=r"charge\.delta") as caught:
        approximate_dp_cost((Event(PureDp(0.1)), ONE_OF_EACH[name]), REPLACE)
    assert caught.value.code == "missing_charge_delta"
    assert caught.value.pointer == ("charge", "delta")
    assert name in caught.value.detail


@pytest.mark.parametrize("bad", [0.0, 1e-19, 0.6, math.nan, "1e-5"])
def test_a_charge_delta_outside_its_range_is_refused(bad: float) -> None:
    with pytest.raises(InvalidValue) as caught:
        approximate_dp_cost((FULL,), REPLACE, bad)
    assert caught.value.pointer == ("charge", "delta")


def test_epsilon_is_rounded_up_and_a_charge_delta_off_the_grid_too() -> None:
    delta = 1.23456789012345e-5
    epsilon, atto = approximate_dp_cost((FULL,), REPLACE, delta).amounts
    assert atto == 12345678901235
    assert Fraction(epsilon, NANO) >= Fraction(epsilon_for_delta([FULL], REPLACE, delta).value.upper)
