"""Every answer has the headers, every request its line; nothing of what was sent is in any log line."""

from __future__ import annotations

import asyncio
import io
import json
import traceback
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.auth import service as keys
from app.auth.principal import Scope
from app.context import Context
from app.observability.metrics import Metrics
from app.observability.requests import SECURITY_HEADERS, AnswerInterrupted, RequestBoundary
from tests.app.conftest import ConnectAs

SECRET = "datum48151623"


def answers(client: TestClient) -> dict[str, Any]:
    """One answer of each kind."""
    budget = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
    return {
        "made": client.post("/v1/budgets", json=budget, headers={"Idempotency-Key": "k"}),
        "replayed": client.post("/v1/budgets", json=budget, headers={"Idempotency-Key": "k"}),
        "read": client.get("/v1/budgets"),
        "file": client.get("/v1/ledger/export"),
        "known": [client.post("/v1/account", json=ACCOUNT) for _ in range(2)][1],
        "refused": client.post("/v1/account", json={}),
        "no json": client.post("/v1/account", content=b"{", headers={"Content-Type": "application/json"}),
        "no key": client.post("/v1/budgets", json=budget),
        "nowhere": client.get("/nothing"),
        "no method": client.put("/v1/account"),
        "no text": client.get("/v1/budgets/%00"),
        "live": client.get("/health/live"),
        "ready": client.get("/health/ready"),
        "metrics": client.get("/metrics"),
        "start": client.get("/"),
        "docs": client.get("/docs"),
        "asset": client.get("/docs/assets/docs.js"),
        "document": client.get("/openapi.json"),
    }


ACCOUNT = {"events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}}], "delta": 1e-5}


def test_every_answer_has_the_security_headers(client: TestClient) -> None:
    for kind, answer in answers(client).items():
        for name, expected in SECURITY_HEADERS:
            assert answer.headers.get_list(name.decode()) == [expected.decode()], (kind, name)
        policies = answer.headers.get_list("content-security-policy")
        assert len(policies) == 1, kind
        assert "frame-ancestors 'none'" in policies[0], kind
        assert answer.headers["x-request-id"], kind
        public = kind in {"docs", "asset", "document"}
        assert (answer.headers.get("cache-control") == "no-store") is not public, kind


def test_a_fault_of_ours_has_them_too(connect: ConnectAs, monkeypatch: Any, logged: io.StringIO) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("app.privacy.service.account", fail)
    answer = connect().post("/v1/account", json=ACCOUNT)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert {name.decode() for name, _ in SECURITY_HEADERS} <= set(answer.headers)
    assert "RuntimeError" in logged.getvalue()
    assert SECRET not in logged.getvalue() + answer.text


def test_an_answer_that_breaks_off_is_given_up_without_the_cause(logged: io.StringIO) -> None:
    async def breaks_off(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError(SECRET)

    async def send(_: Any) -> None: ...

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    with pytest.raises(AnswerInterrupted) as given_up:
        asyncio.run(RequestBoundary(breaks_off, Metrics())(scope, send, send))  # type: ignore[arg-type]
    assert SECRET not in logged.getvalue() + "".join(traceback.format_exception(given_up.value))


def test_each_request_has_one_line_with_id_template_status_and_principal(
    connect: ConnectAs, context: Context, logged: io.StringIO
) -> None:
    client = connect()
    client.get("/v1/budgets/bud_1", headers={"X-Request-Id": "first"})
    created = keys.create_key(context, "test", [Scope.OWNER])
    assert created is not None
    headers = {"Authorization": f"Bearer {created.token}", "X-Request-Id": "second"}
    client.post("/v1/account", json=ACCOUNT, headers=headers)
    client.post("/v1/account", json=ACCOUNT, headers={**headers, "X-Request-Id": "third"})
    client.get("/v1/budgets", headers={"X-Request-Id": "fourth"})
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    told = {line["request_id"]: line for line in lines if line.get("event") == "request"}
    expected = {
        "first": ("GET", "/v1/budgets/{budget_id}", 404, "loopback"),
        "second": ("POST", "/v1/account", 200, created.id),
        "third": ("POST", "/v1/account", 200, created.id),
        "fourth": ("GET", "-", 401, None),
    }
    for request_id, (method, route, status, principal) in expected.items():
        line = told[request_id]
        found = (line["method"], line["route"], line["status"], line["principal"])
        assert found == (method, route, status, principal)
        assert line["milliseconds"] >= 0


def test_nothing_that_was_sent_is_in_a_log_line(connect: ConnectAs, context: Context, logged: io.StringIO) -> None:
    client = connect()
    answers(client)
    created = keys.create_key(context, "test", [Scope.ADMIN])
    assert created is not None
    bearer = {"Authorization": f"Bearer {created.token}"}
    hostile = {
        "X-Forwarded-For": SECRET,
        "User-Agent": SECRET,
        "Cookie": SECRET,
        "Referer": f"http://{SECRET}",
        "X-Request-Id": f"{SECRET}\x01 spaced",
        "Idempotency-Key": SECRET,
    }
    body = json.dumps({SECRET: SECRET, "events": [{"mechanism": {"kind": SECRET}}], "delta": SECRET})
    paths = ("/v1/account", "/v1/calibrate", "/v1/budgets", "/v1/runs", "/v1/datasets", "/v1/sweep", "/v1/import")
    for path in paths:
        for headers in (bearer, {"Authorization": f"Bearer {SECRET}"}, {}):
            sent = {**hostile, **headers, "Content-Type": "application/json"}
            assert client.post(f"{path}?q={SECRET}", content=body, headers=sent).status_code >= 400
            client.post(path, content=body[:-1], headers=sent)
            client.get(f"{path}/{SECRET}?q={SECRET}", headers=sent)
            client.request(SECRET.upper(), f"{path}/{SECRET}", headers=sent)
    upload = {"metadata": (None, SECRET, "application/json"), "file": (SECRET, f"{SECRET},1\n", "text/csv")}
    client.post("/v1/datasets", files=upload, headers={**bearer, "Idempotency-Key": "u"})
    client.get(f"/{SECRET}", headers=bearer)
    text = logged.getvalue()
    assert text.count('"event": "request"') > 60
    assert SECRET not in text.lower()
    secret_part = created.token.rpartition("_")[2]
    assert secret_part not in text
    assert client.get("/metrics", headers=bearer).text.lower().count(SECRET) == 0
