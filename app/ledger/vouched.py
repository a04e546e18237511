"""Read entries that the fence confirms, so that a run can trust the facts that decide its charge.

Somebody who can write to the database can rewrite an entry together with its hash and the hashes of all later entries.
But then the last hash of the chain differs from the one in the fence. So a process reads a chain once, from its first
entry to the head in the fence, and keeps the hash of each entry. Later it reads only newer entries and the old entries
that it needs. Each old entry must still have the hash that the process kept. The fence never accepts a head that does
not follow from the previous one (`app.fence.marks.compare`).

Entries after the head in the fence must continue the chain. Somebody who can write to the database can append such
entries, too, in anybody's name, but the entries then remain in the ledger for everybody to see.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.context import Context
from app.db.database import Database
from app.entries import registering
from app.entries.records import EntryRecord
from app.entries.register import UNREADABLE, Told, told_by
from app.entries.statements import ENTRIES
from app.fence.marks import Head
from app.fence.watching import fence_of
from app.kit.hash_chain import GENESIS
from app.ledger.books import Known
from app.ledger.rebuild import BrokenChain, Chained, History, checked_record, opened, replay
from app.tables.states import REGISTER

_AT_ONCE = 500
_HASH_BYTES = 32


def vouched_ends(context: Context, chain_ids: Collection[str]) -> Mapping[str, Head]:
    """Return the heads that the fence has for these chains. Older rows are first entered in the register, so that it
    covers all rows.

    Raises:
        Unfenced: the database is behind its fence, or the fence cannot be read or written.
    """
    fence = fence_of(context)
    ends = fence.heads(chain_ids)
    with context.database.read() as session:
        has_begun = registering.has_begun(session)
    if not has_begun:
        with context.database.write() as session:
            registering.begin(session, context.clock())
        ends = fence.heads(chain_ids)
    return ends


class VouchedEntry(NamedTuple):
    """An entry that was checked to belong to its chain.

    Attributes:
        record: What the entry says.
        hash: Its hash.
    """

    record: EntryRecord
    hash: str


class Vouched:
    """Reads the entries that the fence confirms, in the snapshot of one session.

    Args:
        session: A session on a fixed snapshot.
        database: The session's database, for which the process remembers what it has read.
        ends: The heads of the requested chains that the fence had before the snapshot was taken.
    """

    def __init__(self, session: Session, database: Database, ends: Mapping[str, Head]) -> None:
        self._session, self._database, self._ends = session, database, ends

    def told(self, subject_id: str) -> Told | None:
        """Return a subject as the register's entries describe it; None if no entry is about it.

        Raises:
            BrokenChain: the register is not the one that the fence vouches for, or the service would not have made its
                entries.
        """
        about = self._entries(REGISTER, subject_id)
        try:
            return told_by(about)
        except UNREADABLE as error:
            raise BrokenChain(about[-1].record.sequence, str(error)) from None

    def reservation(self, budget_id: str, reservation_id: str) -> tuple[History, Known | None]:
        """Return a budget and one of its reservations, as the budget's entries describe them; the latter is None if no
        entry created it.

        Returns:
            The budget as its first entry describes it, and the reservation.

        Raises:
            BrokenChain: the budget's chain is not the one that the fence vouches for.
        """
        about = self._entries(budget_id, reservation_id)
        history = opened(self._first(budget_id).record)
        for record, hashed in about:
            replay(history, record, hashed)
        if not about:
            return history, None
        made = about[0].record
        return history, Known(history.reservations[reservation_id], made.sequence, made.principal_id)

    def _entries(self, chain_id: str, about: str) -> list[VouchedEntry]:
        """Return the entries of a chain about a subject or reservation, oldest first."""
        with _LOCK:
            chain, behind = self._read(chain_id)
            found = [*self._again(chain_id, chain, chain.places(about)), *behind]
        return [entry for entry in found if _about(entry.record) == about]

    def _first(self, chain_id: str) -> VouchedEntry:
        with _LOCK:
            chain, _ = self._read(chain_id)
            return self._again(chain_id, chain, [1])[0]

    def _read(self, chain_id: str) -> tuple[_Chain, list[VouchedEntry]]:
        """Return the chain up to the head in the fence, and the entries after that head."""
        end = self._ends.get(chain_id)
        if end is None:
            raise BrokenChain(1, "the fence has no record of this chain")
        chains = _CHAINS.setdefault(self._database, {})
        known = chains.get(chain_id, _Chain())
        try:
            behind = self._read_on(chain_id, known, end)
        except BrokenChain:
            if not len(known):
                raise
            # After an acknowledged loss, the chain may have continued differently.
            known = _Chain()
            behind = self._read_on(chain_id, known, end)
        chains[chain_id] = known
        return known, behind

    def _read_on(self, chain_id: str, known: _Chain, end: Head) -> list[VouchedEntry]:
        """Read the entries after the known part of a chain, and add those up to the fence's head to the known part if
        they are right."""
        more, behind = _Chain(), []
        place, hashed = len(known), known.hash_at(len(known))
        for row in self._rows(chain_id, place):
            place += 1
            record = _checked(row, chain_id, place, hashed)
            hashed = row.hash
            if place <= end.sequence:
                more.add(record, hashed)
            else:
                behind.append(VouchedEntry(record, hashed))
        if place < end.sequence:
            raise BrokenChain(place + 1, "the entry is missing, although the fence has a later one")
        is_known = end.sequence <= len(known)
        found = known.hash_at(end.sequence) if is_known else more.hash_at(end.sequence - len(known))
        if found != end.hash:
            raise BrokenChain(end.sequence, "the entry's hash differs from the hash in the fence")
        known.extend(more)
        return behind

    def _rows(self, chain_id: str, after: int) -> Iterator[Chained]:
        sequence = ENTRIES.c.sequence
        statement = select(ENTRIES.c.canonical, ENTRIES.c.previous_hash, ENTRIES.c.hash)
        statement = statement.where(ENTRIES.c.budget_id == chain_id).order_by(sequence).limit(_AT_ONCE)
        while batch := self._session.execute(statement.where(sequence > after)).all():
            yield from batch
            after += len(batch)

    def _again(self, chain_id: str, chain: _Chain, places: Collection[int]) -> list[VouchedEntry]:
        """Read the entries with these sequence numbers again, and check that each still has its hash."""
        if not places:
            return []
        sequence = ENTRIES.c.sequence
        statement = select(sequence, ENTRIES.c.canonical, ENTRIES.c.previous_hash, ENTRIES.c.hash)
        statement = statement.where(ENTRIES.c.budget_id == chain_id, sequence.in_(places))
        rows = {row.sequence: row for row in self._session.execute(statement)}
        found = []
        for place in places:
            row, hashed = rows.get(place), chain.hash_at(place)
            if row is None or row.hash != hashed:
                raise BrokenChain(place, "the entry differs from the one that was read before")
            found.append(VouchedEntry(_checked(row, chain_id, place, chain.hash_at(place - 1)), hashed))
        return found


class _Chain:
    """The hashes of a chain's entries up to a head that the fence had, in about 40 bytes for each entry."""

    def __init__(self) -> None:
        self._hashes, self._subjects = bytearray(), array("q")

    def __len__(self) -> int:
        return len(self._subjects)

    def add(self, record: EntryRecord, hashed: str) -> None:
        """Process the next entry."""
        self._hashes += bytes.fromhex(hashed)
        self._subjects.append(hash(_about(record)))

    def extend(self, more: _Chain) -> None:
        """Process all entries of the next part."""
        self._hashes += more._hashes
        self._subjects.extend(more._subjects)

    def hash_at(self, place: int) -> str:
        """Return the hash of the entry with this sequence number; for 0, the hash that precedes the first entry."""
        end = place * _HASH_BYTES
        return self._hashes[end - _HASH_BYTES : end].hex() if place else GENESIS

    def places(self, about: str) -> list[int]:
        """Return the sequence numbers of the entries about a subject, possibly with a few unrelated ones."""
        subjects = np.frombuffer(self._subjects, dtype=np.int64)
        return [int(place) + 1 for place in np.flatnonzero(subjects == hash(about))]


# What this process has read of each chain, and the lock for it.
_CHAINS: WeakKeyDictionary[Database, dict[str, _Chain]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def _checked(row: Chained, chain_id: str, place: int, before: str) -> EntryRecord:
    record = checked_record(row, place, before)
    if record.budget_id != chain_id:
        raise BrokenChain(place, "the entry belongs to another chain")
    return record


def _about(record: EntryRecord) -> str:
    return record.reservation_id or record.subject_id or record.budget_id
