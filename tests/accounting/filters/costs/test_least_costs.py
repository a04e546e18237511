"""The certified lower end of a price: never above what the table says, to fifty digits, and near to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import mpmath as mp
import numpy as np
import pytest

from accounting.errors import AccountingError
from accounting.events import (
    ApproximateDp,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    GaussianMixture,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    RandomAllocation,
    RandomizedResponse,
    RenyiDp,
    WithoutReplacement,
    ZcDp,
)
from accounting.filters import RenyiFilter
from accounting.losses.rules import loss_of
from accounting.relations import NeighboringRelation
from accounting.units import ATTO, NANO, SATURATED, Amounts
from tests.accounting.filters.costs.cells import ADD_REMOVE, REPLACE, SPECIAL
from tests.accounting.filters.costs.test_cells import COLUMNS, DELTA
from tests.accounting.filters.costs.test_edges import BUDGETS, TRIED, has_delta
from tests.accounting.filters.costs.truths import (
    allocated_moment,
    largest_bounded_range_moment,
    mu_through,
    sampled_laplace_moment,
    symmetrized_moment,
)
from tests.accounting.references import gaussian_epsilon, poisson_moment

COUNT = 10**8
#: Of costs with one amount, which are larger.
FEWER = 10**6
#: Orders with integers, and with tilts where moments are integrated or taken from the integer below.
ORDERS = (1.25, 2.0, 3.5, 9.0, 40.5)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("kind", BUDGETS)
def test_a_lower_end_is_never_above_the_price(kind: str) -> None:
    budget = BUDGETS[kind]
    for event, relation in product(TRIED[kind][:: 1 if kind != "approximate_dp" else 3], NeighboringRelation):
        try:
            amounts = budget.cost((event,), relation, 1e-6).amounts
        except AccountingError as refused:
            with pytest.raises(type(refused)):
                budget.least_cost((event,), relation, 1e-6)
            continue
        least = budget.least_cost((event,), relation, 1e-6)
        assert len(least) == len(amounts)
        assert all(map(int.__le__, least, amounts)), (event, relation)
        assert min(least[:1] if has_delta(kind) else least) >= 1, (event, relation)


def divergences(moment: Callable[[float], mp.mpf]) -> list[mp.mpf]:
    return [COUNT * moment(order - 1) / (mp.mpf(order) - 1) for order in ORDERS]


def randomized_response_moment(epsilon: float, tilt: float) -> mp.mpf:
    e, x = mp.mpf(repr(epsilon)), mp.mpf(tilt)
    return mp.log(mp.cosh((x + mp.mpf(1) / 2) * e) / mp.cosh(e / 2))


def mixed(tilt: float) -> mp.mpf:
    parts = (mp.mpf(3) / 4, 8), (mp.mpf(1) / 4, 4)
    return mp.log(sum(w * mp.exp(poisson_moment(s, 0.05, tilt, "remove")) for w, s in parts))


#: A step, its relation, the log-moment of the table, and how far below it the lower end may be, order by order.
MOMENTS: dict[str, tuple[Event, NeighboringRelation, Callable[[float], mp.mpf], tuple[float, ...]]] = {
    "randomized response": (
        Event(PureDp(0.3), count=COUNT), SPECIAL, lambda x: randomized_response_moment(0.3, x), (1e-9,) * 5
    ),
    "gaussian, poisson": (
        Event(Gaussian(4.0), Poisson(0.05), COUNT), ADD_REMOVE, lambda x: poisson_moment(4.0, 0.05, x, "remove"),
        (1e-8, 1e-8, 1e-8, 1e-8, 0.1),
    ),
    "gaussian, poisson, replaced": (
        Event(Gaussian(4.0), Poisson(0.05), COUNT), REPLACE, lambda x: poisson_moment(4.0, 0.05, x, "replace"),
        (1e-8,) * 5,
    ),
    "gaussian, fixed size": (
        Event(Gaussian(4.0), WithoutReplacement(5, 100), COUNT), REPLACE, lambda x: symmetrized_moment(4.0, 0.05, x),
        (1e-8,) * 5,
    ),
    "mixture, poisson": (
        Event(GaussianMixture((0.75, 0.25), (8.0, 4.0)), Poisson(0.05), COUNT), SPECIAL, mixed,
        (1e-8, 1e-8, 1e-8, 1e-8, 0.1),
    ),
    "laplace, poisson": (
        Event(Laplace(4.0), Poisson(0.05), COUNT), SPECIAL,
        lambda x: sampled_laplace_moment(4.0, 0.05, x, "remove"), (1e-8,) * 5,
    ),
    "exponential": (
        Event(Exponential(0.5), count=COUNT), SPECIAL, lambda x: largest_bounded_range_moment(0.5, x), (1e-9,) * 5
    ),
}  # fmt: skip


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", MOMENTS)
@mp.workdps(40)
def test_a_divergence_is_between_both_ends(name: str) -> None:
    event, relation, moment, below = MOMENTS[name]
    budget = RenyiFilter(1e6, 1e-5, ORDERS)
    most, least = budget.cost((event,), relation).amounts, budget.least_cost((event,), relation)
    for order, truth, low, high, share in zip(ORDERS, divergences(moment), least, most, below, strict=True):
        assert low <= mp.ceil(truth * NANO) <= high, order
        assert low >= mp.floor(truth * NANO * (1 - share)), order


@mp.workdps(40)
def test_an_allocation_is_known_at_integers_and_from_the_integer_below_between() -> None:
    budget, event = RenyiFilter(1e6, 1e-5, (1.5, 2.0, 5.0, 5.5)), Event(Gaussian(4.0), RandomAllocation(20, 1), 20)
    least = budget.least_cost((event,), ADD_REMOVE)
    truths = [mp.ceil(allocated_moment(4.0, 20, x) / x * NANO) for x in (1.0, 4.0)]
    assert least[0] == 1
    assert all(0 <= truth - low <= 2 for low, truth in zip(least[1:3], truths, strict=True))
    assert least[3] >= least[2]


SQUARES: dict[str, tuple[Event, str, Callable[[], mp.mpf]]] = {
    "pure epsilon": (Event(PureDp(0.3), count=FEWER), "pure_dp", lambda: mp.mpf("0.3")),
    "laplace": (Event(Laplace(4.0), count=FEWER), "pure_dp", lambda: mp.mpf(1) / 4),
    "response": (
        Event(RandomizedResponse(4, 0.75), count=FEWER), "pure_dp", lambda: mp.log(mp.mpf(7) / 3)
    ),
    "rho of a gaussian": (Event(Gaussian(3.0), count=FEWER), "zcdp", lambda: mp.mpf(4) / 18),
    "rho of pure dp": (
        Event(PureDp(0.3), count=FEWER), "zcdp", lambda: mp.mpf("0.3") * mp.tanh(mp.mpf("0.15"))
    ),
    "mu of pure dp": (
        Event(PureDp(0.3), count=FEWER), "gaussian_dp", lambda: mu_through(1 / (1 + mp.exp(mp.mpf("0.3")))) ** 2
    ),
    "mu of laplace": (
        Event(Laplace(4.0), count=FEWER), "gaussian_dp", lambda: mu_through(mp.exp(-mp.mpf(1) / 8) / 2) ** 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SQUARES)
@mp.workdps(40)
def test_an_additive_cost_is_between_both_ends(name: str) -> None:
    event, kind, cost = SQUARES[name]
    relation = REPLACE if name.endswith(("gaussian", "response")) else SPECIAL
    (most,), (least,) = (
        COLUMNS[kind].cost((event,), relation).amounts,
        COLUMNS[kind].least_cost((event,), relation),
    )
    truth = FEWER * cost() * NANO
    assert least <= mp.ceil(truth) <= most
    assert most - least <= 1 + truth * 1e-11


@pytest.mark.parametrize("mechanism", [Exponential(0.7), RandomizedResponse(5, 0.4), DiscreteLaplace(3.0, 0.25)])
def test_a_smallest_rho_is_attained_at_some_tilt_and_never_passed(mechanism: Mechanism) -> None:
    """K(x) <= rho x (x + 1) at every tilt for the price, and not so for anything below the lower end."""
    event = Event(mechanism, count=FEWER)
    (most,), (least,) = COLUMNS["zcdp"].cost((event,), REPLACE).amounts, COLUMNS["zcdp"].least_cost((event,), REPLACE)
    assert least < most * (1.0 - 1e-10), "which is a bound from above, and attained by no tilt"
    tilts = np.geomspace(1e-6, 1e4, 4000)
    ratios = loss_of(event, REPLACE).log_moment(tilts) / (tilts * (tilts + 1.0)) * NANO * FEWER
    assert max(ratios) * (1.0 - 1e-11) <= most
    assert least <= math.ceil(max(ratios) * (1.0 + 1e-6))
    assert least >= most * (1.0 - 3e-6)


def test_both_ends_of_an_epsilon_enclose_it_and_deltas_are_exact() -> None:
    events = (Event(Gaussian(4.0), count=9), Event(ApproximateDp(0.25, 1e-9), count=2))
    only = COLUMNS["approximate_dp"].least_cost(events[:1], ADD_REMOVE, DELTA)
    truth = gaussian_epsilon(0.75, DELTA)
    assert only[1] == round(DELTA * ATTO)
    assert mp.floor(truth * NANO * (1 - mp.mpf("1e-6"))) <= only[0] <= mp.ceil(truth * NANO)
    both = COLUMNS["approximate_dp"].least_cost(events, ADD_REMOVE, DELTA)
    assert both[1] == round(DELTA * ATTO) + 2 * 10**9
    by_moments = (Event(RenyiDp((2.0, 4.0), (0.25, 0.5))),)
    assert COLUMNS["approximate_dp"].least_cost(by_moments, ADD_REMOVE, DELTA)[0] == 1, "of which nothing is attained"
    assert COLUMNS["approximate_dp"].cost(by_moments, ADD_REMOVE, DELTA).amounts[0] > 10**9
    stated = COLUMNS["approximate_dp"].least_cost(events[1:], ADD_REMOVE)
    assert stated == (5 * 10**8, 2 * 10**9)
    with pytest.raises(AccountingError) as missing:
        COLUMNS["approximate_dp"].least_cost(events, ADD_REMOVE)
    assert missing.value.code == "missing_charge_delta"


def test_what_was_stated_at_some_orders_is_known_by_nobody_beyond_them() -> None:
    """Between two stated orders the chord is the price; below the first the first divergence bounds, it is no more."""
    budget, event = RenyiFilter(1e6, 1e-5, (1.5, 2.0, 3.0, 4.0, 5.0)), Event(RenyiDp((2.0, 4.0), (0.25, 0.5)), count=4)
    most, least = budget.cost((event,), SPECIAL).amounts, budget.least_cost((event,), SPECIAL)
    expected: Amounts = (10**9, 10**9, -(-4 * 10**9 * 7 // 16), 2 * 10**9, SATURATED)
    assert all(0 <= high - want <= 1 for high, want in zip(most, expected, strict=True))
    assert all(0 <= want - low <= 1 for low, want in zip(least, expected, strict=True))


def test_an_order_that_is_not_tried_is_known_from_those_below_it() -> None:
    budget, event = RenyiFilter(1e9, 1e-5, (2.0, 60_000.0, 1e6)), Event(Gaussian(50.0), Poisson(0.01), 10)
    most, least = budget.cost((event,), ADD_REMOVE).amounts, budget.least_cost((event,), ADD_REMOVE)
    assert least[1] >= most[1] * (1.0 - 1e-8)
    assert least[1] <= least[2] < most[2]


def test_a_list_has_the_sum_of_its_lower_ends() -> None:
    events = (Event(ZcDp(0.125), count=3), Event(Gaussian(4.0), Poisson(0.05), 7), Event(PureDp(0.5)))
    budget = RenyiFilter(1e6, 1e-5, ORDERS)
    least = budget.least_cost(events, SPECIAL)
    singles = [budget.least_cost((event,), SPECIAL) for event in events]
    for index, amount in enumerate(least):
        assert 0 <= sum(each[index] for each in singles) - amount <= 2
