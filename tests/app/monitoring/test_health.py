"""Live asks nothing; ready names each part that is not as it should be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.monitoring import health
from app.runs import liveness
from app.runs.supervisor import Supervisor
from app.settings import Settings
from tests.app.conftest import BASE_URL, LOOPBACK_PEER
from tests.app.problem_assertions import assert_problem
from tests.databases import DatabaseFactory

FINE = {
    "database": "ok",
    "schema": "ok",
    "fence": "ok",
    "data_folder": "ok",
    "workers": "elsewhere",
    "witnesses": "none",
    "accepting": "ok",
}


@pytest.fixture(autouse=True)
def _looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "BELIEVED_S", 0.0)


@pytest.fixture
def context(sqlite_databases: DatabaseFactory, tmp_path: Path) -> Iterator[Context]:
    """The tests run on SQLite alone, because nothing here differs between the engines."""
    database = Database(sqlite_databases.migrated())
    yield fenced_context(Settings(data_dir=tmp_path / "data", database_url=database.url, workers=0), database)
    database.dispose()


def test_a_service_that_can_work_says_so_part_by_part(client: TestClient) -> None:
    assert client.get("/health/ready").json() == {"status": "ok", "checks": FINE}
    assert client.get("/health/live").json() == {"status": "ok"}


def test_live_asks_neither_database_nor_disk(client: TestClient, monkeypatch: Any) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it was asked")

    monkeypatch.setattr(Database, "read", refuse)
    monkeypatch.setattr(Database, "write", refuse)
    monkeypatch.setattr(health.os, "open", refuse)
    assert client.get("/health/live").status_code == 200


def test_a_schema_that_is_not_the_newest(client: TestClient, context: Context) -> None:
    with context.database.write() as session:
        session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    problem = assert_problem(client.get("/health/ready"), 503, "database_unavailable")
    assert problem["checks"] == {**FINE, "schema": "failing", "fence": "failing"}


def test_a_database_that_is_away(context: Context, tmp_path: Path) -> None:
    away = replace(context, database=Database("postgresql+psycopg://nobody:word@127.0.0.1:1/nothing"))
    client = TestClient(create_app(away), base_url=BASE_URL, client=LOOPBACK_PEER)
    answer = client.get("/health/ready")
    problem = assert_problem(answer, 503, "database_unavailable")
    assert problem["checks"] == {**FINE, "database": "failing", "schema": "failing", "fence": "failing"}
    assert "word" not in answer.text
    away.database.dispose()


def test_a_data_folder_that_takes_no_file(client: TestClient, context: Context, monkeypatch: Any) -> None:
    before = list(context.settings.data_dir.glob("probe-*"))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(health.os, "write", full)
    problem = assert_problem(client.get("/health/ready"), 503, "not_ready")
    assert problem["checks"] == {**FINE, "data_folder": "failing"}
    assert str(context.settings.data_dir) not in client.get("/health/ready").text
    assert list(context.settings.data_dir.glob("probe-*")) == before, "nothing is left behind"


def test_a_worker_that_lives_and_none(context: Context) -> None:
    wants = replace(context, settings=context.settings.model_copy(update={"workers": 1}))
    client = TestClient(create_app(wants), base_url=BASE_URL, client=LOOPBACK_PEER)  # starts no worker of its own
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.json()["checks"]["workers"]) == (200, "failing"), "the rest is answered"
    with ExitStack() as stack:
        stack.enter_context(liveness.alive(context.settings.data_dir, liveness.new_worker_id()))
        assert client.get("/health/ready").json()["checks"]["workers"] == "ok"
    assert client.get("/health/ready").json()["checks"]["workers"] == "failing"


def test_a_server_that_has_just_begun_waits_for_its_first_worker(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "start", lambda _: None)  # no worker comes
    monkeypatch.setattr(Supervisor, "stop", lambda _: None)
    wants = replace(context, settings=context.settings.model_copy(update={"workers": 1}))
    with TestClient(create_app(wants), base_url=BASE_URL, client=LOOPBACK_PEER) as client:
        answer = client.get("/health/ready")
        assert (answer.status_code, answer.json()["checks"]["workers"]) == (200, "starting")
        monkeypatch.setattr(health, "WORKERS_START_S", 0.0)
        assert client.get("/health/ready").json()["checks"]["workers"] == "failing"


def test_who_asks_often_makes_one_look_and_hears_at_once_that_the_server_stops(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    for part in ("_database", "_data_folder", "_workers"):
        look = getattr(health, part)
        monkeypatch.setattr(health, part, lambda *given, look=look, part=part: (looks.append(part), look(*given))[1])
    monkeypatch.setattr(health, "BELIEVED_S", 1e6)
    for _ in range(3):
        assert client.get("/health/ready").json() == {"status": "ok", "checks": FINE}
    assert looks == ["_database", "_data_folder", "_workers"]
    client.app.state.is_stopping = True  # type: ignore[attr-defined]
    assert client.get("/health/ready").json()["checks"] == {**FINE, "accepting": "failing"}
    assert len(looks) == 3
    monkeypatch.setattr(health, "BELIEVED_S", 0.0)
    client.get("/health/ready")
    assert len(looks) == 6


def test_whoever_asks_while_a_look_is_taken_waits_for_it(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    is_second = threading.Event()

    def look(_: Context) -> tuple[str, str]:
        looks.append(1)
        if len(looks) > 1:
            is_second.set()
        # As long as it takes for the others to come, which are let in only if nothing keeps them out.
        is_second.wait(0.3)
        return "ok", "ok"

    monkeypatch.setattr(health, "_database", look)
    monkeypatch.setattr(health, "BELIEVED_S", 1e6)
    last = health.LastLook()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: last.found(context, 0.0), range(3)))
    assert len(looks) == 1
    assert found[0] == found[1] == found[2]


def test_a_server_that_was_told_to_stop(client: TestClient) -> None:
    client.app.state.is_stopping = True  # type: ignore[attr-defined]
    problem = assert_problem(client.get("/health/ready"), 503, "not_ready")
    assert problem["checks"] == {**FINE, "accepting": "failing"}
    assert client.get("/v1/algorithms").status_code == 200
