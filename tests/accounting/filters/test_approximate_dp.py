"""The approximate DP filter: both caps hold, and a prefix is not worth its own price."""

from __future__ import annotations

import math

import pytest

from accounting.composition.gaussian_dp import epsilon_of_gaussian
from accounting.errors import AccountingError, InvalidValue
from accounting.events import ApproximateDp, Event, Gaussian
from accounting.filters import ApproximateDpFilter
from accounting.units import MAX_LIMIT, NANO, SATURATED
from tests.accounting.filters.budgets import ADD_REMOVE, FILTERS
from tests.accounting.filters.stopping import attained_delta


def test_never_passes_a_cap() -> None:
    budget = ApproximateDpFilter(1.0, 1e-5)
    assert budget.caps == (NANO, 10**13)
    for amounts, admitted in (
        ((0, 0), True),
        ((NANO, 10**13), True),
        ((NANO + 1, 0), False),
        ((0, 10**13 + 1), False),
        ((0, SATURATED), False),
    ):
        assert budget.admits(amounts) is admitted
    assert budget.describe((NANO // 2, 10**12)) == {"epsilon": "0.5", "delta": "0.000001"}
    assert budget.describe_limit() == {"epsilon": "1", "delta": "0.00001"}
    assert budget.describe_remaining((0, 10**12)) == {"epsilon": "1", "delta": "0.000009"}


def test_approximate_dp_charges_add_up_in_epsilon_and_delta() -> None:
    budget = ApproximateDpFilter(3.0, 1e-5)
    one = budget.cost([Event(Gaussian(8.0), count=4)], ADD_REMOVE, 2e-6).amounts
    assert one[1] == 2 * 10**12
    total = budget.zero
    charges = 0
    while budget.admits(budget.add(total, one)):
        total, charges = budget.add(total, one), charges + 1
    assert charges == min(3 * NANO // one[0], 5)
    with pytest.raises(AccountingError) as caught:
        budget.cost([Event(Gaussian(8.0))], ADD_REMOVE)
    assert caught.value.code == "missing_charge_delta"


def test_the_largest_count_of_a_reservation_priced_at_its_delta() -> None:
    budget, events = ApproximateDpFilter(1.0, 1e-5), [Event(Gaussian(8.0), count=40)]
    count = budget.largest_count_that_fits(events, ADD_REMOVE, budget.zero, 1e-6)
    assert epsilon_of_gaussian(math.sqrt(count) / 8.0, 1e-6, upward=True) <= 1.0
    assert epsilon_of_gaussian(math.sqrt(count + 1) / 8.0, 1e-6, upward=False) > 1.0
    assert budget.largest_count_that_fits(events, ADD_REMOVE, (0, 10**13), 1e-6) == 0
    assert budget.largest_count_that_fits([Event(ApproximateDp(0.3, 4e-6), count=9)], ADD_REMOVE, budget.zero) == 2


@pytest.mark.parametrize("bad", [(0.0, 1e-5), (1.0, 0.0), (1.0, 1e-19), (1.0, 0.6), (2 * MAX_LIMIT, 1e-5)])
def test_approximate_limits_outside_their_range_are_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(InvalidValue):
        ApproximateDpFilter(*bad)


def test_only_budgets_that_price_whole_lists_forbid_prefixes_that_depend_on_outputs() -> None:
    forbidding = {budget.kind for budget in FILTERS if not budget.prefix_may_depend_on_outputs}
    assert forbidding == {"approximate_dp", "approximate_gaussian_dp"}


def test_a_prefix_chosen_by_outputs_is_not_worth_its_own_price() -> None:
    """A thousand Gaussian steps, mu = 3 together, stopped at the worst moment: more than 6.8e-3 for 1e-3 claimed.

    Each prefix has the tight epsilon of its own steps at 1e-3. Stopping at the end attains 1e-3.
    """
    steps, delta, variance = 1000, 1e-3, 9.0 / 1000
    best, at_the_end = attained_delta(
        steps, variance, lambda done: epsilon_of_gaussian(math.sqrt(done * variance), delta, upward=True)
    )
    assert at_the_end == pytest.approx(delta, rel=2e-3)
    assert 6.8e-3 < best < 1.1e-2
