"""A wrong clock can cost a hold that was not started, and nothing else; the database's clock is never asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from app.context import Context
from app.main import create_app
from app.reservations import service
from app.tables.base import Base
from tests.app.budgets.conftest import Api, Clock, made, zcdp
from tests.app.problem_assertions import assert_problem
from tests.local_access import local_client

TEN_YEARS = 10 * 365 * 24 * 3600
ROOT = Path(__file__).parents[3]
#: What SQL has for the time of day, in either database. SQLite's functions of dates take it for no argument, or 'now'.
ASKS_THE_TIME = re.compile(
    r"\bnow\s*\(|\bcurrent_(timestamp|time|date)\b|\blocaltime(stamp)?\b|_timestamp\s*\(\s*\)|\btimeofday\b|"
    r"\b(date|time|datetime|julianday|unixepoch)\s*\(\s*\)|'now'",
    re.IGNORECASE,
)


@pytest.fixture
def elsewhere(context: Context, clock: Clock) -> Iterator[Api]:
    """Another machine on the same database, whose clock is ten years ahead."""
    ahead = replace(context, clock=lambda: clock() + timedelta(seconds=TEN_YEARS))
    with local_client(create_app(ahead)) as client:
        yield Api(client)


@pytest.mark.parametrize("years", [10, -10])
def test_a_clock_that_jumps_ten_years_overspends_nothing_and_frees_nothing_started(
    api: Api, clock: Clock, context: Context, years: int
) -> None:
    budget = api.budget()
    started, pending = api.hold(budget["id"], [zcdp(0.5)]), api.hold(budget["id"], [zcdp(0.25)])
    made(api.resolve(started, "start"))
    clock.advance(years * TEN_YEARS // 10)
    assert service.release_due_holds(context) == (1 if years > 0 else 0)
    assert_problem(api.reserve(budget["id"], [zcdp(0.501)]), 409, "budget_exceeded")
    assert_problem(api.resolve(started, "void"), 409, "already_started")
    new = api.hold(budget["id"], [zcdp(0.25)])
    clock.advance(-2 * years * TEN_YEARS // 10)
    service.release_due_holds(context)
    made(api.resolve(started, "extend"))
    assert api.read(budget["id"])["amounts"]["started"] == {"rho": 0.5}
    assert_problem(api.reserve(budget["id"], [zcdp(0.501)]), 409, "budget_exceeded")
    clock.advance(years * TEN_YEARS // 10)
    assert made(api.resolve(started, "commit"))["charged"] == {"rho": 0.5}
    assert api.state(started) == "committed"
    # What the jump cost: the holds that had not started, at most.
    assert {api.state(pending), api.state(new)} <= {"pending", "expired"}
    assert api.rho(budget["id"])[0] == 0.5


def test_a_clock_that_was_set_back_gives_a_released_hold_no_second_life(
    api: Api, clock: Clock, context: Context
) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.75)])
    clock.advance(TEN_YEARS)
    assert service.release_due_holds(context) == 1
    clock.advance(-TEN_YEARS)
    for command in ("start", "extend", "commit", "void"):
        assert_problem(api.resolve(held, command), 409, "expired")
    assert api.rho(budget["id"]) == (0, 0, 1)


def test_entries_stay_in_their_order_whatever_the_clock_says(api: Api, clock: Clock) -> None:
    budget = api.budget()
    for seconds in (-TEN_YEARS, 2 * TEN_YEARS, -1):
        clock.advance(seconds)
        api.hold(budget["id"], [zcdp(0.1)])
    entries = api.entries(budget["id"])
    assert [entry["sequence"] for entry in entries] == [1, 2, 3, 4]
    assert [entry["previous_hash"] for entry in entries[1:]] == [entry["hash"] for entry in entries[:-1]]
    assert entries[1]["recorded_at"] < entries[0]["recorded_at"] < entries[2]["recorded_at"]
    assert [item["sequence"] for item in api.get(f"/v1/budgets/{budget['id']}/entries").json()["items"]] == [1, 2, 3, 4]


def test_two_machines_ten_years_apart_share_one_budget(api: Api, elsewhere: Api, context: Context) -> None:
    budget = api.budget()
    started, pending = api.hold(budget["id"], [zcdp(0.4)]), api.hold(budget["id"], [zcdp(0.2)])
    made(api.resolve(started, "start"))
    # The machine that is ahead sees both past their time. It frees the one that has not started, and no more.
    assert elsewhere.get(f"/v1/reservations/{started['id']}").json()["overdue"] is True
    assert_problem(elsewhere.resolve(started, "void"), 409, "already_started")
    assert_problem(elsewhere.resolve(pending, "start"), 409, "expired")
    assert_problem(elsewhere.reserve(budget["id"], [zcdp(0.61)]), 409, "budget_exceeded")
    theirs = elsewhere.hold(budget["id"], [zcdp(0.35)])
    assert_problem(api.resolve(pending, "start"), 409, "expired")
    assert_problem(api.reserve(budget["id"], [zcdp(0.26)]), 409, "budget_exceeded")
    # Here the other's hold is far from due, there this one is overdue: both are held in full on both.
    mine = api.hold(budget["id"], [zcdp(0.25)])
    assert service.release_due_holds(context) == 0
    assert api.rho(budget["id"]) == elsewhere.rho(budget["id"]) == (0, 1, 0)
    made(api.resolve(theirs, "start"))
    made(elsewhere.resolve(theirs, "commit"))
    made(elsewhere.resolve(started, "extend", {"expires_in": 1}))
    made(elsewhere.resolve(started, "commit"))
    assert api.rho(budget["id"]) == (0.75, 0.25, 0)
    assert api.state(mine) == "pending"


def test_no_statement_asks_the_database_for_the_time(api: Api, context: Context, clock: Clock) -> None:
    statements: list[str] = []

    def record(_connection: object, _cursor: object, statement: str, parameters: object, *_rest: object) -> None:
        statements.append(f"{statement} {parameters!r}")

    engine: Engine = context.database.engine
    event.listen(engine, "before_cursor_execute", record)
    parent = api.budget()
    child = api.child(parent, report_delta=1e-5)
    held = [api.hold(child["id"], [zcdp(0.1)], expires_in=60) for _ in range(4)]
    for index, commands in enumerate((["start", "extend", "commit"], ["commit"], ["void"])):
        for command in commands:
            made(api.resolve(held[index], command))
    clock.advance(60)
    assert_problem(api.reserve(child["id"], [zcdp(5.0)]), 409, "budget_exceeded")
    made(api.correct(child["id"], events=[zcdp(0.1)]))
    made(api.change_limit(child["id"], {"kind": "zcdp", "rho": 2}))
    for path in ("", "/entries", "/reservations"):
        api.get(f"/v1/budgets/{child['id']}{path}")
    api.get(f"/v1/budgets/{child['id']}/entries", after="2026-05-01T00:00:00Z")
    api.get(f"/v1/budgets/{child['id']}/reservations", overdue="true")
    event.remove(engine, "before_cursor_execute", record)
    assert len(statements) > 50
    assert {verb for verb in ("SELECT", "INSERT", "UPDATE") if any(verb in text for text in statements)} == {
        "SELECT",
        "INSERT",
        "UPDATE",
    }
    assert [statement for statement in statements if ASKS_THE_TIME.search(statement)] == []


@pytest.mark.parametrize("package", ["app", "migrations"])
def test_no_source_of_sql_names_the_time_of_the_database(package: str) -> None:
    in_sqlalchemy = re.compile(r"\bfunc\.(now|current_|local|clock|statement_t|transaction_t|timeofday|sysdate)\w*")
    in_text = re.compile(r"[\"'][^\"'\n]*(\bnow\s*\(\)|current_(timestamp|time|date)\b)|[\"']now[\"']", re.IGNORECASE)
    sources = sorted((ROOT / package).rglob("*.py"))
    assert len(sources) >= 5
    for source in sources:
        content = source.read_text()
        assert not in_sqlalchemy.search(content), source
        assert not in_text.search(content), source


def test_no_column_is_filled_with_a_time_by_the_database() -> None:
    defaults = [
        str(column.server_default.arg)  # type: ignore[attr-defined]
        for table in Base.metadata.tables.values()
        for column in table.columns
        if column.server_default is not None
    ]
    assert not [default for default in defaults if ASKS_THE_TIME.search(default)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT now()",
        "INSERT INTO entries (recorded_at) VALUES (CURRENT_TIMESTAMP)",
        "SELECT datetime('now')",
        "SELECT clock_timestamp()",
        "SELECT statement_timestamp ()",
        "UPDATE budgets SET a = strftime('%s', 'now')",
        "SELECT strftime(?, ?) ('%s', 'now')",
        "SELECT unixepoch()",
    ],
)
def test_the_search_finds_what_it_looks_for(statement: str) -> None:
    assert ASKS_THE_TIME.search(statement)


def test_the_search_lets_dates_of_columns_pass() -> None:
    assert not ASKS_THE_TIME.search("SELECT strftime('%Y-%m', entries.recorded_at), date(resolved_at) FROM entries")
