"""Entering into the register: in the transaction of what is entered, behind the lock of the register's row.

Whoever also locks budgets in the transaction takes this lock first, with `lock`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, Row, Table, select, update
from sqlalchemy.orm import Session

from accounting import ENGINE_VERSION
from accounting.canonical import Json
from app.entries.kinds import SERVICE, EntryKind
from app.entries.metering import Meter
from app.entries.records import EntryRecord
from app.entries.registered import REGISTERED, Registered
from app.entries.statements import entry_row, insert_entries
from app.entries.subjects import Subject
from app.fence.marks import Head
from app.fence.service import touch
from app.kit.ids import new_id
from app.tables import ledger as tables
from app.tables.states import REGISTER

REGISTERS = cast(Table, tables.Register.__table__)
#: Rows that are read at once, where what was there before the register is entered.
_AT_ONCE = 500


@dataclass(frozen=True)
class Registration:
    """Something to be entered.

    Attributes:
        kind: Whether something began, changed or ended.
        subject, subject_id: What it is about. Its row is written already: the entry says what the row says.
        principal_id: Who has done it.
    """

    kind: EntryKind
    subject: Subject
    subject_id: str
    principal_id: str = SERVICE


def lock(session: Session) -> Head:
    """Lock the register until the transaction ends; returns the end of its chain."""
    row = session.execute(select(REGISTERS).with_for_update()).one()
    return Head(row.sequence, row.head_hash)


def enter(session: Session, now: datetime, registrations: Sequence[Registration]) -> None:
    """Enter what has happened to rows that the transaction has written.

    What was there before there was a register is entered first, once.

    Args:
        session: A write session, whose database a fence watches.
        now: The time of the entries.
        registrations: In the order of the entries.

    Raises:
        Problem: 429 ``quota_exceeded``.
    """
    session.flush()
    writer = _Writer(session, now)
    writer.meter.lock(each.principal_id for each in registrations)
    writer.begin({each.subject_id for each in registrations})
    for each in registrations:
        registered = REGISTERED[each.subject]
        row = session.execute(select(registered.table).where(registered.table.c.id == each.subject_id)).one()
        writer.add(each.kind, registered, row, each.principal_id)
    writer.write()


def begin(session: Session, now: datetime) -> None:
    """Enter what was there before there was a register, unless it has begun."""
    writer = _Writer(session, now)
    writer.begin(())
    writer.write()


class _Writer:
    """Puts entries together, and writes them at once."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session, self._now = session, now
        self._base = self._head = lock(session)
        self._rows: list[dict[str, Any]] = []
        self.meter = Meter(session.connection(), now)

    def begin(self, new_ids: Collection[str]) -> None:
        """Enter all rows but the new ones, if the register is empty."""
        if self._base.sequence:
            return
        for registered in REGISTERED.values():
            for row in _all(self._session.connection(), registered):
                if row.id in new_ids:
                    continue
                self.add(EntryKind.REGISTER, registered, row, SERVICE)
                if registered.ends is not None and row._mapping[registered.ends] is not None:
                    self.add(EntryKind.END, registered, row, SERVICE)

    def add(self, kind: EntryKind, registered: Registered, row: Row[Any], principal_id: str) -> None:
        """Make the next entry of what a row says.

        Raises:
            Problem: 429 ``quota_exceeded``.
        """
        details: dict[str, Json] = {"subject": str(registered.subject), "says": registered.says(row._asdict(), kind)}
        record = EntryRecord(
            id=new_id("ent"),
            budget_id=REGISTER,
            sequence=self._head.sequence + 1,
            kind=kind,
            principal_id=principal_id,
            recorded_at=self._now,
            engine_version=ENGINE_VERSION,
            amounts=(),
            details=details,
            subject_id=row.id,
        )
        entry = entry_row(record, self._head.hash)
        refusal = self.meter.take(entry)
        if refusal is not None:
            raise refusal
        self._rows.append(entry)
        self._head = Head(record.sequence, self._rows[-1]["hash"])

    def write(self) -> None:
        """Write the entries, and the end of the chain."""
        if not self._rows:
            return
        connection = self._session.connection()
        insert_entries(connection, self._rows, self.meter)
        connection.execute(update(REGISTERS).values(sequence=self._head.sequence, head_hash=self._head.hash))
        touch(connection, REGISTER, self._base if self._base.sequence else None)


def _all(connection: Connection, registered: Registered) -> Iterator[Row[Any]]:
    table, after = registered.table, ""
    statement = select(table).where(registered.rows(table)).order_by(table.c.id).limit(_AT_ONCE)
    while batch := connection.execute(statement.where(table.c.id > after)).all():
        yield from batch
        after = batch[-1].id
