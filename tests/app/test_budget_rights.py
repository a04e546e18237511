"""A key of some budgets: what it does not reach does not exist for it, whichever route it asks.

The routes come from the OpenAPI document. Every one that takes an id of something that belongs to a budget is asked for
what the key reaches, for what it does not, and for what does not exist at all; the last two must be told apart by
nobody. A new route needs a line in `REQUESTS` if it takes ids outside its path, and fails without one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.auth.principal import Principal, Scope
from app.auth.rights import CurrentPrincipal, requires
from app.context import Context, CurrentContext
from app.main import create_app
from app.runs import service as runs
from app.settings import Settings
from tests.app.auth.rights_world import (
    EVENT,
    FILTER,
    WEBHOOK,
    Ids,
    NoAudits,
    Side,
    World,
    ask_for_limit,
    budget_request,
    send,
    upload,
    webhook,
)
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import REQUEST, ROWS
from tests.databases import on_one_engine
from tests.local_access import local_client

Request = dict[str, Any]

CALIBRATION = {key: value for key, value in REQUEST.items() if key not in ("model", "hyperparameters")} | {
    "dataset_size": 1000,
    "hyperparameters": {"step_size": 0.5},
}


def _run(ids: Ids) -> Request:
    names = ("budget_id", "dataset_id", "test_dataset_id")
    return {**REQUEST, **{name: ids[name] for name in names}}


#: Requests with ids outside their paths, made of the ids; a route may have several.
REQUESTS: Mapping[str, list[Callable[[Ids], Request]]] = {
    "create_budget": [lambda ids: {"json": budget_request(ids["parent_id"])}],
    "list_budgets": [lambda ids: {"params": {"parent_id": ids["parent_id"]}}],
    "change_limit": [lambda _: {"json": {"filter": FILTER, "reason": "r"}}],
    "create_limit_request": [lambda _: {"json": {"filter": FILTER, "reason": "r"}}],
    "create_webhook": [lambda _: {"json": WEBHOOK}],
    "state_deployment": [lambda _: {"json": {"curator": "us"}}],
    "approve_limit_request": [lambda _: {"json": {"reason": "r"}}],
    "refuse_limit_request": [lambda _: {"json": {"reason": "r"}}],
    "correct_charge": [
        lambda ids: {"json": {"reservation_id": ids["reservation_id"], "reason": "r"}},
        lambda _: {"json": {"events": [EVENT], "reason": "r"}},
    ],
    "create_reservation": [
        lambda _: {"json": {"events": [EVENT], "purpose": "p"}},
        lambda _: {"json": {"events": [EVENT], "purpose": "p"}, "params": {"dry_run": "true"}},
    ],
    "verify_ledger": [lambda ids: {"json": {"budget_id": ids["budget_id"]}}],
    "export_ledger": [lambda ids: {"params": {"budget_id": ids["budget_id"]}}],
    "upload_dataset": [lambda ids: upload(ROWS + "7,0.1,red,no\n", budget_id=ids["budget_id"])],
    "upload_version": [
        lambda _: {
            "files": {"file": ("d.csv", (ROWS + "8,0.1,red,no\n").encode(), "text/csv")},
            "data": {"metadata": json.dumps({"change": "appended", "reason": "r"})},
        }
    ],
    "create_run": [lambda ids: {"json": _run(ids)}],
    "create_run_sweep": [
        lambda ids: {"json": {**_run(ids), "hyperparameters": {"step_size": [0.5, 1.0]}, "select": "all"}},
        lambda ids: {
            "json": {**_run(ids), "hyperparameters": {"step_size": [0.5, 1.0]}, "select": "all"},
            "params": {"dry_run": "true"},
        },
    ],
    "create_audit": [
        lambda ids: {"json": {"run_id": ids["run_id"], "trials": 10}},
        lambda ids: {"json": {"calibration": {**CALIBRATION, "budget_id": ids["budget_id"]}, "trials": 10}},
    ],
    "create_key": [lambda ids: {"json": {"name": "k", "scopes": ["analyst"], "budgets": [ids["budgets"]]}}],
    "predict": [lambda ids: {"json": {"rows": [[1, 0, "red"]]}}],
    "list_audits": [lambda ids: {"params": {"run_id": ids["run_id"]}}],
    "calibrate": [
        lambda ids: {"json": {**CALIBRATION, "budget_id": ids["budget_id"]}},
        lambda ids: {"json": {**CALIBRATION, "target": {"kind": "budget", "budget_id": ids["budget_id"]}}},
    ],
    "sweep": [lambda ids: {"json": {**CALIBRATION, "budget_id": ids["budget_id"], "iterations": [10, 20]}}],
    "derive_assumptions": [lambda ids: {"json": {"model": REQUEST["model"], "dataset_id": ids["dataset_id"]}}],
}

#: What who reaches all of the request is answered, where it is not a success.
REACHED = {
    "get_deployment": (404, "not_found"),
    "get_run_model": (409, "model_not_released"),
    "predict": (409, "model_not_released"),
    "get_run_sweep_heat_map": (409, "no_score"),
    "cancel_run": (409, "run_has_ended"),
    "cancel_run_sweep": (409, "run_sweep_has_ended"),
    "create_audit": (422, "too_much_work"),
    **dict.fromkeys(("create_key", "get_key", "rotate_key", "revoke_key"), (403, "forbidden")),
}
#: What is for those who reach the root of the tree.
FOR_ROOTS = {"verify_ledger", "export_ledger", "upload_dataset", "upload_version", "delete_dataset"}

#: Ids that name nothing of a budget's, or are not chosen by who asks.
# What the register says of something is for keys that reach all budgets, whatever it is.
HARMLESS = {"principal_id", "last-event-id", "subject_id"}
_IS_AN_ID = re.compile(r".+_id|budgets")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_addresses": "https://hooks.example/"})


@pytest.fixture
def app(context: Context) -> FastAPI:
    return create_app(replace(context, audit_processes=NoAudits()))


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with local_client(app) as client:
        yield client


@on_one_engine
def test_what_a_key_does_not_reach_does_not_exist_for_it(context: Context, app: FastAPI, client: TestClient) -> None:
    assert list(faults(app.openapi(), World(context, client))) == []


@on_one_engine
def test_what_a_budget_above_forbids_is_said_without_naming_it(context: Context, client: TestClient) -> None:
    world = World(context, client)
    correction = {"events": [{**EVENT, "count": 10**7}], "reason": "fills the root"}
    assert send(world.admin, "POST", f"/v1/budgets/{world.sibling}/corrections", json=correction).status_code == 201
    path, body = f"/v1/budgets/{world.child}/reservations", {"events": [EVENT], "purpose": "p"}
    requests: list[tuple[str, Request]] = [
        (path, {"json": body}),
        (path, {"json": body, "params": {"dry_run": "true"}}),
        *(("/v1/runs" if name == "create_run" else "/v1/run-sweeps", make(world.part.ids))
          for name in ("create_run", "create_run_sweep") for make in REQUESTS[name]),
    ]  # fmt: skip
    for asked, request in requests:
        told = assert_problem(send(world.part.caller, "POST", asked, **request), 409, "budget_exceeded")
        assert told["budget_id"] is None, asked
        assert world.root not in str(told)
        assert assert_problem(send(world.admin, "POST", asked, **request), 409, "budget_exceeded")["budget_id"]


@on_one_engine
def test_a_route_that_forgets_the_rights_is_found(context: Context, app: FastAPI, client: TestClient) -> None:

    @app.get("/v1/forgetful/{run_id}", operation_id="forgetful", dependencies=[requires(Scope.ANALYST)])
    def by_path(_: CurrentPrincipal, run_id: str) -> str:
        return run_id

    @app.get("/v1/forgetful-too", operation_id="forgetful_too")
    def by_query(context: CurrentContext, _: Annotated[Principal, requires(Scope.ANALYST)], run_id: str) -> str:
        with context.database.read() as session:
            return str(runs.get(session, run_id).state)

    @app.get("/v1/forgetful-of-keys/{run_id}", operation_id="forgetful_of_keys")
    def without_principal(context: CurrentContext, run_id: str) -> str:
        with context.database.read() as session:
            return str(runs.get(session, run_id).state)

    found = "\n".join(faults(app.openapi(), World(context, client), only="forgetful"))
    assert "forgetful_too takes run_id and has no line in REQUESTS" in found
    assert "forgetful_of_keys tells" in found
    assert "forgetful tells" not in found, "what a path names is looked at before the route"


def faults(document: Mapping[str, Any], world: World, only: str = "") -> Iterator[str]:
    """What is wrong with the routes, one line each."""
    found = [
        (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if operation["operationId"].startswith(only)
    ]
    # What takes things away comes last.
    for path, method, operation in sorted(found, key=lambda each: (each[1] == "delete", each[0], each[1])):
        name = operation["operationId"]
        taken = set(_ids_of(document, operation)) - HARMLESS
        in_path = set(re.findall(r"{(\w+)}", path))
        if method == "get" and path.startswith("/v1") and not in_path:
            yield from _faults_of_list(world, name, path)
        if not taken:
            continue
        made = REQUESTS.get(name, [] if taken - in_path else [lambda _: {}])
        used = in_path.union(*(_names_used(request) for request in made))
        for missing in sorted(taken - used):
            yield f"{name} takes {missing} and has no line in REQUESTS"
        for request in made:
            for side in world.sides():
                yield from _faults_of(world, side, name, method, path, request, in_path | _names_used(request))


def _faults_of(
    world: World, side: Side, name: str, method: str, path: str, make: Callable[[Ids], Request], used: set[str]
) -> Iterator[str]:
    def ask(ids: Ids) -> Any:
        return send(side.caller, method.upper(), path.format(**ids), **make(ids))

    ids = side.with_fresh_reservation() if "reservation_id" in used else side.ids
    if "webhook_id" in used:
        ids = {**ids, "webhook_id": webhook(side.caller, ids["budget_id"])}
    if "limit_request_id" in used:
        asker = side.caller if name.startswith("withdraw") else world.admin
        ids = {**ids, "limit_request_id": ask_for_limit(asker, ids["budget_id"])}
    for changed in sorted(used):
        nothing = f"{ids[changed].partition('_')[0]}_{'a' * 24}"
        answer_to_nothing = _without(ask({**ids, changed: nothing}), nothing)
        for foreign in side.hidden.get(changed, []):
            answer = ask({**ids, changed: foreign})
            if _without(answer, foreign) != answer_to_nothing:
                yield f"{name} tells {changed} of others from nothing: {answer.status_code} {answer.text[:300]}"
            if answer.status_code < 400 and '"items":[]' not in answer.text:
                yield f"{name} answers {changed} of others: {answer.text[:300]}"
            yield from _leaks(name, side, answer, foreign)
    answer = ask(ids)
    is_beyond = side is world.part and name in FOR_ROOTS
    expected = (403, "beyond_your_budgets") if is_beyond else REACHED.get(name)
    if expected is None and answer.status_code >= 400:
        yield f"{name} refuses what the key reaches: {answer.status_code} {answer.text[:300]}"
    if expected is not None and (answer.status_code, answer.json().get("code")) != expected:
        yield f"{name} does not answer {expected}: {answer.status_code} {answer.text[:300]}"
    yield from _leaks(name, side, answer)


def _faults_of_list(world: World, name: str, path: str) -> Iterator[str]:
    for side in world.sides():
        answer = send(side.caller, "GET", path)
        yield from _leaks(name, side, answer)
        if answer.status_code == 200 and name.startswith("list_") and not answer.json()["items"]:
            yield f"{name} shows nothing to {side.key_id}"


def _leaks(name: str, side: Side, answer: Any, asked: str = "") -> Iterator[str]:
    for foreign in side.foreign() - {asked}:
        if foreign in answer.text:
            yield f"{name} shows {foreign}: {answer.text[:300]}"


def _without(answer: Any, identifier: str) -> tuple[int, str]:
    """Status and text, but for what differs between any two answers."""
    text = answer.text.replace(identifier, "ID")
    return answer.status_code, text.replace(answer.headers["x-request-id"], "")


def _names_used(make: Callable[[Ids], Request]) -> set[str]:
    class Recorder(dict[str, str]):
        def __missing__(self, name: str) -> str:
            used.add(name)
            return "x"

    used: set[str] = set()
    make(Recorder())
    return used


def _ids_of(document: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        if _IS_AN_ID.fullmatch(parameter["name"]):
            yield parameter["name"]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield from _ids_in(document, content.get("schema", {}), set())


def _ids_in(document: Mapping[str, Any], schema: Any, seen: set[str]) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _ids_in(document, each, seen)
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        target: Any = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
        yield from _ids_in(document, target, seen)
    for name in schema.get("properties", {}):
        if _IS_AN_ID.fullmatch(name):
            yield name
    for key, value in schema.items():
        if key not in ("example", "examples", "required"):
            yield from _ids_in(document, list(value.values()) if key == "properties" else value, seen)
