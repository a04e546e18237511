"""A price is explained: the tight number of the plan alone, what it is charged alone, what it adds here, and why."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from tests.app.budgets.conftest import Api, gaussian, made
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

DELTA = 1e-5
LIMIT = {"epsilon": 2, "delta": DELTA}
FILTERS: list[dict[str, Any]] = [
    LIMIT,
    {"kind": "renyi_dp", **LIMIT},
    {"kind": "zcdp", "rho": 0.5},
    {"kind": "gaussian_dp", "mu": 1},
    {"kind": "approximate_dp", "epsilon": 2, "delta": DELTA},
]
by_filter = pytest.mark.parametrize("budget_filter", FILTERS, ids=lambda each: each.get("kind", "default"))
TERMS: dict[str, Any] = {"charge": {"delta": 1e-6}}


def terms(budget_filter: dict[str, Any]) -> dict[str, Any]:
    return TERMS if budget_filter.get("kind") == "approximate_dp" else {}


def steps(count: int) -> list[dict[str, Any]]:
    return [gaussian(4.69, count, sampling_probability=0.05)]


def tight(count: int) -> float:
    event = Event(Gaussian(4.69), Poisson(0.05), count)
    return epsilon_for_delta([event], NeighboringRelation.ADD_OR_REMOVE_ONE, DELTA).value.upper


def dry_run(api: Api, budget_id: str, events: list[Any], **others: Any) -> Any:
    body = {"events": events, "purpose": "mean", **others}
    return api.post(f"/v1/budgets/{budget_id}/reservations", body, dry_run="true")


def used(api: Api, budget_id: str) -> Decimal:
    """The epsilon of everything used, as the limit less what is left."""
    use = api.read(budget_id)["epsilon"]
    return Decimal(str(use["limit"])) - Decimal(str(use["left"]))


@on_one_engine
@pytest.mark.one_in(4)
@by_filter
def test_a_dry_run_says_what_the_plan_costs_alone_and_what_it_adds(api: Api, budget_filter: dict[str, Any]) -> None:
    budget = api.budget(budget_filter, report_delta=DELTA)
    others = terms(budget_filter)
    for place in range(2):
        dry = made(dry_run(api, budget["id"], steps(6), **others))
        price = dry["price"]
        assert price["tight"]["upper"] == pytest.approx(tight(6), rel=1e-6)
        assert price["tight"]["upper"] <= price["charged"] * (1 + 1e-9)
        assert price["why"]
        if place == 0:
            assert price["adds"] == pytest.approx(price["charged"], abs=2e-9)
        elif budget_filter.get("kind") != "approximate_dp":
            assert price["adds"] < price["charged"], "epsilons do not add up"
        if budget["epsilon"] is None:
            made(api.reserve(budget["id"], steps(6), **others))
            continue
        before = used(api, budget["id"])
        made(api.reserve(budget["id"], steps(6), **others))
        # What the page says is left goes down by what the price said.
        assert used(api, budget["id"]) - before == Decimal(str(price["adds"]))


@on_one_engine
@by_filter
def test_a_denial_says_it_too(api: Api, budget_filter: dict[str, Any]) -> None:
    budget, others = api.budget(budget_filter, report_delta=DELTA), terms(budget_filter)
    made(api.reserve(budget["id"], steps(6), **others))
    denied = assert_problem(api.reserve(budget["id"], steps(6_000), **others), 409, "budget_exceeded")
    price = denied["price"]
    assert price.keys() == {"delta", "tight", "charged", "why", "adds", "left"}
    assert price["tight"]["upper"] == pytest.approx(tight(6_000), rel=1e-6)
    if budget["epsilon"] is not None:
        assert price["adds"] > price["left"] == api.read(budget["id"])["epsilon"]["left"], "this is why it does not fit"
    dry = assert_problem(dry_run(api, budget["id"], steps(6_000), **others), 409, "budget_exceeded")
    assert price.items() <= dry["price"].items()
    assert {"kinds", "in_parts", "after_a_quarter"} <= dry["price"].keys()


@on_one_engine
def test_a_budget_without_a_delta_explains_nothing(api: Api) -> None:
    budget = api.budget({"kind": "zcdp", "rho": 0.01})
    assert made(dry_run(api, budget["id"], [gaussian(10.0)]))["price"] is None
    assert assert_problem(api.reserve(budget["id"], [gaussian(1.0)]), 409, "budget_exceeded")["price"] is None


@on_one_engine
def test_the_cost_in_a_budget_under_another_is_told_as_the_budget_tells_what_is_left(api: Api) -> None:
    root = api.budget(LIMIT)
    child, sibling = (api.budget({"epsilon": 5, "delta": DELTA}, parent_id=root["id"]) for _ in range(2))
    made(api.reserve(sibling["id"], steps(600)))
    request = {
        "algorithm": "dp_sgd",
        "dataset_size": 1000,
        "batch_size": 20,
        "iterations": 100,
        "sampling": "poisson",
        "neighboring_relation": "add_or_remove_one",
        "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
        "target": {"kind": "budget", "budget_id": child["id"]},
    }
    body = api.client.post("/v1/calibrate", json=request).json()
    cost, shown = body["cost_in_budget"], api.read(child["id"])
    assert cost["fits"] is True
    assert cost["remaining"] == shown["amounts"]["remaining"]
    assert cost["remaining"]["epsilon"] == shown["epsilon"]["left"] == api.read(root["id"])["epsilon"]["left"]
    held = made(api.reserve(child["id"], body["events"]))
    assert held["cost"] == cost["cost"]
    assert cost["price"]["left"] == cost["remaining"]["epsilon"]
    assert used(api, root["id"]) == Decimal("2") - Decimal(str(cost["price"]["left"])) + Decimal(
        str(cost["price"]["adds"])
    )
    less_noise = body["events"][0]["mechanism"]["noise_multiplier"] * (1 - 5e-3)
    less = [body["events"][0] | {"mechanism": {"kind": "gaussian", "noise_multiplier": less_noise}}]
    made(api.resolve(held, "void"))
    assert_problem(api.reserve(child["id"], less), 409, "budget_exceeded")
