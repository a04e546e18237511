"""A server without keys: calculations are open to its machine, all else needs the token in its data folder."""

from __future__ import annotations

import os
import re
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from starlette.testclient import TestClient

from app.auth import local_token, service
from app.auth.guard import is_calculation
from app.auth.local_token import NotPrivate
from app.auth.principal import ANYBODY, LOOPBACK, Scope
from app.context import Context
from app.dashboard.asking import ask
from app.main import create_app
from tests.app.conftest import ConnectAs
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine
from tests.local_access import local_client

CALCULATIONS = {
    "POST /v1/account",
    "POST /v1/advise",
    "GET /v1/algorithms",
    "GET /v1/algorithms/compare",
    "GET /v1/algorithms/{name}",
    "POST /v1/assumptions",
    "POST /v1/calibrate",
    "POST /v1/calibrate/events",
    "POST /v1/convert",
    "POST /v1/import",
    "POST /v1/sweep",
    "POST /v1/tuning-cost",
}
OPEN = CALCULATIONS | {"GET /health/live", "GET /health/ready"}
CALIBRATION = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "iterations": 10,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
}
BUDGET = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}


@pytest.fixture
def anybody(connect: ConnectAs) -> TestClient:
    """Another user of the machine: a client that cannot read the token."""
    return connect(is_local=False)


@pytest.fixture
def operator(connect: ConnectAs) -> TestClient:
    return connect()


