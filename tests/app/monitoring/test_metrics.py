"""`GET /metrics`: what an operator asks, nothing that is withheld, no label that a caller chose."""

from __future__ import annotations

import re
import secrets
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert, select, update
from starlette.testclient import TestClient

from accounting.filters import ApproximateDpFilter
from app.auth import service as keys
from app.auth.principal import Scope
from app.context import Context
from app.ledger.amounts import share_used
from app.ledger.checkpoints import Checkpoint, read_note, sign
from app.monitoring import collectors
from app.observability.metrics import VerificationResult
from app.tables.ledger import Budget, Reservation
from app.tables.runs import Audit, Run
from app.tables.states import RunState
from tests.app.conftest import ConnectAs
from tests.app.ledger import attacks
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import REQUEST
from tests.databases import on_one_engine

PAGE = Path(__file__).parents[3] / "docs" / "operating" / "monitoring.md"
RESULTS = tuple(VerificationResult)
ACCOUNT = {"events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}}], "delta": 1e-5}


@pytest.fixture(autouse=True)
def _asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "BELIEVED_S", -1.0)


def scraped(client: TestClient, **headers: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(client: TestClient, name: str, **labels: str) -> float:
    return scraped(client)[name, frozenset(labels.items())]


def post(client: TestClient, path: str, body: Any, key: str | None = None) -> Any:
    return client.post(path, json=body, headers={"Idempotency-Key": key or secrets.token_hex(8)})


def budget(client: TestClient, rho: float = 1.0) -> str:
    body = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": rho}}
    identifier: str = post(client, "/v1/budgets", body).json()["id"]
    return identifier


def reserve(client: TestClient, budget_id: str, rho: float) -> str:
    body = {"events": [{"mechanism": {"kind": "zcdp", "rho": rho}}], "purpose": "p", "expires_in": 60}
    answer = post(client, f"/v1/budgets/{budget_id}/reservations", body)
    assert answer.status_code == 201, answer.text
    identifier: str = answer.json()["id"]
    return identifier


@on_one_engine
def test_requests_are_counted_by_template_method_and_class(client: TestClient) -> None:
    for path in ("/v1/budgets/bud_48151623", "/v1/budgets/bud_2", "/nothing/48151623"):
        client.get(path)
    client.request("BREW", "/v1/account")
    client.post("/v1/account", json=ACCOUNT)
    client.post("/v1/account", json=ACCOUNT)
    found = scraped(client)
    name = "epsilond_http_request_duration_seconds_count"
    counts = {tuple(sorted(labels)): number for (each, labels), number in found.items() if each == name}

    def count(method: str, route: str, status: str) -> float:
        return counts[("method", method), ("route", route), ("status", status)]

    assert count("GET", "/v1/budgets/{budget_id}", "4xx") == 2
    assert count("GET", "-", "4xx") == 1
    assert count("other", "/v1/account", "4xx") == 1
    assert count("POST", "/v1/account", "2xx") == 2
    assert found["epsilond_http_requests_in_progress", frozenset()] == 1, "the scrape itself"
    assert "48151623" not in client.get("/metrics").text


@on_one_engine
def test_evaluators_and_the_cache_are_told(client: TestClient) -> None:
    for _ in range(3):
        client.post("/v1/account", json=ACCOUNT)
    found = scraped(client)
    assert found["epsilond_evaluation_duration_seconds_count", frozenset({("evaluator", "analytic_gaussian")})] == 1
    assert (found["epsilond_cache_hits_total", frozenset()], found["epsilond_cache_misses_total", frozenset()]) == (
        2,
        1,
    )
    assert found["epsilond_cache_entries", frozenset()] == 1
    assert found["epsilond_cache_bytes", frozenset()] > 500


@on_one_engine
def test_gates_and_pools_are_told(client: TestClient, context: Context) -> None:
    with context.numerics, context.verifications:
        assert value(client, "epsilond_numerics_running", gate="numerics") == 1
        assert value(client, "epsilond_numerics_running", gate="verifications") == 1
    assert value(client, "epsilond_numerics_waiting", gate="processes") == 0
    context.processes.failures["memory"] += 1
    assert value(client, "epsilond_process_jobs_failed_total", pool="processes", limit="memory") == 1
    context.numerics.refused = 7
    assert value(client, "epsilond_numerics_refused_total", gate="numerics") == 7


@on_one_engine
def test_replays_and_verifications_are_counted(client: TestClient) -> None:
    body = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
    for _ in range(3):
        post(client, "/v1/budgets", body, "same")
    assert value(client, "epsilond_idempotency_replays_total") == 2
    last = "epsilond_ledger_last_valid_verification_timestamp_seconds"
    assert (last, frozenset()) not in scraped(client), "a time of 0 would be one in 1970"
    assert client.post("/v1/ledger/verify", json={"budget_id": budget(client)}).json()["valid"]
    assert value(client, "epsilond_ledger_verifications_total", result="valid") == 0, "of the whole ledger alone"
    assert client.post("/v1/ledger/verify").json()["valid"]
    assert value(client, "epsilond_ledger_verifications_total", result="valid") == 1
    assert value(client, "epsilond_ledger_verifications_total", result="invalid") == 0
    assert value(client, last) == pytest.approx(time.time(), abs=600)


@on_one_engine
def test_a_checkpoint_that_anybody_may_have_made_up_is_no_fault_of_the_ledger(
    client: TestClient, context: Context
) -> None:
    budget(client)
    note = client.get("/v1/ledger/checkpoint").json()["note"]
    ours = read_note(note)[0]
    stranger = Ed25519PrivateKey.generate()
    for made_up in (
        sign(Checkpoint(ours.origin, ours.size, bytes(32)), stranger),
        sign(Checkpoint(ours.origin, ours.size + 1, ours.root), stranger),
        sign(Checkpoint("epsilond/led_other", ours.size, ours.root), stranger),
    ):
        verdict = client.post("/v1/ledger/verify", json={"checkpoint": made_up}).json()
        assert verdict["valid"] is False
    counted = {result: value(client, "epsilond_ledger_verifications_total", result=result) for result in RESULTS}
    assert counted == {"valid": 0, "invalid": 0, "other_checkpoint": 3}
    forged = sign(Checkpoint(ours.origin, ours.size, bytes(32)), context.settings.checkpoint_key)
    assert client.post("/v1/ledger/verify", json={"checkpoint": forged}).json()["valid"] is False
    assert value(client, "epsilond_ledger_verifications_total", result="invalid") == 1, "its own key has signed that"
    attacks.run(context.database, "UPDATE budgets SET spent = '[1]'")
    for body in (None, {"checkpoint": sign(ours, stranger)}):
        assert client.post("/v1/ledger/verify", json=body).json()["valid"] is False
    assert value(client, "epsilond_ledger_verifications_total", result="invalid") == 3
    assert value(client, "epsilond_ledger_verifications_total", result="valid") == 0


@on_one_engine
def test_budgets_near_exhaustion_and_overdue_reservations(
    client: TestClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, near, full = (budget(client) for _ in range(3))
    reserve(client, near, 0.85)
    started = reserve(client, full, 1.0)
    assert post(client, f"/v1/reservations/{started}/start", None).status_code == 200
    found = scraped(client)
    assert found["epsilond_budgets", frozenset()] == 3
    assert found["epsilond_budgets_near_exhaustion", frozenset({("share", "0.8")})] == 2
    assert found["epsilond_budgets_near_exhaustion", frozenset({("share", "0.95")})] == 1
    assert found["epsilond_budget_used_ratio", frozenset({("budget", near)})] == pytest.approx(0.85)
    assert ("epsilond_budget_used_ratio", frozenset({("budget", empty)})) not in found
    assert found["epsilond_reservations_overdue", frozenset()] == 0
    with context.database.write() as session:
        session.execute(update(Reservation).values(expires_at=context.clock() - timedelta(seconds=1)))
        session.execute(update(Budget).where(Budget.id == full).values(overdrawn=True))
    found = scraped(client)
    assert found["epsilond_reservations_overdue", frozenset()] == 1, "what was not started is no debt"
    assert found["epsilond_budgets_overdrawn", frozenset()] == 1
    monkeypatch.setattr(collectors.repository, "MOST_ROWS", 0)
    assert value(client, "epsilond_reservations_overdue") == 0, "no query reads more rows than so many"


def test_a_share_is_of_the_cap_that_refuses_first() -> None:
    assert share_used(ApproximateDpFilter(1.0, 1e-5), (100_000_000, 9 * 10**12)) == 0.9


@on_one_engine
def test_no_more_budgets_than_a_few_are_named_and_looked_at(client: TestClient, monkeypatch: Any) -> None:
    for _ in range(3):
        reserve(client, budget(client), 0.9)
    monkeypatch.setattr(collectors, "MOST_NAMED", 2)
    assert "epsilond_budget_used_ratio{" not in client.get("/metrics").text
    monkeypatch.setattr(collectors.repository, "MOST_BUDGETS", 2)
    assert (value(client, "epsilond_budgets"), value(client, "epsilond_budgets_truncated")) == (2, 1)


@on_one_engine
def test_runs_that_nobody_sees_are_not_counted(client: TestClient, context: Context) -> None:
    columns = [
        {"name": "a", "type": "number", "lower": 0, "upper": 2},
        {"name": "y", "type": "category", "categories": ["no", "yes"]},
    ]
    data = {"public": True, "columns": columns, "label": "y", "rows": [[1, "no"], [2, "yes"]]}
    made = post(client, "/v1/runs", REQUEST | {"dataset": data})
    assert made.status_code == 202, made.text
    earlier = context.clock() - timedelta(hours=1)
    with context.database.write() as session:
        session.execute(update(Run).values(created_at=earlier))
    before = without_process(scraped(client))
    assert before["epsilond_runs", frozenset({("state", "queued")})] == 1
    assert before["epsilond_oldest_queued_run_age_seconds", frozenset()] == pytest.approx(3600, abs=600)
    with context.database.write() as session:
        row = dict(session.execute(select(Run.__table__)).mappings().one())
        for number, state in enumerate(RunState):
            trial = {"id": f"run_trial{number}", "state": state, "is_withheld": True}
            moment = {"created_at": earlier - timedelta(days=1)}
            session.execute(insert(Run).values({**row, **trial, **moment}))
    after = without_process(scraped(client))
    age = ("epsilond_oldest_queued_run_age_seconds", frozenset[tuple[str, str]]())
    assert after.pop(age) - before.pop(age) < 600
    assert after == before


def without_process(
    found: dict[tuple[str, frozenset[tuple[str, str]]], float],
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Without what changes by itself: of the process, and of the scrapes."""
    own = ("process_", "epsilond_http")
    return {key: number for key, number in found.items() if not key[0].startswith(own)}


@on_one_engine
def test_a_claim_that_an_audit_contradicts_is_an_alarm(client: TestClient, context: Context) -> None:
    def audit(name: str, verdict: str) -> dict[str, Any]:
        words = {"id": name, "principal_id": "p", "algorithm": "dp_sgd", "plan": b"", "plan_hash": "", "request": {}}
        return {**words, "claim": {}, "finding": {"verdict": verdict}, "created_at": context.clock()}

    with context.database.write() as session:
        session.execute(insert(Audit), [audit("aud_1", "consistent"), audit("aud_2", "violated")])
    assert value(client, "epsilond_audits_contradicting_claim") == 1


@on_one_engine
def test_a_database_that_is_away_is_told_and_the_rest_with_it(client: TestClient, context: Context) -> None:
    assert value(client, "epsilond_database_up") == 1
    with context.database.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE runs RENAME TO gone")
    found = scraped(client)
    assert found["epsilond_database_up", frozenset()] == 0
    assert ("epsilond_budgets", frozenset()) not in found
    assert found["process_resident_memory_bytes", frozenset()] > 0
    assert found["process_open_fds", frozenset()] > 0


@on_one_engine
def test_the_database_is_asked_once_in_a_while(client: TestClient, monkeypatch: Any) -> None:
    monkeypatch.setattr(collectors, "BELIEVED_S", 1e6)
    assert value(client, "epsilond_budgets") == 0
    budget(client)
    assert value(client, "epsilond_budgets") == 0


@on_one_engine
def test_who_may_scrape(connect: ConnectAs, context: Context) -> None:
    client = connect()
    budget_id = budget(client)
    expected = {Scope.METRICS: 200, Scope.AUDITOR: 200, Scope.ADMIN: 200, Scope.ANALYST: 403, Scope.OWNER: 403}
    for scope, status in expected.items():
        created = keys.create_key(context, "test", [scope])
        assert created is not None
        assert client.get("/metrics", headers={"Authorization": f"Bearer {created.token}"}).status_code == status
    assert_problem(client.get("/metrics"), 401, "unauthenticated")
    of_one = keys.create_key(context, "metrics", [Scope.METRICS], budgets=[budget_id])
    assert of_one is not None
    limited = client.get("/metrics", headers={"Authorization": f"Bearer {of_one.token}"})
    assert_problem(limited, 403, "forbidden")
    only = keys.create_key(context, "metrics", [Scope.METRICS])
    assert only is not None
    assert_problem(client.get("/v1/budgets", headers={"Authorization": f"Bearer {only.token}"}), 403, "forbidden")


@on_one_engine
def test_the_page_names_every_metric_and_no_other(client: TestClient, context: Context) -> None:
    context.metrics.witness_asked("w.example", "cosigned")
    for path in ("/v1/account", "/v1/account"):
        client.post(path, json=ACCOUNT)
    text = client.get("/metrics").text
    exposed = {family.name for family in text_string_to_metric_families(text)}
    samples = {s.name for family in text_string_to_metric_families(text) for s in family.samples} | exposed
    named = set(re.findall(r"\b(?:epsilond|process)_[a-z_]+\b", PAGE.read_text()))
    assert named - samples == set(), "no metric of this name is exposed"
    own = {name for name in exposed if name.startswith("epsilond_") and not name.endswith("_created")}
    assert {name for name in own if not any(each.startswith(name) for each in named)} == set()
