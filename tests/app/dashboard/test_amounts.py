"""Amounts of a budget in words, and as shares of its limit."""

from __future__ import annotations

from typing import Any

import pytest

from app.dashboard.amounts import Shares, left_in_words, shares, used_in_words

BOTH = {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-6}


def test_both_amounts_of_a_filter_are_rounded_to_their_side() -> None:
    amount = {"epsilon": 1.00000049, "delta": 7.00000049e-7}
    assert left_in_words(BOTH, amount) == "epsilon 1, delta 7e-7"
    assert used_in_words(BOTH, amount) == "epsilon 1.00001, delta 7.00001e-7"


@pytest.mark.parametrize(("epsilon", "delta", "share"), [(1.0, 5e-7, 0.5), (3.0, 5e-7, 0.75)])
def test_of_two_amounts_the_one_counts_of_which_more_is_used(epsilon: float, delta: float, share: float) -> None:
    nothing = {"epsilon": 0.0, "delta": 0.0}
    budget: dict[str, Any] = {
        "filter": BOTH,
        "limit": {"epsilon": 4.0, "delta": 1e-6},
        "spent": {"epsilon": epsilon, "delta": delta},
        "started": nothing,
        "reserved": nothing,
        "remaining": {"epsilon": 4.0 - epsilon, "delta": 1e-6 - delta},
    }
    assert shares(budget) == Shares(pytest.approx(share), 0.0, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("pure", "share"), [(0.5, 0.25), (1.9, 0.75), (None, 0.75)])
def test_pure_epsilons_count_beside_a_gaussian_where_they_have_more_room(pure: float | None, share: float) -> None:
    """Epsilon itself does not add up: the bar shows what does, and its parts are those of one amount."""

    def amounts(epsilon: float, mu_squared: float, failure: float, sum_of_epsilons: float | None) -> dict[str, Any]:
        names = ("epsilon", "mu_squared", "failure_delta", "pure_epsilon")
        return dict(zip(names, (epsilon, mu_squared, failure, sum_of_epsilons), strict=True))

    budget: dict[str, Any] = {
        "filter": {"kind": "approximate_gaussian_dp", "epsilon": 2.0, "delta": 1e-5},
        "limit": amounts(2.0, 0.4, 1e-6, 2.0),
        "spent": amounts(1.2, 0.2, 7.5e-7, pure),
        "started": amounts(0.0, 0.0, 0.0, 0.0),
        "reserved": amounts(0.0, 0.0, 0.0, 0.0),
        "remaining": amounts(0.8, 0.2, 2.5e-7, 0.0),
    }
    assert shares(budget).used == pytest.approx(share)


def test_of_a_limit_of_zero_nothing_is_left() -> None:
    zero = {"rho": 0.0}
    budget: dict[str, Any] = dict.fromkeys(("limit", "spent", "started", "reserved", "remaining"), zero)
    assert shares(budget | {"filter": {"kind": "zcdp", "rho": 0.0}}).used == 1.0
