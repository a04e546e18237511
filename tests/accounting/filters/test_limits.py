"""Another limit of the same kind of filter, and what a budget shares with those under it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accounting.canonical import canonical_bytes
from accounting.errors import InvalidValue
from accounting.filters import (
    ApproximateDpFilter,
    GaussianDpFilter,
    PrivacyFilter,
    PureDpFilter,
    RenyiFilter,
    ZcdpFilter,
    filter_from_json,
)
from tests.accounting.filters.budgets import FILTERS, by_kind


def test_another_limit_keeps_kind_and_price_terms() -> None:
    assert PureDpFilter(1.0).with_limit({"epsilon": 0.25}) == PureDpFilter(0.25)
    assert ZcdpFilter(1.0).with_limit({"kind": "zcdp", "rho": "0.25"}) == ZcdpFilter(0.25)
    assert GaussianDpFilter(1.0).with_limit({"mu": 3}) == GaussianDpFilter(3.0)
    assert ApproximateDpFilter(1.0, 1e-5).with_limit({"epsilon": 2.0}) == ApproximateDpFilter(2.0, 1e-5)
    parent = RenyiFilter(8.0, 1e-5)
    child = parent.with_limit({"epsilon": 2.0, "delta": 1e-6, "orders": None})
    assert child == RenyiFilter(2.0, 1e-6, parent.orders)
    assert child != RenyiFilter(2.0, 1e-6)
    assert parent.with_limit({"orders": [str(order) for order in parent.orders]}) == parent


@by_kind
def test_its_own_description_is_the_same_limit(budget: PrivacyFilter) -> None:
    assert budget.with_limit({}) == budget
    assert budget.with_limit(budget.to_json()) == budget
    described = json.loads(canonical_bytes(budget.to_json()))
    del described["v"]
    assert budget.with_limit(described).caps == budget.caps
    budget.with_limit({}).check_child_of(budget)


@pytest.mark.parametrize(
    ("limit", "pointer", "says"),
    [
        ({"kind": "zcdp", "rho": 1.0}, ("kind",), "kind must be renyi_dp"),
        ({"kind": None, "rho": 1.0}, ("rho",), "has no rho; it has kind, epsilon, delta, orders or conversion"),
        ({"orders": [2.0, 64.0]}, ("orders",), "orders must be 20, 64, or left out"),
        ({"orders": [20.0]}, ("orders",), "orders must be 20, 64"),
        ({"orders": [64.0, 20.0]}, ("orders",), "increasing"),
        ({"orders": "20"}, ("orders",), "list of numbers"),
        ({"orders": [20.0, "many"]}, ("orders", 1), "must be a number"),
        ({"epsilon": "much"}, ("epsilon",), "must be a number, got 'much'"),
        ({"epsilon": True}, ("epsilon",), "must be a number"),
        ({"epsilon": -1.0}, ("epsilon",), "epsilon must be in"),
        ({"epsilon": "nan"}, ("epsilon",), "epsilon must be in"),
        ({"delta": 0.0}, ("delta",), "delta must be in"),
        ({"epsilon": 0.11}, ("epsilon",), r"none of the orders can be used: with order 64 .* at least about 0\.1121"),
    ],
)
def test_what_cannot_be_the_limit_is_pointed_at(limit: dict[str, Any], pointer: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidValue, match=says) as refused:
        RenyiFilter(2.0, 1e-5, (20.0, 64.0)).with_limit(limit)
    assert refused.value.pointer == pointer


def test_the_smallest_epsilon_that_is_named_is_enough() -> None:
    assert RenyiFilter(2.0, 1e-5, (20.0, 64.0)).with_limit({"epsilon": 0.1122}).caps[1] >= 0


@by_kind
def test_a_child_shares_kind_and_price_terms_and_nothing_else(budget: PrivacyFilter) -> None:
    for parent in FILTERS:
        if parent.kind == budget.kind:
            budget.check_child_of(parent)
            continue
        with pytest.raises(InvalidValue, match=f"kind must be {parent.kind}") as refused:
            budget.check_child_of(parent)
        assert refused.value.pointer == ("kind",)
    RenyiFilter(3.0, 1e-9, (20.0, 64.0)).check_child_of(RenyiFilter(2.0, 1e-5, (20.0, 64.0)))
    ZcdpFilter(50.0).check_child_of(ZcdpFilter(0.1))
    for orders in ((20.0,), (20.0, 65.0), (20.0, 64.0, 65.0)):
        with pytest.raises(InvalidValue, match="orders must be 20, 64") as refused:
            RenyiFilter(2.0, 1e-5, orders).check_child_of(RenyiFilter(2.0, 1e-5, (20.0, 64.0)))
        assert refused.value.pointer == ("orders",)


@by_kind
def test_amounts_of_a_child_are_amounts_of_its_parent(budget: PrivacyFilter) -> None:
    """All amounts have the same length and unit, so a charge can be added at every level."""
    child = budget.with_limit({})
    assert len(child.zero) == len(budget.caps)
    assert child.price_terms == budget.price_terms
    assert (budget.price_terms is not None) == (budget.kind in ("approximate_gaussian_dp", "renyi_dp"))


@by_kind
def test_a_description_that_lacks_a_field_or_has_a_word_for_it_is_pointed_at(budget: PrivacyFilter) -> None:
    for name in budget.to_json():
        if name in ("kind", "orders", "conversion"):
            continue
        may_lack = name in ("reserve_share", "delta_per_mu_squared")
        for broken in ({name: "word"}, {name: False}, *([] if may_lack else [{name: None}])):
            with pytest.raises(InvalidValue, match=f"{name} must be a number") as refused:
                filter_from_json({**budget.to_json(), **broken})
            assert refused.value.pointer == (name,)
        lacking = {key: value for key, value in budget.to_json().items() if key != name}
        if may_lack:
            assert filter_from_json(lacking).epsilon == budget.epsilon
            continue
        with pytest.raises(InvalidValue, match=f"{name} must be a number"):
            filter_from_json(lacking)
