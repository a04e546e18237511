"""Equal questions over HTTP are answered from memory with the same bytes; others, and those of budgets, never are."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.responses import Response
from starlette.testclient import TestClient

from app.auth import service as keys
from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit.answer_cache import AnswerCache
from app.kit.fields import Schema
from app.kit.known_answers import LARGEST_BODY_BYTES, PATHS, Answers
from app.main import create_app
from app.settings import Settings
from tests.app.problem_assertions import assert_problem
from tests.databases import DatabaseFactory
from tests.local_access import local_client

HIT, STORED, NOT_STORED = "epsilond; hit", "epsilond; fwd=miss; stored", "epsilond; fwd=miss"

EVENT = {"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}, "count": 3}
ACCOUNT = {"events": [EVENT], "neighboring_relation": "add_or_remove_one", "delta": 1e-5}
CALIBRATE = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "iterations": 10,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "zcdp", "rho": 1.0},
}


@pytest.fixture
def context(sqlite_databases: DatabaseFactory, tmp_path: Any) -> Iterator[Context]:
    database = Database(sqlite_databases.migrated())
    yield fenced_context(Settings(data_dir=tmp_path, workers=0), database)
    database.dispose()


@pytest.fixture
def client(context: Context) -> Iterator[TestClient]:
    with local_client(create_app(context)) as client:
        yield client


def ask(client: TestClient, path: str, body: Any, **more: Any) -> Any:
    """Ask with a body of these very bytes, or of this value."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(path, content=content, headers={"Content-Type": "application/json", **more})


EXAMPLES = [
    ("/v1/account", ACCOUNT),
    ("/v1/account", {**ACCOUNT, "curve": {"points": 3}}),
    ("/v1/calibrate", CALIBRATE),
    ("/v1/convert", {"from": {"kind": "zcdp", "rho": 0.5}, "to": {"kind": "approximate_dp", "delta": 1e-5}}),
    ("/v1/sweep", {**CALIBRATE, "iterations": [1, 2, 3]}),
]


def test_equal_questions_get_equal_bytes(client: TestClient) -> None:
    for path, body in EXAMPLES:
        assert path in PATHS
        first, second = ask(client, path, body), ask(client, path, body)
        turned = json.dumps(body, sort_keys=True, indent=1).replace(": 10,", ": 10.0,").encode()
        third, fourth = ask(client, path, turned), ask(client, path, turned)
        assert {answer.status_code for answer in (first, second, third)} == {200}
        assert first.headers["cache-status"] == STORED, path
        assert {answer.headers["cache-status"] for answer in (second, third, fourth)} == {HIT}
        assert first.content == second.content == third.content == fourth.content
        differ = {"cache-status", "x-request-id"}
        assert {k: v for k, v in first.headers.items() if k not in differ} == {
            k: v for k, v in second.headers.items() if k not in differ
        }


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("neighboring_relation", "replace_one"),
        ("delta", 1e-6),
        ("events", [{**EVENT, "count": 4}]),
        ("events", [{**EVENT, "sampling": {"kind": "poisson", "sampling_probability": 0.5}}]),
        ("group_size", 2),
    ],
)
def test_another_relation_sampling_or_target_is_another_question(client: TestClient, field: str, value: Any) -> None:
    asked = ask(client, "/v1/account", ACCOUNT).json()
    other = ask(client, "/v1/account", {**ACCOUNT, field: value})
    assert other.headers["cache-status"] == STORED
    assert other.json() != asked
    assert ask(client, "/v1/account", ACCOUNT).json() == asked


def test_defaults_that_are_written_out_are_the_same_question(client: TestClient) -> None:
    ask(client, "/v1/account", {"events": [EVENT], "delta": 1e-5})
    written = {**ACCOUNT, "group_size": 1, "certify": False, "curve": None}
    assert ask(client, "/v1/account", written).headers["cache-status"] == HIT


