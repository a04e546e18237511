"""Count the daily writes of each key to the books: they are read under a lock, judged and counted in one transaction.

The rows of a key and a day, and of the day before, are locked before anything is decided, so that transactions of one
key take turns, in one process and in several, even around midnight. A transaction that also locks the register or
budgets locks these first. Writes that are rolled back are not counted. An entry counts for the day on which it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import (
    Connection,
    Date,
    String,
    Table,
    bindparam,
    delete,
    func,
    literal,
    select,
    text,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from app.db.lists import as_list
from app.entries.kinds import WITHOUT_A_KEY, EntryKind
from app.entries.quotas import BEGINNINGS, Quota, Quotas, day_of
from app.fence.watching import settings_of
from app.problems import Problem
from app.tables.ledger import Entry, LedgerUse, Reservation

USES = cast(Table, LedgerUse.__table__)
_ENTRIES = cast(Table, Entry.__table__)
_RESERVATIONS = cast(Table, Reservation.__table__)

_ADD = (
    update(USES)
    .where(USES.c.principal_id == bindparam("b_id"), USES.c.day == bindparam("b_day"))
    .values(entries=USES.c.entries + bindparam("entries"), bytes=USES.c.bytes + bindparam("bytes"))
)
_FORGET = delete(USES).where(USES.c.principal_id == bindparam("b_id"), USES.c.day < bindparam("b_day"))
_OPEN = select(func.count()).where(
    _RESERVATIONS.c.principal_id == bindparam("principal_id"), _RESERVATIONS.c.resolved_at.is_(None)
)
# The condition must be the same as that of the index, word for word.
_EXTENSIONS = select(func.count()).where(
    _ENTRIES.c.reservation_id == bindparam("reservation_id"), text("kind = 'extend'")
)


def _locking(dialect: str) -> Any:
    """Lock the rows of some keys and two days in order, after making missing ones, and read them."""
    if dialect == "sqlite":
        keys = func.json_each(bindparam("ids")).table_valued("value")
    else:
        keys = func.unnest(bindparam("ids", type_=ARRAY(String))).table_valued("value").render_derived()
    days = union_all(*(select(bindparam(name, type_=Date).label("day")) for name in ("before", "day"))).subquery()
    zero = literal(0)
    rows = select(keys.c.value, days.c.day, zero, zero).select_from(keys.join(days, true())).where(text("true"))
    rows = rows.order_by(keys.c.value, days.c.day)
    made = (sqlite if dialect == "sqlite" else postgresql).insert(USES)
    made = made.from_select(["principal_id", "day", "entries", "bytes"], rows)
    found = made.on_conflict_do_update(index_elements=["principal_id", "day"], set_={"entries": USES.c.entries})
    return found.returning(USES.c.principal_id, USES.c.day, USES.c.entries, USES.c.bytes)


_LOCK = {dialect: _locking(dialect) for dialect in ("sqlite", "postgresql")}


@dataclass
class _Use:
    """The use of a key: what the database has, and what the transaction adds."""

    entries: int
    bytes: int
    more_entries: int = 0
    more_bytes: int = 0
    open_reservations: int | None = None


class Meter:
    """Count the entries of one transaction, and refuse those beyond a key's quotas.

    Args:
        connection: The transaction's connection to a database that a fence watches.
        now: The time of the entries.
    """

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection, self._now, self._day = connection, now, day_of(now)
        self._quotas = Quotas.of(settings_of(connection))
        self._uses: dict[str, _Use] = {}
        self._extensions: dict[str, int] = {}

    def lock(self, principal_ids: Iterable[str]) -> None:
        """Lock and read what these keys have written today.

        Requires: all other locks of the transaction are held.
        """
        bounded = sorted(set(principal_ids) - WITHOUT_A_KEY - self._uses.keys())
        if not bounded:
            return
        dialect = self._connection.dialect.name
        before = self._day - timedelta(days=1)
        values = {"ids": as_list(dialect, bounded), "day": self._day, "before": before}
        for principal_id, day, entries, size in self._connection.execute(_LOCK[dialect], values).all():
            if day != self._day:
                continue
            self._uses[principal_id] = _Use(entries, size)
            if not entries:
                # Yesterday may still be today for another server, which locks the row of the day before, too.
                forgotten = {"b_id": principal_id, "b_day": before - timedelta(days=1)}
                self._connection.execute(_FORGET, forgotten)

    def take(self, row: Mapping[str, Any]) -> Problem | None:
        """Count an entry that the transaction is about to write, unless a quota refuses it.

        Args:
            row: The columns of the entry. Its maker is locked, or has no quotas.

        Returns:
            The refusal (429), or None if it is counted.
        """
        kind = EntryKind(row["kind"])
        if kind is EntryKind.EXTEND:
            self._read_extensions(row["reservation_id"])
        use = self._uses.get(row["principal_id"])
        if use is None:
            assert row["principal_id"] in WITHOUT_A_KEY, "the use of a key must be read first"
        else:
            if kind in BEGINNINGS:
                for quota, used in self._used(use, kind, row):
                    if self._quotas.met(quota, used):
                        return self._quotas.refusal(quota, used, self._now)
            use.more_entries += 1
            use.more_bytes += len(row["canonical"])
            if kind is EntryKind.RESERVE and use.open_reservations is not None:
                use.open_reservations += 1
        if kind is EntryKind.EXTEND:
            self._extensions[row["reservation_id"]] += 1
        return None

    def _read_extensions(self, reservation_id: str) -> None:
        """Read how often a reservation was extended before this transaction, by anybody."""
        if reservation_id not in self._extensions:
            values = {"reservation_id": reservation_id}
            self._extensions[reservation_id] = self._connection.execute(_EXTENSIONS, values).scalar_one()

    def write(self) -> None:
        """Write what was counted since the last time."""
        added = []
        for principal_id, use in self._uses.items():
            if use.more_entries:
                more = {"entries": use.more_entries, "bytes": use.more_bytes}
                added.append({"b_id": principal_id, "b_day": self._day, **more})
                use.entries, use.bytes = use.entries + use.more_entries, use.bytes + use.more_bytes
                use.more_entries = use.more_bytes = 0
        if added:
            self._connection.execute(_ADD, added)

    def _used(self, use: _Use, kind: EntryKind, row: Mapping[str, Any]) -> Iterable[tuple[Quota, int]]:
        """Yield the use of each quota that such an entry may reach. Counting stops when the caller stops."""
        yield Quota.ENTRIES, use.entries + use.more_entries
        yield Quota.BYTES, use.bytes + use.more_bytes
        if kind is EntryKind.RESERVE and self._quotas.open_reservations:
            if use.open_reservations is None:
                values = {"principal_id": row["principal_id"]}
                use.open_reservations = self._connection.execute(_OPEN, values).scalar_one()
            yield Quota.OPEN_RESERVATIONS, use.open_reservations
        if kind is EntryKind.EXTEND:
            yield Quota.EXTENSIONS, self._extensions[row["reservation_id"]]


def used_by(session: Session, principal_id: str, now: datetime) -> dict[Quota, int]:
    """Return a key's use of its quotas."""
    columns = (USES.c.entries, USES.c.bytes)
    statement = select(*columns).where(USES.c.principal_id == principal_id, USES.c.day == day_of(now))
    today = session.execute(statement).one_or_none()
    is_open = session.execute(_OPEN, {"principal_id": principal_id}).scalar_one()
    return {
        Quota.ENTRIES: 0 if today is None else today.entries,
        Quota.BYTES: 0 if today is None else today.bytes,
        Quota.OPEN_RESERVATIONS: is_open,
    }
