"""The Gaussian DP filter: mu squared adds up."""

from __future__ import annotations

import math

import pytest

from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian
from accounting.filters import GaussianDpFilter
from accounting.losses.gaussian_mu import mu_of_laplace, mu_of_pure_dp
from accounting.units import SATURATED
from tests.accounting.filters.budgets import ADD_REMOVE


def test_gaussian_dp_charges_of_one_fill_the_square_of_the_limit() -> None:
    budget = GaussianDpFilter(3.0)
    one = budget.cost([Event(Gaussian(1.0))], ADD_REMOVE).amounts
    assert budget.admits(tuple(9 * amount for amount in one))
    assert not budget.admits(tuple(9 * amount + 1 for amount in one))
    assert budget.largest_count_that_fits([Event(Gaussian(1.0), count=100)], ADD_REMOVE, budget.zero) == 9


def test_mu_squared_is_described_exactly_and_mu_outward() -> None:
    budget = GaussianDpFilter(1.1)
    assert budget.caps == (1_210_000_000,)
    assert budget.describe_limit() == {"mu": "1.1", "mu_squared": "1.21"}
    assert budget.describe((250_000_000,)) == {"mu": "0.5", "mu_squared": "0.25"}
    assert budget.describe((2,)) == {"mu": "0.000044722", "mu_squared": "0.000000002"}
    assert budget.describe(budget.zero) == {"mu": "0", "mu_squared": "0"}
    assert budget.describe_remaining((160_000_000,)) == {"mu": "0.7", "mu_squared": "1.05"}
    assert budget.describe_remaining((2,)) == {"mu": "1.099955278", "mu_squared": "1.209999998"}
    assert budget.describe_remaining((SATURATED,)) == {"mu": "0", "mu_squared": "0"}


def test_a_mu_whose_square_is_below_the_grain_is_refused() -> None:
    for bad in (3.1e-5, 0.0, 4e4, math.nan):
        with pytest.raises(InvalidValue) as caught:
            GaussianDpFilter(bad)
        assert caught.value.pointer == ("mu",)
    assert GaussianDpFilter(3.2e-5).caps == (1,)


def test_a_pure_charge_costs_less_than_its_epsilon_times_a_constant() -> None:
    """mu tends to eps sqrt(pi / 2) as eps tends to 0, and Laplace's is never above."""
    for epsilon in (1e-6, 1e-3):
        assert mu_of_pure_dp(epsilon) == pytest.approx(epsilon * math.sqrt(math.pi / 2), rel=epsilon)
    assert all(mu_of_laplace(e) <= mu_of_pure_dp(e) for e in (1e-9, 1e-3, 0.3, 1.0, 7.0, 100.0, 1e6))
