"""Every route with a key of each scope alone: what the table does not allow is refused before anything is looked at.

The routes come from the OpenAPI document, so that a new one without a line here fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from tests.app.conftest import ConnectAs
from tests.app.datasets.uploads import create_budget
from tests.app.problem_assertions import assert_problem
from tests.app.test_budget_rights import CALIBRATION
from tests.databases import on_one_engine

JSON = {"Content-Type": "application/json"}
EVERYBODY = frozenset(Scope)
READERS = frozenset({Scope.OWNER, Scope.ANALYST, Scope.AUDITOR})
SPENDERS = frozenset({Scope.OWNER, Scope.ANALYST})
OWNERS = frozenset({Scope.OWNER})
BOOKKEEPERS = frozenset({Scope.OWNER, Scope.AUDITOR})

#: Whom an operation answers; the scope admin implies every other.
ALLOWED: dict[str, frozenset[Scope]] = {
    # Computed from the request alone; a budget that the request names is for those who read budgets.
    **dict.fromkeys(
        ["account", "convert", "tuning_cost", "import_history", "calibrate", "calibrate_events", "sweep", "advise"],
        EVERYBODY,
    ),
    **dict.fromkeys(["list_algorithms", "compare_algorithms", "get_algorithm"], EVERYBODY),
    **dict.fromkeys(["list_datasets", "get_dataset", "list_versions"], READERS),
    "list_shared_contents": frozenset({Scope.AUDITOR}),
    "derive_assumptions": SPENDERS,
    "upload_dataset": OWNERS,
    "upload_version": OWNERS,
    "delete_dataset": OWNERS,
    # The ledger.
    "create_budget": OWNERS,
    "change_limit": frozenset({Scope.LIMITS}),
    "state_deployment": OWNERS,
    "get_deployment": READERS,
    "correct_charge": frozenset({Scope.OWNER, Scope.CORRECTIONS}),
    **dict.fromkeys(["list_budgets", "get_budget", "get_spending", "list_entries"], READERS),
    **dict.fromkeys(["list_reservations", "get_reservation", "get_certificate"], READERS),
    **dict.fromkeys(["list_limit_requests", "list_limit_requests_of_budget", "get_limit_request"], READERS),
    **dict.fromkeys(["create_limit_request", "withdraw_limit_request"], SPENDERS),
    **dict.fromkeys(["approve_limit_request", "refuse_limit_request"], OWNERS),
    **dict.fromkeys(["create_webhook", "list_webhooks", "get_webhook", "list_deliveries", "delete_webhook"], OWNERS),
    **dict.fromkeys(["disable_webhook", "enable_webhook", "rotate_webhook_secret"], OWNERS),
    "create_reservation": SPENDERS,
    **dict.fromkeys(["start_reservation", "extend_reservation", "commit_reservation", "void_reservation"], SPENDERS),
    "verify_ledger": BOOKKEEPERS,
    "list_register": BOOKKEEPERS,
    "export_ledger": BOOKKEEPERS,
    **dict.fromkeys(["get_checkpoint", "get_inclusion_proof", "get_consistency_proof"], READERS),
    # Keys, and the machine.
    **dict.fromkeys(["create_key", "list_keys", "get_key", "rotate_key", "revoke_key"], frozenset()),
    "get_own_key": EVERYBODY,
    "metrics": frozenset({Scope.METRICS, Scope.AUDITOR}),
    # Runs.
    **dict.fromkeys(["create_run", "cancel_run", "create_run_sweep", "cancel_run_sweep"], SPENDERS),
    **dict.fromkeys(["list_runs", "get_run", "get_run_report", "get_run_model", "predict", "follow_run"], READERS),
    **dict.fromkeys(["list_run_sweeps", "get_run_sweep", "get_run_sweep_heat_map"], READERS),
    **dict.fromkeys(["create_audit", "list_audits", "get_audit"], READERS),
}

#: Answered to whoever asks, without a key.
OPEN = frozenset({"health_live", "health_ready"})


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Operation, method and an address that names nothing."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield operation["operationId"], method.upper(), re.sub(r"{\w+}", "nope_1", path)


@pytest.fixture
def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def ask(client: TestClient, method: str, path: str, key: str) -> Any:
    # A body that no schema takes: who may not ask is told so before it is looked at.
    body = {"nothing": "of this kind"} if method == "POST" else None
    return client.request(method, path, json=body, headers={"Idempotency-Key": key})


@on_one_engine
def test_every_operation_is_in_the_table(document: dict[str, Any]) -> None:
    assert {name for name, _, _ in operations(document)} == set(ALLOWED) | OPEN


@on_one_engine
def test_a_key_of_one_scope_is_let_through_where_the_table_says_so(
    document: dict[str, Any], connect: ConnectAs, context: Context
) -> None:
    for scope in Scope:
        key = create_key(context, "attacker", [scope])
        assert key is not None
        client = connect(peer=("203.0.113.7", 4242), headers={"Authorization": f"Bearer {key.token}"})
        for number, (name, method, path) in enumerate(operations(document)):
            answer = ask(client, method, path, f"{scope}-{number}")
            if name in OPEN or scope is Scope.ADMIN or scope in ALLOWED[name]:
                # 415: it takes files alone.
                assert answer.status_code in (200, 404, 415, 422), (scope, name, answer.text)
            else:
                assert_problem(answer, 403, "forbidden")


@on_one_engine
def test_what_remains_of_a_budget_is_calibrated_for_its_readers_alone(connect: ConnectAs, context: Context) -> None:
    budget_id = create_budget(context)
    target = {"kind": "budget", "budget_id": budget_id}
    for scope in Scope:
        key = create_key(context, "somebody", [scope])
        assert key is not None
        client = connect(headers={"Authorization": f"Bearer {key.token}"})
        for path, body in (
            ("calibrate", {**CALIBRATION, "budget_id": budget_id}),
            ("calibrate", {**CALIBRATION, "target": target}),
            ("sweep", {**CALIBRATION, "budget_id": budget_id, "iterations": [10, 20]}),
        ):
            answer = client.post(f"/v1/{path}", json=body)
            if scope in READERS or scope is Scope.ADMIN:
                assert answer.status_code == 200, answer.text
            else:
                assert_problem(answer, 403, "forbidden")
                nothing = json.dumps(body).replace(budget_id, f"bud_{'a' * 24}")
                assert client.post(f"/v1/{path}", content=nothing, headers=JSON).status_code == 403


@on_one_engine
def test_no_operation_takes_a_parameter_that_it_does_not_know(document: dict[str, Any], client: TestClient) -> None:
    for name, method, path in operations(document):
        answer = ask(client, method, f"{path}?nothing_of_this_kind=1", "k")
        if name in OPEN:
            assert answer.status_code == 200, "probes may come with what they like"
        else:
            pointers = [item["pointer"] for item in assert_problem(answer, 422, "invalid_request")["errors"]]
            assert "/query/nothing_of_this_kind" in pointers, name


@on_one_engine
def test_without_a_key_that_is_valid_nothing_is_answered(
    document: dict[str, Any], connect: ConnectAs, context: Context
) -> None:
    key = create_key(context, "somebody", [Scope.ADMIN])
    assert key is not None
    forged = f"Bearer epsilond_{key.id.removeprefix('key_')}_{'a' * 52}"
    for place, sent in enumerate((None, "Bearer no", forged, f"Basic {key.token}")):
        # Each from an address of its own: of one there may be so many in a minute.
        client = connect(peer=(f"203.0.113.{place}", 4242), headers=None if sent is None else {"Authorization": sent})
        for name, method, path in operations(document):
            answer = ask(client, method, path, "k")
            if name in OPEN:
                assert answer.status_code == 200
            else:
                assert_problem(answer, 401, "invalid_key" if sent and sent.startswith("Bearer") else "unauthenticated")