def make_budget(client: TestClient) -> str:
    answer = client.post("/v1/budgets", json=BUDGET, headers={"Idempotency-Key": "b"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@on_one_engine
def test_every_operation_is_an_open_calculation_or_needs_the_token(anybody: TestClient) -> None:
    document = anybody.get("/openapi.json").json()
    seen = set()
    for path, item in document["paths"].items():
        for method in item:
            address = re.sub(r"\{name\}", "dp_sgd", path)
            address = re.sub(r"\{[a-z_]+\}", "x", address)
            body: dict[str, Any] | None = {} if method == "post" else None
            answer = anybody.request(method, address, json=body, headers={"Idempotency-Key": "k"})
            name = f"{method.upper()} {path}"
            seen.add(name)
            if name in OPEN:
                assert answer.status_code not in (401, 403), name
            else:
                assert_problem(answer, 401, "unauthenticated")
    assert seen >= OPEN


@on_one_engine
def test_nothing_else_under_v1_is_open(anybody: TestClient) -> None:
    for path in (
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/v1/algorithmsx",
        "/v1/account/",
        "/V1/account",
        "/metrics",
        "/nothing",
    ):
        assert_problem(anybody.get(path), 401, "unauthenticated")


@on_one_engine
def test_the_documentation_is_open(anybody: TestClient) -> None:
    for path in ("/docs", "/openapi.json", "/docs/assets/docs.js", "/dashboard/assets/dashboard.css", "/health/live"):
        assert anybody.get(path).status_code == 200, path


@on_one_engine
def test_a_calculation_that_names_what_is_stored_needs_the_token(anybody: TestClient, operator: TestClient) -> None:
    budget = make_budget(operator)
    columns = {"model": {"kind": "logistic_regression"}, "dataset_id": "ds_breast_cancer"}
    questions: list[tuple[str, dict[str, Any]]] = [
        ("/v1/calibrate", CALIBRATION | {"target": {"kind": "budget", "budget_id": budget}}),
        ("/v1/calibrate", CALIBRATION | {"budget_id": budget}),
        ("/v1/sweep", CALIBRATION | {"iterations": [10, 20], "target": {"kind": "budget", "budget_id": budget}}),
        ("/v1/sweep", CALIBRATION | {"iterations": [10, 20], "budget_id": budget}),
        ("/v1/assumptions", columns),
    ]
    for path, body in questions:
        assert operator.post(path, json=body).status_code == 200, path
        refusal = assert_problem(anybody.post(path, json=body), 401, "unauthenticated")
        assert "local-token" in refusal["detail"]
    unknown = CALIBRATION | {"budget_id": "bud_nothing"}
    assert_problem(anybody.post("/v1/calibrate", json=unknown), 401, "unauthenticated")


@on_one_engine
def test_the_refusal_says_where_the_token_is_and_not_which_folder(anybody: TestClient, context: Context) -> None:
    refusal = anybody.get("/v1/budgets")
    detail = assert_problem(refusal, 401, "unauthenticated")["detail"]
    assert "file `local-token`" in detail
    assert "curl -H @var/local-token" in detail
    assert str(context.settings.data_dir) not in refusal.text
    assert refusal.headers["www-authenticate"].startswith("Bearer ")


@on_one_engine
def test_the_file_is_a_header_for_this_user_alone(context: Context, open_umask: None) -> None:
    assert local_token.settle(context)
    file = context.settings.local_token_file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert re.fullmatch(r"Authorization: Bearer epsilond_local_[a-z2-7]{52}\n", file.read_text())
    before = file.read_text()
    assert local_token.settle(context), "a second start shares it"
    assert file.read_text() == before


@on_one_engine
def test_starts_at_once_make_one_token(context: Context) -> None:
    tokens: list[str | None] = []

    def start() -> None:
        local_token.settle(context)
        tokens.append(local_token.read(context.settings))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 8
    assert len(set(tokens)) == 1
    assert None not in tokens
    assert [file.name for file in context.settings.data_dir.glob("local-token*")] == ["local-token"]


@on_one_engine
def test_two_servers_of_one_folder_take_the_same_token(connect: ConnectAs, context: Context) -> None:
    connect()
    with local_client(create_app(replace(context))) as other:
        assert other.get("/v1/budgets").status_code == 200


def _open_to_others(file: Path) -> None:
    file.write_text("Authorization: Bearer epsilond_local_" + "a" * 52)
    file.chmod(0o644)


def _elsewhere(file: Path) -> None:
    target = file.with_name("target")
    target.write_text("Authorization: Bearer epsilond_local_" + "a" * 52)
    target.chmod(0o600)
    file.symlink_to(target)


def _garbage(file: Path) -> None:
    file.write_text("Authorization: Bearer x\n")
    file.chmod(0o600)


def _pipe(file: Path) -> None:
    os.mkfifo(file, 0o600)


@on_one_engine
@pytest.mark.parametrize("put", [_open_to_others, _elsewhere, _garbage, _pipe, Path.mkdir])
def test_a_file_that_others_may_know_lets_nobody_in(put: Any, context: Context, connect: ConnectAs) -> None:
    file = context.settings.local_token_file
    file.parent.mkdir(parents=True, exist_ok=True)
    put(file)
    with pytest.raises(NotPrivate, match="mode 0600"):
        local_token.settle(context)
    headers = {"Authorization": "Bearer epsilond_local_" + "a" * 52}
    assert_problem(connect(is_local=False, headers=headers).get("/v1/budgets"), 401, "invalid_key")


@on_one_engine
def test_a_wrong_token_is_refused_also_for_a_calculation(operator: TestClient, context: Context) -> None:
    token = local_token.read(context.settings)
    assert token is not None
    for wrong in (token[:-1], token + "a", token.upper(), "epsilond_local_" + "a" * 52, "", "é"):
        for path in ("/v1/budgets", "/v1/algorithms"):
            headers = [(b"authorization", f"Bearer {wrong}".encode("latin-1"))]
            refusal = assert_problem(operator.get(path, headers=headers), 401, "invalid_key")
            assert "local-token" in refusal["detail"]
    assert_problem(operator.get("/v1/budgets", headers={"Authorization": f"Basic {token}"}), 401, "invalid_key")
    both = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    assert_problem(operator.get("/v1/budgets", headers=both), 401, "invalid_key")
    assert operator.get("/v1/budgets", headers={"Authorization": f"bearer {token}"}).status_code == 200


@on_one_engine
def test_the_token_is_good_on_this_machine_alone(connect: ConnectAs) -> None:
    operator = connect()
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"X-Forwarded-For": "127.0.0.1"}):
        assert_problem(operator.get("/v1/budgets", headers=headers), 403, "loopback_only")
    assert_problem(connect(peer=("10.0.0.1", 1)).get("/v1/budgets"), 403, "loopback_only")


@on_one_engine
def test_removing_the_file_ends_the_token_at_once(operator: TestClient, context: Context) -> None:
    token = local_token.read(context.settings)
    headers = {"Authorization": f"Bearer {token}"}
    assert operator.get("/v1/budgets", headers=headers).status_code == 200
    context.settings.local_token_file.unlink()
    assert_problem(operator.get("/v1/budgets", headers=headers), 401, "invalid_key")


@on_one_engine
def test_the_first_key_ends_it_for_ever(operator: TestClient, anybody: TestClient, context: Context) -> None:
    file = context.settings.local_token_file
    line = file.read_text()
    headers = {"Authorization": line.removeprefix("Authorization: ").strip()}
    body = {"name": "first", "scopes": ["admin"]}
    created = operator.post("/v1/keys", json=body, headers={"Idempotency-Key": "first"} | headers)
    assert created.status_code == 201, created.text
    assert not file.exists()

    def is_refused() -> None:
        for path in ("/v1/budgets", "/v1/algorithms"):
            refusal = assert_problem(operator.get(path, headers=headers), 401, "invalid_key")
            assert "became invalid when the first key was made" in refusal["detail"]
            assert_problem(anybody.get(path), 401, "unauthenticated")

    is_refused()
    file.write_text(line)
    file.chmod(0o600)
    is_refused()
    assert service.revoke_key(context, created.json()["id"])
    is_refused()
    assert not local_token.settle(context), "a start makes no other one"
    assert not file.exists()


