"""Calibrations against a budget: what remains is filled, never passed, and priced as the ledger prices it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.budgets.conftest import Api, gaussian, zcdp
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

REQUEST: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "iterations": 100,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
}
POISSON = {"sampling": "poisson", "batch_size": 20}
RENYI = {"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5}


def calibrate(api: Api, budget: dict[str, Any], **changes: Any) -> Any:
    target = {"kind": "budget", "budget_id": budget["id"], **changes.pop("more", {})}
    body = {key: value for key, value in (REQUEST | {"target": target} | changes).items() if value is not ...}
    return api.client.post("/v1/calibrate", json=body)


def less_noise(events: list[Any], factor: float) -> list[Any]:
    mechanism = events[0]["mechanism"]
    return [events[0] | {"mechanism": mechanism | {"noise_multiplier": mechanism["noise_multiplier"] * factor}}]


@on_one_engine
@pytest.mark.parametrize(
    ("budget_filter", "sampling"), [({"kind": "zcdp", "rho": "0.5"}, {}), (RENYI, {}), (RENYI, POISSON)]
)
def test_the_plan_is_admitted_and_one_of_less_noise_is_not(api: Api, budget_filter: Any, sampling: Any) -> None:
    budget = api.budget(budget_filter)
    api.hold(budget["id"], [gaussian(20.0, 30)])
    body = calibrate(api, budget, **sampling).json()
    assert 1 - 2e-5 <= body["achieved"]["share_of_remaining"] <= 1
    assert body["cost_in_budget"]["budget_id"] == budget["id"]
    assert body["cost_in_budget"]["fits"] is True
    assert body["cost_in_budget"]["remaining"] == api.get(f"/v1/budgets/{budget['id']}").json()["amounts"]["remaining"]
    denied = api.reserve(budget["id"], less_noise(body["events"], 1 - 5e-5))
    assert_problem(denied, 409, "budget_exceeded")
    held = api.hold(budget["id"], body["events"])
    assert held["cost"] == body["cost_in_budget"]["cost"], "the ledger's price is the calibration's"


@on_one_engine
def test_iterations_and_batch_sizes_are_the_ledgers_own_limits(api: Api) -> None:
    budget = api.budget(RENYI)
    steps = calibrate(api, budget, **POISSON, iterations=..., noise_multiplier=2.0, solve_for="iterations").json()
    count = steps["solution"]["iterations"]
    one_more = [steps["events"][0] | {"count": count + 1}]
    denied = assert_problem(api.reserve(budget["id"], one_more), 409, "budget_exceeded")
    assert denied["largest_count_that_fits"] == count
    batch = calibrate(api, budget, sampling="poisson", noise_multiplier=2.0, solve_for="batch_size").json()
    assert batch["next"]["value"] == batch["solution"]["batch_size"] + 1
    assert batch["achieved"]["share_of_remaining"] <= 1 < batch["next"]["achieved"]["share_of_remaining"]
    assert api.reserve(budget["id"], batch["events"]).status_code == 201


@on_one_engine
def test_any_target_can_show_its_cost_in_a_budget(api: Api) -> None:
    budget = api.budget({"kind": "zcdp", "rho": "0.01"})
    target = {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5}
    answer = api.client.post("/v1/calibrate", json=REQUEST | {"target": target, "budget_id": budget["id"]})
    cost = answer.json()["cost_in_budget"]
    assert cost["fits"] is False
    assert cost["cost"]["rho"] > 0.01
    plain = api.client.post("/v1/calibrate", json=REQUEST | {"target": target}).json()
    assert plain["cost_in_budget"] is None
    assert plain["plan_hash"] == answer.json()["plan_hash"]


@on_one_engine
def test_what_a_budget_cannot_answer_is_refused(api: Api) -> None:
    budget = api.budget({"kind": "zcdp", "rho": "0.5"})
    other = calibrate(api, budget, neighboring_relation="replace_one")
    assert_problem(other, 422, "relation_mismatch", "/neighboring_relation")
    pure = api.budget({"kind": "pure_dp", "epsilon": "1"})
    assert_problem(calibrate(api, pure), 422, "no_cost_in_filter", "/target/budget_id")
    shown = REQUEST | {"target": {"kind": "zcdp", "rho": 1}, "budget_id": pure["id"]}
    assert_problem(api.client.post("/v1/calibrate", json=shown), 422, "no_cost_in_filter", "/budget_id")
    api.hold(budget["id"], [zcdp(0.5)])
    full = assert_problem(calibrate(api, budget), 422, "unreachable_target", "/target")
    assert "no budget is left" in full["detail"]
    sampled = calibrate(api, budget, sampling="poisson", noise_multiplier=2.0, solve_for="batch_size")
    assert_problem(sampled, 422, "unreachable_target", "/target")


@on_one_engine
def test_nothing_is_reserved(api: Api) -> None:
    budget = api.budget(RENYI)
    before = api.get(f"/v1/budgets/{budget['id']}").json()
    assert calibrate(api, budget).status_code == 200
    assert api.get(f"/v1/budgets/{budget['id']}").json() == before


@on_one_engine
@pytest.mark.parametrize("tight", [0, 1, 2])
@pytest.mark.one_in(3)
def test_a_plan_for_a_budget_fits_those_above_it_too(api: Api, tight: int) -> None:
    """Whichever of root, child and grandchild has the least room."""
    limits = ["0.9", "0.9", "0.9"]
    limits[tight] = "0.1"
    path: list[dict[str, Any]] = []
    for rho in limits:
        parent = {"parent_id": path[-1]["id"]} if path else {}
        path.append(api.budget({"kind": "zcdp", "rho": rho}, **parent))
    body = calibrate(api, path[-1]).json()
    assert body["cost_in_budget"]["remaining"] == {"rho": 0.1}
    assert api.reserve(path[-1]["id"], less_noise(body["events"], 0.99)).status_code == 409
    assert api.reserve(path[-1]["id"], body["events"]).status_code == 201
