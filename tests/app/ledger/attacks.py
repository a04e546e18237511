"""Somebody with the database's password: no trigger, constraint or foreign key stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, text

from app.db.database import Database

Rows = list[dict[str, Any]]


@contextmanager
def attack(database: Database) -> Iterator[Connection]:
    """A connection on which nothing is checked; what is done is committed."""
    engine = create_engine(database.url)
    try:
        with engine.begin() as connection:
            if database.is_sqlite:
                for (name,) in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
                    connection.execute(text(f"DROP TRIGGER {name}"))
            else:
                # Triggers, also those that check references.
                connection.execute(text("SET session_replication_role = replica"))
            yield connection
    finally:
        engine.dispose()


def run(database: Database, *statements: str) -> None:
    """Execute statements on a connection on which nothing is checked."""
    with attack(database) as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def entries(database: Database) -> Rows:
    """All entries, in the order of their leaf indices, as the database has them."""
    return rows(database, "SELECT * FROM entries ORDER BY leaf_index")


def rewrite_entries(database: Database, change: Callable[[Rows], Sequence[dict[str, Any]]]) -> None:
    """Replace all entries with what ``change`` makes of them, in a table without constraints."""
    changed = change(entries(database))
    with attack(database) as connection:
        _drop_constraints(connection, database.is_sqlite)
        connection.execute(text("DELETE FROM entries"))
        names = list(changed[0])
        values = ", ".join(f":{name}" for name in names)
        connection.execute(text(f"INSERT INTO entries ({', '.join(names)}) VALUES ({values})"), list(changed))


def _drop_constraints(connection: Connection, is_sqlite: bool) -> None:
    if is_sqlite:
        connection.execute(text("CREATE TABLE copied AS SELECT * FROM entries"))
        connection.execute(text("DROP TABLE entries"))
        connection.execute(text("ALTER TABLE copied RENAME TO entries"))
        return
    found = text(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'entries'::regclass AND contype IN ('p', 'u', 'f')"
    )
    for (name,) in connection.execute(found).all():
        connection.execute(text(f"ALTER TABLE entries DROP CONSTRAINT {name}"))


def forget_tree(database: Database) -> None:
    """Make the tree the one of a ledger that has just begun; the ledger's id stays."""
    empty = "x''" if database.is_sqlite else "''"
    run(
        database,
        "DELETE FROM merkle_leaves",
        "DELETE FROM merkle_nodes",
        "DELETE FROM merkle_checkpoints",
        "UPDATE merkle_trees SET size = 0, checkpoints = 0, settled_leaf_index = 0, awaited_leaf_index = NULL, "
        f"awaited_transaction = NULL, frontier = {empty}",
    )


def dump(database: Database) -> dict[str, Rows]:
    """The state tables."""
    return {
        "budgets": rows(database, "SELECT * FROM budgets ORDER BY id"),
        "reservations": rows(database, "SELECT * FROM reservations ORDER BY id"),
        "limit_requests": rows(database, "SELECT * FROM limit_requests ORDER BY id"),
        "exposed_steps": rows(database, "SELECT * FROM exposed_steps WHERE count <> 0 ORDER BY budget_id, step_hash"),
    }


def rows(database: Database, statement: str) -> Rows:
    """The rows that a query finds."""
    engine = create_engine(database.url)
    try:
        with engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(text(statement))]
    finally:
        engine.dispose()
