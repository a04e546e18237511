"""The header Idempotency-Key: which keys there are, what they are bound to, and what a repetition gets."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from sqlalchemy import func, select
from starlette.testclient import TestClient

from app.budgets.schemas import BudgetRequest
from app.context import Context
from app.idempotency.requests import request_fingerprint
from app.tables.idempotency import IdempotencyRecord
from tests.app.problem_assertions import assert_problem

BUDGET = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
EVENTS = [{"mechanism": {"kind": "zcdp", "rho": 0.4}}]


def _post(client: TestClient, path: str, body: Any, key: str | None) -> Any:
    return client.post(path, json=body, headers={} if key is None else {"Idempotency-Key": key})


def _records(context: Context) -> int:
    with context.database.read() as session:
        return session.scalar(select(func.count()).select_from(IdempotencyRecord)) or 0


def test_a_repeated_request_gets_the_first_answer_and_has_one_effect(client: TestClient) -> None:
    first = _post(client, "/v1/budgets", BUDGET, "k")
    again = [_post(client, "/v1/budgets", BUDGET, "k") for _ in range(3)]
    assert first.status_code == 201
    assert "idempotency-replayed" not in first.headers
    for answer in again:
        assert (answer.status_code, answer.json()) == (201, first.json())
        assert answer.headers["idempotency-replayed"] == "true"
        assert answer.headers["location"] == first.headers["location"]
    assert len(client.get("/v1/budgets").json()["items"]) == 1


def test_defaults_spelled_out_make_the_same_request(client: TestClient) -> None:
    first = _post(client, "/v1/budgets", BUDGET, "k")
    again = _post(client, "/v1/budgets", {**BUDGET, "privacy_unit": None, "labels": {}, "report_delta": None}, "k")
    assert again.json() == first.json()


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb", "é"])
def test_a_key_is_1_to_200_printable_characters(client: TestClient, key: str) -> None:
    answer = client.post("/v1/budgets", json=BUDGET, headers={b"Idempotency-Key": key.encode("latin-1")})
    assert_problem(answer, 400, "idempotency_key_invalid", "/header/Idempotency-Key")


def test_a_request_that_writes_needs_a_key(client: TestClient) -> None:
    assert_problem(
        _post(client, "/v1/budgets", BUDGET, None), 400, "idempotency_key_missing", "/header/Idempotency-Key"
    )
    for command in ("start", "extend", "commit", "void"):
        answer = _post(client, f"/v1/reservations/res_1/{command}", None, None)
        assert_problem(answer, 400, "idempotency_key_missing", "/header/Idempotency-Key")


def test_a_key_used_for_another_request_is_refused(client: TestClient) -> None:
    budget = _post(client, "/v1/budgets", BUDGET, "k").json()["id"]
    path = f"/v1/budgets/{budget}/reservations"
    for answer in (
        _post(client, "/v1/budgets", {**BUDGET, "name": "c"}, "k"),
        _post(client, path, {"events": EVENTS, "purpose": "p"}, "k"),
    ):
        assert_problem(answer, 422, "idempotency_key_reused", "/header/Idempotency-Key")
    held = [_post(client, path, {"events": EVENTS, "purpose": "p"}, f"h{number}").json()["id"] for number in range(2)]
    assert _post(client, f"/v1/reservations/{held[0]}/start", None, "s").status_code == 200
    assert_problem(_post(client, f"/v1/reservations/{held[1]}/start", None, "s"), 422, "idempotency_key_reused")
    assert_problem(_post(client, f"/v1/reservations/{held[0]}/commit", None, "s"), 422, "idempotency_key_reused")


def test_a_malformed_or_unknown_request_does_not_use_up_its_key(client: TestClient, context: Context) -> None:
    assert_problem(_post(client, "/v1/budgets", {**BUDGET, "name": ""}, "k"), 422, "invalid_request", "/name")
    assert_problem(_post(client, "/v1/budgets", {**BUDGET, "parent_id": "bud_x"}, "k"), 422, "unknown_budget")
    assert_problem(
        _post(client, "/v1/budgets/bud_x/reservations", {"events": EVENTS, "purpose": "p"}, "k"), 404, "not_found"
    )
    assert _records(context) == 0
    assert _post(client, "/v1/budgets", BUDGET, "k").status_code == 201


def test_request_bodies_are_kept_as_keyed_hashes(client: TestClient, context: Context) -> None:
    _post(client, "/v1/budgets", BUDGET, "k")
    with context.database.read() as session:
        record = session.scalars(select(IdempotencyRecord)).one()
    fingerprint = request_fingerprint("create_budget", BudgetRequest.model_validate(BUDGET))
    assert record.fingerprint == context.keyed_hash("idempotency", fingerprint)
    assert record.fingerprint != hashlib.sha256(fingerprint).hexdigest()