@on_one_engine
def test_a_key_that_the_command_line_makes_removes_the_file_at_once(context: Context) -> None:
    assert local_token.settle(context)
    assert service.create_key(context, "first", [Scope.ADMIN]) is not None
    assert not context.settings.local_token_file.exists()


@on_one_engine
def test_a_key_that_another_machine_made_removes_the_file_here(operator: TestClient, context: Context) -> None:
    elsewhere = replace(
        context, settings=context.settings.model_copy(update={"data_dir": context.settings.data_dir / "x"})
    )
    assert service.create_key(elsewhere, "first", [Scope.ADMIN]) is not None
    assert context.settings.local_token_file.exists()
    service.tell_of_change(context)  # in place of the second after which another process asks again
    operator.get("/v1/budgets")
    assert not context.settings.local_token_file.exists()


@on_one_engine
def test_the_token_is_in_no_answer_and_no_log(
    operator: TestClient, context: Context, capfd: pytest.CaptureFixture[str]
) -> None:
    token = local_token.read(context.settings)
    assert token is not None
    texts = [
        operator.get(path).text for path in ("/v1/budgets", "/v1/keys/self", "/metrics", "/", "/dashboard/budgets")
    ]
    texts.append(operator.get(f"/v1/budgets?x={token}", headers={"Authorization": f"Bearer {token}x"}).text)
    out, err = capfd.readouterr()
    assert all(token not in text for text in [*texts, out, err])


@on_one_engine
def test_all_who_show_nothing_are_one_caller(context: Context) -> None:
    limited = replace(context, settings=context.settings.model_copy(update={"requests_per_second": 1.0}))
    app = create_app(limited)
    with local_client(app) as operator:
        first, second = (TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", n)) for n in (1, 2))
        assert first.get("/v1/algorithms").status_code == 200
        assert second.get("/v1/algorithms").status_code == 200
        refusal = assert_problem(first.get("/v1/algorithms"), 429, "too_many_requests")
        assert "All who show no token together" in refusal["detail"]
        assert operator.get("/v1/algorithms").status_code == 200, "who shows the token is another caller"


def test_whoever_shows_nothing_reaches_nothing() -> None:
    assert not ANYBODY.reaches("bud_a")
    assert ANYBODY.scopes == {Scope.ANALYST}
    assert ANYBODY.id != LOOPBACK.id


@on_one_engine
def test_pages_of_what_is_stored_need_a_session_and_calculators_do_not(
    anybody: TestClient, operator: TestClient
) -> None:
    make_budget(operator)
    stored = (
        "/dashboard/budgets",
        "/dashboard/ledger",
        "/dashboard/runs",
        "/dashboard/run-sweeps",
        "/dashboard/nothing",
    )
    for path in stored:
        assert anybody.get(path).status_code == 303, path
        assert anybody.get(path).headers["location"].startswith("/dashboard/sign-in"), path
    for path in ("/", "/dashboard/compare", "/dashboard/algorithms/dp_sgd"):
        answer = anybody.get(path)
        assert answer.status_code == 200, path
        assert "bud_" not in answer.text
        assert "sign in" in answer.text
    assert "bud_" in operator.get("/dashboard/budgets").text
    origin = {"Origin": "http://127.0.0.1:8000"}
    assert anybody.post("/dashboard/budgets/new", data={"name": "b"}, headers=origin).status_code == 303


@on_one_engine
def test_a_page_that_calculates_asks_for_nothing_that_is_stored(context: Context) -> None:
    """A call that a page makes in this process passes the guard, too: a page could be made to ask for more."""
    app = create_app(context)

    async def asking(request: Request) -> dict[str, Any]:
        answer = await ask(request, "GET", "/v1/budgets")
        return {"asked": answer.status}

    app.add_api_route("/dashboard/algorithms/x/budgets", asking)
    app.router.routes.insert(0, app.router.routes.pop())
    local_token.settle(context)
    plain = TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 1))
    assert plain.get("/dashboard/algorithms/x/budgets").json() == {"asked": 401}
    assert local_client(app).get("/dashboard/algorithms/x/budgets").json() == {"asked": 200}
    assert not is_calculation("/v1/budgets")
