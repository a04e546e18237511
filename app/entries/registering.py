"""Make entries of the register, in the transaction that writes the rows, under the lock of the register's row.

A transaction that also locks budgets takes this lock first, with `lock`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, Row, Table, select, update
from sqlalchemy.orm import Session

from accounting import ENGINE_VERSION
from accounting.canonical import Json
from app.entries.kinds import SERVICE, EntryKind
from app.entries.metering import Meter
from app.entries.records import EntryRecord, record_from_canonical
from app.entries.register import Refused, subjects_in, told_by
from app.entries.registered import REGISTERED, Registered
from app.entries.statements import ENTRIES, entry_row, insert_entries
from app.entries.subjects import FIRST_SUBJECTS, Subject
from app.fence.marks import Head
from app.fence.service import touch
from app.kit.hash_chain import chain_hash
from app.kit.ids import new_id
from app.tables import ledger as tables
from app.tables.states import REGISTER

REGISTERS = cast(Table, tables.Register.__table__)
#: The number of rows that are read at once when rows that are older than the register are entered.
_AT_ONCE = 500


@dataclass(frozen=True)
class Registration:
    """A fact to enter.

    Attributes:
        kind: Whether something began, changed or ended.
        subject, subject_id: The subject. Its row is already written, and the entry says what the row says.
        principal_id: The principal who did it.
    """

    kind: EntryKind
    subject: Subject
    subject_id: str
    principal_id: str = SERVICE


def lock(session: Session) -> Head:
    """Lock the register until the transaction ends, and return the end of its chain."""
    row = session.execute(select(REGISTERS).with_for_update()).one()
    return Head(row.sequence, row.head_hash)


def enter(session: Session, now: datetime, registrations: Sequence[Registration]) -> None:
    """Enter what has happened to rows that the transaction has written.

    Rows from before there was a register are entered first, once.

    Args:
        session: A write session, whose database a fence watches.
        now: The time of the entries.
        registrations: The facts, in the order of their entries.

    Raises:
        Problem: 429 ``quota_exceeded``.
    """
    session.flush()
    writer = _Writer(session, now)
    writer.meter.lock(each.principal_id for each in registrations)
    writer.begin(registrations)
    for each in registrations:
        registered = REGISTERED[each.subject]
        row = session.execute(select(registered.table).where(registered.table.c.id == each.subject_id)).one()
        writer.add(each.kind, registered, row, each.principal_id)
    writer.write()


def has_begun(session: Session) -> bool:
    """Return whether the rows from before the register recorded their table are entered."""
    return REGISTERED.keys() <= _subjects(session)


def begin(session: Session, now: datetime) -> None:
    """Enter the rows from before there was a register, unless it has begun."""
    writer = _Writer(session, now)
    writer.begin(())
    writer.write()


def _subjects(session: Session) -> frozenset[Subject]:
    """Return the subjects of which every row is registered.

    Raises:
        app.entries.register.UNREADABLE: an entry about the register itself is not what the service wrote.
    """
    columns = (ENTRIES.c.canonical, ENTRIES.c.previous_hash, ENTRIES.c.hash)
    statement = select(*columns).where(ENTRIES.c.budget_id == REGISTER, ENTRIES.c.subject_id == REGISTER)
    about = session.execute(statement.order_by(ENTRIES.c.sequence)).all()
    if any(chain_hash(row.previous_hash, row.canonical) != row.hash for row in about):
        raise Refused("the bytes of an entry about the register do not match its hash")
    itself = told_by((record_from_canonical(row.canonical), row.hash) for row in about)
    if itself is not None:
        return subjects_in(itself.columns)
    return FIRST_SUBJECTS if session.scalar(select(REGISTERS.c.sequence > 0)) else frozenset()


class _Writer:
    """Make entries, and write them together."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session, self._now = session, now
        self._base = self._head = lock(session)
        self._rows: list[dict[str, Any]] = []
        self.meter = Meter(session.connection(), now)

    def begin(self, registrations: Sequence[Registration]) -> None:
        """Enter all rows of subjects that the register does not record yet, except those that are about to be entered
        anyway."""
        before = _subjects(self._session)
        more = [registered for subject, registered in REGISTERED.items() if subject not in before]
        if not more:
            return
        has_itself = bool(before - FIRST_SUBJECTS)
        says: dict[str, Json] = {"subjects": sorted(before | {registered.subject for registered in more})}
        if not has_itself:
            says["id"] = REGISTER
        self._add(EntryKind.CHANGE if has_itself else EntryKind.REGISTER, Subject.REGISTER, REGISTER, says, SERVICE)
        for registered in more:
            self.add_all(registered, registrations)

    def add_all(self, registered: Registered, registrations: Sequence[Registration]) -> None:
        """Make the entries of all rows of a table in their present state, except those that are about to be made
        anyway."""
        entered = {(each.kind, each.subject_id) for each in registrations}
        for row in _all(self._session.connection(), registered):
            if (EntryKind.REGISTER, row.id) in entered:
                continue
            self.add(EntryKind.REGISTER, registered, row, SERVICE)
            has_ended = registered.ends is not None and row._mapping[registered.ends] is not None
            if has_ended and (EntryKind.END, row.id) not in entered:
                self.add(EntryKind.END, registered, row, SERVICE)

    def add(self, kind: EntryKind, registered: Registered, row: Row[Any], principal_id: str) -> None:
        """Make the next entry from a row.

        Raises:
            Problem: 429 ``quota_exceeded``.
        """
        self._add(kind, registered.subject, row.id, registered.says(row._asdict(), kind), principal_id)

    def _add(
        self, kind: EntryKind, subject: Subject, subject_id: str, says: dict[str, Json], principal_id: str
    ) -> None:
        details: dict[str, Json] = {"subject": str(subject), "says": says}
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
            subject_id=subject_id,
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