def test_what_depends_on_a_budget_is_never_remembered(client: TestClient) -> None:
    made = client.post(
        "/v1/budgets",
        json={"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}},
        headers={"Idempotency-Key": "b"},
    ).json()
    goal = {"kind": "budget", "budget_id": made["id"]}
    for path, body in (
        ("/v1/calibrate", {**CALIBRATE, "budget_id": made["id"]}),
        ("/v1/calibrate", {**CALIBRATE, "target": goal}),
        ("/v1/sweep", {**CALIBRATE, "iterations": [1, 2], "budget_id": made["id"]}),
        ("/v1/sweep", {**CALIBRATE, "iterations": [1, 2], "target": goal}),
    ):
        before = [ask(client, path, body) for _ in range(2)]
        assert {answer.status_code for answer in before} == {200}
        assert {answer.headers["cache-status"] for answer in before} == {NOT_STORED}
    held = client.post(
        f"/v1/budgets/{made['id']}/reservations",
        json={"events": [{"mechanism": {"kind": "zcdp", "rho": 0.5}}], "purpose": "p"},
        headers={"Idempotency-Key": "r"},
    )
    assert held.status_code == 201
    after = ask(client, "/v1/calibrate", {**CALIBRATE, "budget_id": made["id"]}).json()["cost_in_budget"]
    assert (after["fits"], after["remaining"]) == (False, {"rho": 0.5})


def test_nobody_waits_for_anothers_answer_about_a_budget() -> None:
    """Whoever asked first may reach a budget that the second one, with the same body, does not."""

    class Body(Schema):
        budget_id: str = "bud_1"

    both_compute = threading.Barrier(2, timeout=10)

    def compute() -> Body:
        both_compute.wait()
        return Body()

    async def scene() -> list[Response]:
        answers = Answers(AnswerCache(10, 2**20), "/v1/account", b"the same words")
        return await asyncio.gather(*(answers.respond(Body(), compute, is_public=False) for _ in range(2)))

    assert [answer.headers["cache-status"] for answer in asyncio.run(scene())] == [NOT_STORED, NOT_STORED]


def test_what_was_given_up_is_asked_anew(client: TestClient, context: Context) -> None:
    slow = {**ACCOUNT, "events": [{**EVENT, "sampling": {"kind": "poisson", "sampling_probability": 0.01}}]}
    context.processes.seconds = 0.0
    assert_problem(ask(client, "/v1/account", slow), 422, "too_much_work")
    rows = ask(client, "/v1/sweep", {**CALIBRATE, "sampling": "poisson", "batch_size": 10, "iterations": [1, 2]})
    assert (rows.status_code, rows.headers["cache-status"]) == (200, NOT_STORED)
    certified = ask(client, "/v1/account", {**ACCOUNT, "certify": True})
    assert (certified.status_code, certified.headers["cache-status"]) == (200, NOT_STORED)
    context.processes.seconds = 20.0
    assert ask(client, "/v1/account", slow).headers["cache-status"] == STORED


def test_what_is_known_is_still_refused_to_who_may_not_ask(client: TestClient, context: Context) -> None:
    ask(client, "/v1/account", ACCOUNT)
    body = json.dumps(ACCOUNT).encode()
    plain = client.post("/v1/account", content=body, headers={"Content-Type": "text/plain"})
    assert_problem(plain, 415, "unsupported_media_type")
    assert_problem(ask(client, "/v1/account", ACCOUNT, **{"Content-Encoding": "gzip"}), 415, "unsupported_media_type")
    assert_problem(ask(client, "/v1/account?x=1", ACCOUNT), 422, "invalid_request", "/query/x")
    assert client.get("/v1/account").status_code == 405
    keys.create_key(context, "first", [Scope.ANALYST])
    assert_problem(ask(client, "/v1/account", ACCOUNT), 401, "unauthenticated")


def test_long_bodies_are_answered_and_not_remembered(client: TestClient) -> None:
    body = json.dumps(ACCOUNT).encode() + b" " * LARGEST_BODY_BYTES
    assert [ask(client, "/v1/account", body).headers["cache-status"] for _ in range(2)] == [NOT_STORED] * 2

    def parts() -> Iterator[bytes]:
        yield from (body[:10], body[10:])

    sent = client.post("/v1/account", content=parts(), headers={"Content-Type": "application/json"})
    assert sent.status_code == 200


def test_it_can_be_turned_off(context: Context, tmp_path: Any) -> None:
    off = fenced_context(Settings(data_dir=tmp_path, workers=0, cache_entries=0), context.database)
    with local_client(create_app(off)) as client:
        answers = [ask(client, "/v1/account", ACCOUNT) for _ in range(2)]
    assert {answer.headers["cache-status"] for answer in answers} == {NOT_STORED}
    assert answers[0].content == answers[1].content


POISSON = {**CALIBRATE, "sampling": "poisson", "batch_size": 10}


def test_forty_slow_requests_of_one_key_are_in_nobodys_way(client: TestClient, context: Context) -> None:
    tokens = []
    for name in ("greedy", "modest"):
        created = keys.create_key(context, name, [Scope.OWNER])
        assert created is not None
        tokens.append({"Authorization": f"Bearer {created.token}"})
    greedy, modest = tokens
    gate = context.processes.gate
    gate.most_waiting = 32  # fewer than are sent
    for _ in range(gate.places):
        gate.enter(30.0)
    with ThreadPoolExecutor(48) as threads:
        sent = [
            threads.submit(ask, client, "/v1/calibrate", {**POISSON, "iterations": n + 1}, **greedy) for n in range(40)
        ]
        while gate.refused < 40 - gate.most_waiting:
            time.sleep(0.001)
        # The ledger still has a thread, and so has the other caller.
        body = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
        made = client.post("/v1/budgets", json=body, headers={**modest, "Idempotency-Key": "b"})
        assert made.status_code == 201
        single = threads.submit(ask, client, "/v1/calibrate", {**POISSON, "iterations": 500}, **modest)
        while gate.refused < 41 - gate.most_waiting:
            time.sleep(0.001)
        for _ in range(gate.places):
            gate.leave()
        assert single.result().status_code == 200
        statuses = [each.result().status_code for each in sent]
    assert statuses.count(200) == gate.most_waiting - 1
    assert statuses.count(429) == 41 - gate.most_waiting
    refused = next(each.result() for each in sent if each.result().status_code == 429)
    assert_problem(refused, 429, "too_many_waiting")
    assert refused.headers["retry-after"] == "2"
