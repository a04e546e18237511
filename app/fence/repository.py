"""SQL that the fence needs in the ledger's database: the ledger's lives, and the heads of its chains."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from functools import cache
from typing import Any, cast

from sqlalchemy import CompoundSelect, Connection, Table, insert, literal, select, text, union_all
from sqlalchemy.dialects import postgresql, sqlite

from app.db.lists import among, as_list
from app.db.migrate import head_revision
from app.fence.marks import Head
from app.tables.ledger import Budget, Entry, LedgerLife, MerkleTree, Register
from app.tables.runs import Run

BUDGETS = cast(Table, Budget.__table__)
ENTRIES = cast(Table, Entry.__table__)
RUNS = cast(Table, Run.__table__)
REGISTERS = cast(Table, Register.__table__)
_REVISION = text("SELECT version_num FROM alembic_version")


def ledger_id(connection: Connection) -> str:
    """Return the random id that the ledger got when its database was created; "" if somebody has deleted it."""
    return connection.scalar(select(MerkleTree.ledger_id)) or ""


def has_own_schema(connection: Connection) -> bool:
    """Return whether the tables are those of this version; another version may have changed them meanwhile."""
    return bool(connection.scalar(_REVISION) == head_revision())


def newest_life(connection: Connection) -> tuple[int, str] | None:
    """Return the number and the id of the ledger's current life; None if there never was a fence."""
    statement = select(LedgerLife.number, LedgerLife.life).order_by(LedgerLife.number.desc()).limit(1)
    row = connection.execute(statement).one_or_none()
    return None if row is None else (row.number, row.life)


def enter_first_life(connection: Connection, life: str, moment: datetime) -> None:
    """Insert the row of the ledger's first life. If another server has inserted one, that row stays."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    row = {"number": 1, "life": life, "began_at": moment}
    connection.execute(dialect.insert(LedgerLife).values(row).on_conflict_do_nothing())


def enter_life(connection: Connection, number: int, life: str, moment: datetime, loss: dict[str, Any]) -> None:
    """Insert the row of a later life, with the entries that were known to be missing when it began."""
    connection.execute(insert(LedgerLife).values(number=number, life=life, began_at=moment, loss=loss))


def heads(connection: Connection, ids: Collection[str] | None = None) -> dict[str, Head]:
    """Return the ends of the chains of some budgets and of the register, or of all budgets.

    The runs of a sweep share its entries. So that no run is started twice, the start of each run counts as a separate
    chain. It has one entry, whose hash is the name of the run's noise stream.
    """
    dialect = connection.dialect.name
    values = {} if ids is None else {"ids": as_list(dialect, list(ids))}
    rows = connection.execute(_heads(dialect, of_all=ids is None), values)
    return {row[0]: Head(row[1], row[2]) for row in rows}


@cache
def _heads(dialect: str, *, of_all: bool) -> CompoundSelect[Any]:
    """Return the statement of `heads`. Every writing transaction needs it, and building it takes longer than running
    it."""
    chains = select(BUDGETS.c.id, BUDGETS.c.sequence, BUDGETS.c.head_hash)
    register = select(REGISTERS.c.id, REGISTERS.c.sequence, REGISTERS.c.head_hash).where(REGISTERS.c.sequence > 0)
    starts = select(RUNS.c.id, literal(1), RUNS.c.stream_id)
    starts = starts.where(RUNS.c.sweep_id.is_not(None), RUNS.c.stream_id.is_not(None))
    if not of_all:
        chains = chains.where(among(dialect, BUDGETS.c.id, "ids"))
        starts = starts.where(among(dialect, RUNS.c.id, "ids"))
        register = register.where(among(dialect, REGISTERS.c.id, "ids"))
    return union_all(chains, register, starts)


def entries_between(connection: Connection, budget_id: str, first: int, last: int) -> Iterator[tuple[str, bytes]]:
    """Return the hashes and the bytes of the entries of a chain from one sequence to another."""
    sequence = ENTRIES.c.sequence
    statement = select(ENTRIES.c.hash, ENTRIES.c.canonical)
    statement = statement.where(ENTRIES.c.budget_id == budget_id, sequence >= first, sequence <= last)
    for row in connection.execute(statement.order_by(sequence), execution_options={"yield_per": 500}):
        yield row.hash, row.canonical
