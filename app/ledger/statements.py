"""All SQL of a ledger's transaction: one statement with a constant text for any number of rows.

A list of ids is one parameter, so the database recognises the statement whatever the length of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import Connection, Row, Table, bindparam, insert, literal_column, select, union_all, update
from sqlalchemy.dialects import postgresql, sqlite

from accounting.canonical import canonical_text, sha256_hex
from accounting.events import Event
from app.db.lists import among, as_list
from app.tables.ledger import Budget, Certificate, ExposedStep, LimitRequest, Reservation

BUDGETS = cast(Table, Budget.__table__)
RESERVATIONS = cast(Table, Reservation.__table__)
CERTIFICATES = cast(Table, Certificate.__table__)
EXPOSED = cast(Table, ExposedStep.__table__)
LIMIT_REQUESTS = cast(Table, LimitRequest.__table__)

_CHANGED_OF_BUDGET = ("sequence", "head_hash", "filter", "spent", "started", "pending", "overdrawn", "headroom")
_CHANGED_OF_RESERVATION = (
    "state",
    "cost",
    "engine_version",
    "charged",
    "charged_events",
    "charge_delta",
    "corrected",
    "expires_at",
    "resolved_at",
)
_CHANGED_OF_LIMIT_REQUEST = ("state", "approvals", "decided_by", "decision_reason", "decided_at")
_UPDATE_BUDGET = (
    update(BUDGETS)
    .where(BUDGETS.c.id == bindparam("b_id"))
    .values({name: bindparam(name) for name in _CHANGED_OF_BUDGET})
)
_UPDATE_RESERVATION = (
    update(RESERVATIONS)
    .where(RESERVATIONS.c.id == bindparam("b_id"))
    .values({name: bindparam(name) for name in _CHANGED_OF_RESERVATION})
)
_UPDATE_LIMIT_REQUEST = (
    update(LIMIT_REQUESTS)
    .where(LIMIT_REQUESTS.c.id == bindparam("b_id"))
    .values({name: bindparam(name) for name in _CHANGED_OF_LIMIT_REQUEST})
)
# Inline, so that the statement does not wait for the number of the new row, which nobody needs.
_INSERT_RESERVATION = insert(RESERVATIONS).inline()
_ADD_TO_EXPOSED = (
    update(EXPOSED)
    .where(EXPOSED.c.budget_id == bindparam("b_id"), EXPOSED.c.step_hash == bindparam("b_hash"))
    .values(count=EXPOSED.c.count + bindparam("count"))
)


class _Statements:
    """The statements whose text depends on the engine."""

    def __init__(self, dialect: str) -> None:
        self.paths = union_all(
            select(BUDGETS.c.id, BUDGETS.c.path).where(among(dialect, BUDGETS.c.id, "ids")),
            select(RESERVATIONS.c.id, BUDGETS.c.path)
            .join_from(RESERVATIONS, BUDGETS, RESERVATIONS.c.budget_id == BUDGETS.c.id)
            .where(among(dialect, RESERVATIONS.c.id, "ids")),
            select(LIMIT_REQUESTS.c.id, BUDGETS.c.path)
            .join_from(LIMIT_REQUESTS, BUDGETS, LIMIT_REQUESTS.c.budget_id == BUDGETS.c.id)
            .where(among(dialect, LIMIT_REQUESTS.c.id, "ids")),
        )
        self.lock = (
            select(BUDGETS)
            .where(among(dialect, BUDGETS.c.id, "ids"))
            .order_by(BUDGETS.c.id)
            .with_for_update(key_share=True)
        )
        self.reservations = select(RESERVATIONS).where(among(dialect, RESERVATIONS.c.id, "ids"))
        self.limit_requests = select(LIMIT_REQUESTS).where(among(dialect, LIMIT_REQUESTS.c.id, "ids"))
        self.open_limit_requests = select(LIMIT_REQUESTS).where(
            among(dialect, LIMIT_REQUESTS.c.budget_id, "ids"),
            # The condition is written with a literal, so that the index of open requests is used.
            LIMIT_REQUESTS.c.state == literal_column("'open'"),
        )
        engine = sqlite if dialect == "sqlite" else postgresql
        self.certify = engine.insert(CERTIFICATES).on_conflict_do_nothing()
        upsert = engine.insert(EXPOSED).values(budget_id=bindparam("b_id"), step_hash=bindparam("b_hash"))
        self.expose = upsert.on_conflict_do_update(
            index_elements=["budget_id", "step_hash"], set_={"count": EXPOSED.c.count + upsert.excluded.count}
        )


_STATEMENTS = {dialect: _Statements(dialect) for dialect in ("sqlite", "postgresql")}


def paths(connection: Connection, targets: Sequence[str]) -> list[tuple[str, str]]:
    """Return the path of the budget of each existing target, which is a budget, a reservation or a request for a
    limit."""
    if not targets:
        return []
    dialect = connection.dialect.name
    found = connection.execute(_STATEMENTS[dialect].paths, {"ids": as_list(dialect, targets)})
    return [(row[0], row[1]) for row in found]


def lock_budgets(connection: Connection, ids: Sequence[str]) -> Sequence[Row[Any]]:
    """Lock the rows in the order of their ids, as everybody does, and read them as they are now.

    On PostgreSQL a row that was waited for is read again after the wait. On SQLite the transaction has the write lock.
    """
    if not ids:
        return []
    dialect = connection.dialect.name
    return connection.execute(_STATEMENTS[dialect].lock, {"ids": as_list(dialect, ids)}).all()


def reservations(connection: Connection, ids: Sequence[str]) -> Sequence[Row[Any]]:
    """Return reservations by id."""
    if not ids:
        return []
    dialect = connection.dialect.name
    return connection.execute(_STATEMENTS[dialect].reservations, {"ids": as_list(dialect, ids)}).all()


def limit_requests(connection: Connection, ids: Sequence[str], budget_ids: Sequence[str]) -> list[Row[Any]]:
    """Return the requests for a limit with these ids, and the open requests of these budgets."""
    dialect, found = connection.dialect.name, list[Row[Any]]()
    for statement, listed in (
        (_STATEMENTS[dialect].limit_requests, ids),
        (_STATEMENTS[dialect].open_limit_requests, budget_ids),
    ):
        if listed:
            found += connection.execute(statement, {"ids": as_list(dialect, listed)}).all()
    return found


def insert_limit_requests(connection: Connection, values: list[dict[str, Any]]) -> None:
    """Insert new requests for a limit."""
    if values:
        connection.execute(insert(LIMIT_REQUESTS), values)


def update_limit_requests(connection: Connection, changes: list[dict[str, Any]]) -> None:
    """Write the new states of requests; the locks of their budgets are held."""
    if changes:
        connection.execute(_UPDATE_LIMIT_REQUEST, changes)


def update_budgets(connection: Connection, changes: list[dict[str, Any]]) -> None:
    """Write the new amounts and chain heads of budgets, whose locks are held."""
    if changes:
        connection.execute(_UPDATE_BUDGET, changes)


def insert_reservations(connection: Connection, values: list[dict[str, Any]]) -> None:
    """Insert new reservations."""
    if values:
        connection.execute(_INSERT_RESERVATION, values)


def insert_certificates(connection: Connection, values: list[dict[str, Any]]) -> None:
    """Insert certificates; an existing one stays."""
    if values:
        connection.execute(_STATEMENTS[connection.dialect.name].certify, values)


def update_reservations(connection: Connection, changes: list[dict[str, Any]]) -> None:
    """Write the new states of reservations; the locks of their budgets are held."""
    if changes:
        connection.execute(_UPDATE_RESERVATION, changes)


def add_exposed_steps(connection: Connection, steps: list[tuple[str, Event, int]]) -> None:
    """Add counts, some of which may be negative, to what a budget has exposed.

    Requires: the budgets' locks.
    """
    rows: list[dict[str, Any]] = [
        {"b_id": budget_id, "b_hash": step_hash(step), "step": (step,), "count": count}
        for budget_id, step, count in steps
    ]
    more = sorted((row for row in rows if row["count"] > 0), key=itemgetter("b_id", "b_hash"))
    less = [{name: row[name] for name in ("b_id", "b_hash", "count")} for row in rows if row["count"] < 0]
    if more:
        connection.execute(_STATEMENTS[connection.dialect.name].expose, more)
    if less:
        connection.execute(_ADD_TO_EXPOSED, less)


def step_hash(step: Event) -> str:
    """Return the hash that finds a step among those that a budget has exposed."""
    return sha256_hex(canonical_text(step.to_json()).encode())
