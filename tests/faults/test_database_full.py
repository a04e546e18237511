"""A database without room, on both engines: nothing of a command is stored, and its key serves again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from sqlalchemy import event, text

from app.context import Context
from app.db.database import Database
from app.main import create_app
from tests.app.problem_assertions import assert_problem
from tests.local_access import local_client

BUDGET = {"name": "a", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}


@contextmanager
def without_room(database: Database) -> Iterator[None]:
    """The database's own word for a full disk, at the latest after some more pages."""
    if database.is_sqlite:

        def may_not_grow(connection: Any, _record: Any, _proxy: Any) -> None:
            [pages] = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")

        event.listen(database.engine, "checkout", may_not_grow)
        yield
        event.remove(database.engine, "checkout", may_not_grow)
        database.dispose()
        return
    with database.write() as session:
        session.execute(
            text(
                "CREATE FUNCTION without_room() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'its own words' USING ERRCODE = '53100'; END $$"
            )
        )
        session.execute(text("CREATE TRIGGER without_room BEFORE INSERT ON entries EXECUTE FUNCTION without_room()"))
    yield
    with database.write() as session:
        session.execute(text("DROP TRIGGER without_room ON entries"))


def test_a_database_without_room_stores_nothing_of_a_command_and_the_key_serves_again(context: Context) -> None:
    with local_client(create_app(context)) as client:

        def send(number: int) -> httpx2.Response:
            return client.post("/v1/budgets", json=BUDGET, headers={"Idempotency-Key": str(number)})

        with without_room(context.database):
            # Pages that are there already are filled first.
            refused = next(number for number in range(1000) if send(number).status_code != 201)
            answer = send(refused)
            assert_problem(answer, 507, "disk_full")
            assert int(answer.headers["retry-after"]) > 0
            assert "its own words" not in answer.text
            assert client.get("/v1/budgets").status_code == 200
        assert send(refused).status_code == 201
        verdict = client.post("/v1/ledger/verify", json={}).json()
        assert (verdict["valid"], verdict["entries"]) == (True, refused + 1)
