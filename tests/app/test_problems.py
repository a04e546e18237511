"""Every source of an error answers problem+json: ours, the schemas', the framework's, and what nobody expected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from accounting.errors import Unsupported
from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.observability.requests import AnswerInterrupted
from app.problems import Problem
from app.settings import Settings
from tests.app.problem_assertions import assert_problem
from tests.databases import DatabaseFactory
from tests.local_access import local_client

DATUM = "datum-48151623"


def failing(error: BaseException) -> Any:
    def endpoint() -> None:
        raise error

    return endpoint


def interrupted() -> StreamingResponse:
    def parts() -> Iterator[bytes]:
        yield b"begun"
        raise RuntimeError(DATUM)

    return StreamingResponse(parts())


FAILURES: dict[str, BaseException] = {
    "bug": ValueError(DATUM),
    "chained": RuntimeError(DATUM),
    "integrity": IntegrityError("INSERT", {"x": DATUM}, Exception(DATUM)),
    "operational": OperationalError("SELECT", {"x": DATUM}, Exception(DATUM)),
    "pool": PoolTimeout(DATUM),
    "teapot": HTTPException(418, DATUM),
    "framework": HTTPException(400, DATUM),
    "engine": Unsupported("This is not covered; that is.", pointer=("events", 0)),
    "ours": Problem(
        409,
        "budget_exceeded",
        "The budget does not admit it.",
        members={"remaining": {"rho": "0.1"}},
        headers={"X-A": "b"},
    ),
}
FAILURES["chained"].__cause__ = KeyError(DATUM)


@pytest.fixture(scope="module")
def failing_app(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """The real application with routes that fail; they exist in this test alone."""
    url = sqlite_databases.migrated()
    database = Database(url)
    app = create_app(
        fenced_context(Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0), database)
    )
    for name, error in FAILURES.items():
        app.add_api_route(f"/v1/failing/{name}", failing(error))
    app.add_api_route("/v1/failing/interrupted", interrupted)
    yield app
    database.dispose()


@pytest.fixture
def failing_client(failing_app: FastAPI) -> TestClient:
    return local_client(failing_app)


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("bug", 500, "internal_error"),
        ("chained", 500, "internal_error"),
        ("integrity", 500, "internal_error"),
        ("operational", 503, "database_unavailable"),
        ("pool", 503, "database_unavailable"),
        ("teapot", 418, "i'm_a_teapot"),
        ("framework", 400, "malformed_request"),
        ("engine", 422, "unsupported"),
        ("ours", 409, "budget_exceeded"),
    ],
)
def test_every_exception_is_a_problem_without_its_message(
    failing_client: TestClient, name: str, status: int, code: str
) -> None:
    with capture_logs() as lines:
        response = failing_client.get(f"/v1/failing/{name}")
    assert_problem(response, status, code)
    assert DATUM not in response.text
    assert DATUM not in repr(lines)
    if status in (500, 503):
        [line] = [line for line in lines if line["log_level"] == "error"]
        assert line["error_type"] == type(FAILURES[name]).__name__
        assert any("endpoint" in position for position in line["raised_at"])


def test_a_500_says_the_same_whatever_failed(failing_client: TestClient) -> None:
    answers = [failing_client.get(f"/v1/failing/{name}").json() for name in ("bug", "chained", "integrity")]
    for answer in answers:
        del answer["request_id"]
    assert answers[0] == answers[1] == answers[2]


def test_members_and_headers_of_a_problem_are_sent(failing_client: TestClient) -> None:
    response = failing_client.get("/v1/failing/ours")
    assert response.json()["remaining"] == {"rho": "0.1"}
    assert response.headers["x-a"] == "b"


def test_an_engine_error_points_to_its_place(failing_client: TestClient) -> None:
    assert_problem(failing_client.get("/v1/failing/engine"), 422, "unsupported", "/events/0", "unsupported")


def test_an_interrupted_answer_gives_up_the_connection_without_its_cause(failing_client: TestClient) -> None:
    with capture_logs() as lines, pytest.raises(AnswerInterrupted) as caught:
        failing_client.get("/v1/failing/interrupted")
    assert caught.value.__suppress_context__
    assert DATUM not in repr(lines)
    assert [line["error_type"] for line in lines if line["log_level"] == "error"] == ["RuntimeError"]


def test_an_unknown_path_is_404(reader: TestClient) -> None:
    for path in ("/v1/nothing", "/nothing", "/docs/assets/nothing.js", "/v1/algorithms/", "/docs/assets/..%2fdocs.py"):
        assert_problem(reader.get(path), 404, "not_found")


def test_a_wrong_method_is_405_and_names_the_right_one(reader: TestClient) -> None:
    response = reader.delete("/v1/account")
    assert_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


def test_a_preflight_of_another_site_gets_no_permission(reader: TestClient) -> None:
    response = reader.options("/v1/account", headers={"access-control-request-method": "POST"})
    assert_problem(response, 405, "method_not_allowed")
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_a_request_id_is_taken_over_if_it_is_a_plain_word(reader: TestClient) -> None:
    assert reader.get("/health/live", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    for offered in ("", "a b", "x" * 65, "ä".encode(), 'a"b', "a\tb"):
        response = reader.get("/health/live", headers={"X-Request-Id": offered})
        assert response.headers["x-request-id"].startswith("req_")
    twice = reader.get("/health/live", headers=[("X-Request-Id", "a"), ("X-Request-Id", "b")])
    assert twice.headers["x-request-id"].startswith("req_")


def test_a_log_line_holds_the_route_and_not_the_address(reader: TestClient) -> None:
    with capture_logs() as lines:
        reader.get(f"/v1/algorithms/{DATUM}?q={DATUM}", headers={"X-Request-Id": "abc-1", "X-Other": DATUM})
        reader.post("/v1/account", json={"delta": DATUM})
    assert [(line["route"], line["status"]) for line in lines] == [("/v1/algorithms/{name}", 422), ("/v1/account", 422)]
    assert DATUM not in repr(lines)


def test_answers_carry_the_headers_that_keep_browsers_from_guessing(reader: TestClient) -> None:
    response = reader.get("/v1/algorithms")
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "body", "pointer", "said"),
    [
        ("/v1/budgets", {"name": "a\tb"}, "/name", "Control characters, such as tabs and line breaks"),
        ("/v1/budgets", {"name": ""}, "/name", "This field must not be empty."),
        ("/v1/runs", {"dataset_id": "Set 1"}, "/dataset_id", "Input should be an id, such as bud_7k2m"),
        ("/v1/runs", {"expected_plan_hash": "abc"}, "/expected_plan_hash", "a SHA-256 hash: 64 digits"),
    ],
)
def test_a_form_is_required_in_words_and_not_by_its_pattern(client, path, body, pointer, said):
    answer = client.post(path, json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 422
    [found] = [each["detail"] for each in answer.json()["errors"] if each["pointer"] == pointer]
    assert said in found
    assert "pattern" not in found
