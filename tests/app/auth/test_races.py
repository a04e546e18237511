"""Keys that several processes and threads use and change at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from app.auth import memory, service
from app.auth.principal import Scope
from app.context import Context
from app.problems import Problem
from app.settings import environment_of
from tests.app.auth.rights_world import EVENT, Caller, send
from tests.app.conftest import ConnectAs
from tests.app.datasets.uploads import create_budget
from tests.app.problem_assertions import assert_problem

ROOT = Path(__file__).parents[3]


def together(works: list[Callable[[], Any]]) -> list[Any]:
    """What the works gave, each in a thread of its own, all begun at once."""
    barrier, results = Barrier(len(works)), [None] * len(works)

    def work(place: int) -> None:
        barrier.wait()
        results[place] = works[place]()

    threads = [Thread(target=work, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_what_another_process_revokes_is_refused_once_the_memory_is_a_second_old(
    context: Context, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = service.create_key(context, "shared", [Scope.ANALYST])
    assert created is not None

    def ask() -> int:
        return client.get("/v1/keys/self", headers={"Authorization": f"Bearer {created.token}"}).status_code

    monkeypatch.setattr(memory, "SECONDS", 1e9)
    assert ask() == 200
    command = [sys.executable, "-m", "app", "keys", "revoke", created.id]
    subprocess.run(command, check=True, cwd=ROOT, env=environment_of(context.settings), capture_output=True)
    assert ask() == 200, "believed for so long"
    monkeypatch.setattr(memory, "SECONDS", 0.0)
    assert ask() == 401


def test_of_two_rotations_at_once_one_hands_out_a_token(context: Context) -> None:
    created = service.create_key(context, "rotated", [Scope.ANALYST])
    assert created is not None

    def rotate() -> str:
        try:
            with context.database.write() as session:
                return service.rotate_key(session, context, created.id, timedelta(hours=1))[1]
        except Problem as problem:
            return problem.code

    told = together([rotate] * 4)
    tokens = [each for each in told if each.startswith("epsilond_")]
    assert sorted(set(told) - set(tokens)) == ["rotation_in_progress"]
    assert len(tokens) == 1
    for token in (created.token, tokens[0]):
        assert service.authenticate(context, token) is not None


def test_a_rotation_waits_for_another_that_is_not_committed_and_then_sees_it(context: Context) -> None:
    created = service.create_key(context, "rotated", [Scope.ANALYST])
    assert created is not None
    told = []

    def rotate() -> None:
        try:
            with context.database.write() as session:
                service.rotate_key(session, context, created.id, timedelta(hours=1))
        except Problem as problem:
            told.append(problem.code)

    other = Thread(target=rotate)
    with context.database.write() as session:
        _, token = service.rotate_key(session, context, created.id, timedelta(hours=1))
        other.start()
        # On SQLite the second transaction cannot begin before the first has ended.
        while other.is_alive() and not context.database.is_sqlite and not _somebody_waits(context):
            pass
    other.join()
    assert told == ["rotation_in_progress"]
    assert service.authenticate(context, token) is not None


def _somebody_waits(context: Context) -> bool:
    statement = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with context.database.read() as session:
        return bool(session.scalar(text(statement)))


def test_of_the_last_two_admin_keys_revoked_at_once_one_stays(context: Context) -> None:
    ids = []
    for _ in range(2):
        created = service.create_key(context, "admin", [Scope.ADMIN])
        assert created is not None
        ids.append(created.id)

    def revoke(key_id: str) -> str:
        try:
            with context.database.write() as session:
                revoked = service.revoke_unless_last(session, context, key_id, "loopback")
                return service.state_of(revoked, context.clock())
        except Problem as problem:
            return problem.code

    told = together([lambda key_id=key_id: revoke(key_id) for key_id in ids])
    assert sorted(told) == ["last_admin_key", "revoked"]


def test_keys_of_different_budgets_that_share_transactions_never_see_each_other(
    context: Context, connect: ConnectAs
) -> None:
    client, sides = connect(), []
    for _ in range(2):
        budget_id = create_budget(context)
        created = service.create_key(context, "one budget", [Scope.ANALYST], budgets=[budget_id])
        assert created is not None
        sides.append((Caller(client, created.token), budget_id))

    def work(side: int) -> list[tuple[bool, Any]]:
        caller, own = sides[side]
        body = {"events": [EVENT], "purpose": "p", "expires_in": 3600}
        asked = [own, sides[1 - side][1]] * 5
        return [(each == own, send(caller, "POST", f"/v1/budgets/{each}/reservations", json=body)) for each in asked]

    for side, answers in enumerate(together([lambda side=side: work(side) for side in (0, 1, 0, 1)])):
        for is_own, answer in answers:
            if is_own:
                assert (answer.status_code, answer.json()["budget_id"]) == (201, sides[side % 2][1])
            else:
                assert_problem(answer, 404, "not_found")
    for caller, budget_id in sides:
        found = send(caller, "GET", f"/v1/budgets/{budget_id}/reservations?limit=100").json()["items"]
        assert len(found) == 10
