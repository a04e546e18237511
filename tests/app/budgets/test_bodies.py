"""Answers are built as plain dictionaries: each must be what the contract says of it, no more and no less."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from types import ModuleType
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.routing import Match

from app.budgets import endpoints as budgets
from app.context import Context
from app.main import RESOURCES
from app.reservations import endpoints as reservations
from app.reservations import service
from tests.app.budgets.conftest import Api, Clock, gaussian, made, zcdp
from tests.databases import on_one_engine

LAPLACE = {"mechanism": {"kind": "laplace", "noise_multiplier": 20}}
FILTERS: dict[str, tuple[dict[str, Any], Any]] = {
    "pure_dp": ({"kind": "pure_dp", "epsilon": 1}, LAPLACE),
    "approximate_dp": ({"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5}, gaussian(20.0)),
    "zcdp": ({"kind": "zcdp", "rho": 1}, gaussian(20.0, 1, 0.5)),
    "gaussian_dp": ({"kind": "gaussian_dp", "mu": 1}, gaussian(20.0, 1, 0.5)),
    "renyi_dp": ({"epsilon": 2, "delta": 1e-5}, gaussian(20.0, 1, 0.5)),
}
OPERATIONS = {
    "create_budget",
    "list_budgets",
    "get_budget",
    "change_limit",
    "correct_charge",
    "create_reservation",
    "list_reservations",
    "get_reservation",
    "start_reservation",
    "extend_reservation",
    "commit_reservation",
    "void_reservation",
    "list_entries",
}


def routes(*resources: ModuleType) -> Iterator[APIRoute]:
    """The calls of some resources; of all of them if none is named."""
    for resource in resources or RESOURCES:
        for route in resource.router.routes:
            assert isinstance(route, APIRoute)
            yield route


class Contract:
    """Compares each successful answer with the response model of its call."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def check(self, response: Any) -> None:
        request = response.request
        if response.status_code >= 400:
            return
        scope = {"type": "http", "path": request.url.path, "method": request.method, "root_path": ""}
        (route,) = (route for route in routes() if route.matches(scope)[0] is Match.FULL)
        response.read()
        adapter = TypeAdapter(route.response_model)
        model = adapter.validate_json(response.content)
        assert adapter.dump_python(model, mode="json") == response.json(), route.operation_id
        assert route.operation_id is not None
        self.seen.add(route.operation_id)


@on_one_engine
@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.one_in(4)
def test_every_answer_is_what_the_contract_says(api: Api, clock: Clock, context: Context, kind: str) -> None:
    contract = Contract()
    api.client.event_hooks["response"] = [contract.check]
    budget_filter, event = FILTERS[kind]
    root = api.budget(budget_filter, labels={"a": "b"}, report_delta=1e-6)
    child = api.child(root, budget_filter)
    budget_id = child["id"]
    terms: dict[str, Any] = {"charge": {"delta": 1e-7}} if kind == "approximate_dp" else {}
    path, body = f"/v1/budgets/{budget_id}/reservations", {"events": [event, event], "purpose": "p", **terms}
    dry, wet = made(api.post(path, body, dry_run="true")), made(api.post(path, body))
    assert dry.keys() == wet.keys()
    held = [api.hold(budget_id, [{**event, "count": 2}], expires_in=60, **terms) for _ in range(5)]
    for index, commands in enumerate((["extend", "start", "commit"], ["start"], ["void"])):
        for command in commands:
            made(api.resolve(held[index], command))
    made(api.resolve(held[3], "commit", {"events": [event]}))
    clock.advance(60)
    assert service.release_due_holds(context) == 1
    made(api.correct(budget_id, reservation_id=held[0]["id"]))
    made(api.correct(budget_id, reservation_id=held[0]["id"], events=[{**event, "count": 3}], **terms))
    made(api.correct(budget_id, reservation_id=held[3]["id"], events=[]))
    made(api.correct(budget_id, events=[event], **terms))
    made(api.change_limit(budget_id, child["filter"]))
    for each in (wet, *held):
        assert api.get(f"/v1/reservations/{each['id']}").status_code == 200
    for listed in ("", f"/{root['id']}", f"/{budget_id}", f"/{budget_id}/reservations", f"/{budget_id}/entries"):
        assert api.get(f"/v1/budgets{listed}").status_code == 200
    assert contract.seen == OPERATIONS


def test_every_call_whose_answer_is_built_by_hand_was_compared() -> None:
    by_hand = {
        route.operation_id
        for route in routes(budgets, reservations)
        if signature(route.endpoint).return_annotation == "JSONResponse"
    }
    assert len(by_hand) >= 10
    assert by_hand <= OPERATIONS


@on_one_engine
def test_a_wrong_answer_would_be_noticed(api: Api) -> None:
    held = api.hold(api.budget()["id"], [zcdp(0.1)])
    (route,) = (each for each in routes() if each.operation_id == "get_reservation")
    adapter = TypeAdapter(route.response_model)
    assert adapter.validate_python(held, strict=False)
    for wrong in ({**held, "surplus": 1}, {**held, "state": "open"}, {k: held[k] for k in held if k != "overdue"}):
        with pytest.raises(ValueError, match="validation error"):
            adapter.validate_python(wrong, strict=False)
