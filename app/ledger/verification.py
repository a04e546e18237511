"""Verify the books in a database: every entry, every column beside its bytes, every row of the state tables.

There is one pass over the entries in the order in which they were written, and one over the leaves of their tree. The
row of a resolved reservation is compared as soon as its last entry has been read, and then forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from accounting.events import Event
from app.entries.kinds import WITHOUT_A_KEY
from app.entries.records import EntryRecord, mechanisms_of
from app.entries.register import Told
from app.entries.statements import ENTRIES
from app.ledger import books_repository as repository
from app.ledger import tables
from app.ledger.books import BadPlace, Books, Charges, Head, Known, beside
from app.ledger.books_repository import REPEATED, EntryRow
from app.ledger.checkpoints import Checkpoint
from app.ledger.register_verification import RegisterComparison
from app.ledger.statements import BUDGETS, RESERVATIONS
from app.ledger.stored_values import WrongKind, is_misread, look_for_wrong_kinds
from app.ledger.tables import Comparison
from app.ledger.tree_verification import TreeVerification
from app.ledger.verdicts import Past, TreeHead, Verdict

_SETTLED_AT_ONCE = 250
_REPEATED = len(REPEATED)


def verify(
    session: Session,
    root_id: str = "",
    past: Past | None = None,
    kept: Checkpoint | None = None,
    charges: Charges | None = None,
) -> Verdict:
    """Verify that the books in the session's snapshot are what the ledger wrote.

    Args:
        session: A read session on a fixed snapshot.
        root_id: The root of the tree of budgets to look at; "" for all, and for the tree over all entries.
        past: The entries of an older export.
        kept: A checkpoint that was kept elsewhere; only together with all budgets.
        charges: The observer of every entry about a reservation, such as `app.ledger.price_verification`.
    """
    books = Books(charges=charges)
    try:
        look_for_wrong_kinds(session, repository.STATE_TABLES, of=is_misread)
        books = Books(repository.corrected_reservations(session, root_id), charges)
        return Verdict.good(books, _check(session, books, root_id, past, kept))
    except BadPlace as bad:
        return Verdict.bad(books, bad)
    except WrongKind as wrong:
        return Verdict.bad(books, BadPlace(None, None, None, str(wrong)))
    except (TypeError, ValueError, OverflowError) as error:
        # An SQLite column accepts values of every type, and reading a wrong one fails before it can be compared.
        return Verdict.bad(books, BadPlace(None, None, None, _wrong_kind(session, error)))


def _wrong_kind(session: Session, error: Exception) -> str:
    try:
        look_for_wrong_kinds(session, (ENTRIES, *repository.STATE_TABLES))
    except WrongKind as wrong:
        return str(wrong)
    return f"a stored value is not of its column's kind ({type(error).__name__})"


def _check(session: Session, books: Books, root_id: str, past: Past | None, kept: Checkpoint | None) -> TreeHead | None:
    tree = None if root_id else TreeVerification(session)
    reader = _Reader(session, books, past, tree)
    reader.read(root_id)
    rows = repository.budgets(session, root_id)
    ends = [Head(row.id, row.sequence, row.head_hash) for row in (*rows, *repository.register(session, root_id))]
    books.check_ends(ends, "the {whose} row")
    if past is not None:
        past.check_nothing_is_missing(books)
    head = None if tree is None else tree.check(kept)
    reader.check_reservations(root_id)
    if not root_id:
        reader.check_registered()
    reader.check_principals()
    _check_budgets(session, books, rows)
    for budget_id, reason in chain(
        tables.limit_request_faults(session, books, root_id), tables.exposed_faults(session, books, root_id)
    ):
        raise BadPlace(budget_id, None, None, reason)
    return head


class _Reader:
    """Read the entries, and compare each reservation's row with them."""

    def __init__(self, session: Session, books: Books, past: Past | None, tree: TreeVerification | None) -> None:
        self._session, self._books, self._past, self._tree = session, books, past, tree
        self._comparison = Comparison(session, RESERVATIONS)
        self._registered = RegisterComparison(session)
        self._principals: dict[int, set[str]] = defaultdict(set)
        self._settled: list[tuple[Known, EntryRow | None]] = []
        self._reservations = 0
        self._bad_row: BadPlace | None = None

    def read(self, root_id: str) -> None:
        """Read the entries. A wrong row is reported only later, because a wrong entry may be the cause and is then
        named instead."""
        for entry in repository.entries(self._session, root_id):
            self._read(entry)

    def check_reservations(self, root_id: str) -> None:
        """Check the rows of all reservations.

        Raises:
            BadPlace: one is not what its entries say.
        """
        for known in self._books.unsettled():
            self._settle(known, None)
        self._check_settled()
        if self._bad_row is not None:
            raise self._bad_row
        if repository.count_reservations(self._session, root_id) == (self._reservations, self._reservations):
            return  # Each reservation that entries made has its row, so equal counts mean that no other rows exist.
        row = repository.reservation_without_entry(self._session, root_id)
        if row is not None:
            raise BadPlace(row.budget_id, row.sequence, None, f"the reservation {row.id} has no entry that made it")
        raise BadPlace(None, None, None, "a reservation has more than one row")

    def _read(self, entry: EntryRow) -> None:
        record = self._books.read(entry)
        _check_columns(entry, record, self._books.events_of(record))
        if self._past is not None:
            self._past.check(entry)
        if self._tree is not None:
            self._tree.add(entry)
        self._principals[record.version].add(record.principal_id)
        done = self._books.enter(entry, record)
        if isinstance(done, Told):
            self._registered.add(done)
        elif done is not None:
            self._settle(done, entry)

    def check_registered(self) -> None:
        """Check the rows of all data sets, keys, runs, sweeps, audits and webhooks.

        Raises:
            BadPlace: one is not what the register says, or is missing, or was never registered.
        """
        for told in self._books.register.told.values():
            self._registered.add(told)
        self._registered.check(self._books.register.subjects)

    def check_principals(self) -> None:
        """Check that everybody who made an entry has or had a key.

        Raises:
            BadPlace: an entry names somebody who never had a key.
        """
        keys = repository.key_ids(self._session)
        # The oldest entries are from before keys existed.
        seen = set().union(*(who for version, who in self._principals.items() if keys or version > 1))
        unknown = seen - WITHOUT_A_KEY - keys
        if unknown:
            who = min(unknown)
            place = repository.first_entry_of(self._session, who)
            raise BadPlace(
                place.budget_id, place.sequence, place.leaf_index, (f"the principal {who} of the entry never had a key")
            )

    def _settle(self, known: Known, entry: EntryRow | None) -> None:
        self._reservations += 1
        self._settled.append((known, entry))
        if len(self._settled) >= _SETTLED_AT_ONCE:
            self._check_settled()

    def _check_settled(self) -> None:
        settled, self._settled = self._settled, []
        rows = repository.reservations(self._session, [known for known, _ in settled])
        for known, entry in settled:
            reason = self._fault(known, rows.get(known.state.id))
            if reason is not None and self._bad_row is None:
                sequence, leaf_index = (None, None) if entry is None else (entry.sequence, entry.leaf_index)
                self._bad_row = BadPlace(known.state.budget_id, sequence, leaf_index, reason)

    def _fault(self, known: Known, row: Row[Any] | None) -> str | None:
        if row is None:
            return f"the reservation {known.state.id} has no row"
        column = self._comparison.different(row, tables.reservation_row(known))
        return column and f"the column {column} of the reservation {known.state.id} is not what its entries say"


def _check_columns(entry: EntryRow, record: EntryRecord, events: tuple[Event, ...] | None) -> None:
    found = entry[:_REPEATED]
    said = (
        record.id,
        record.sequence,
        record.kind,
        record.reservation_id,
        record.subject_id,
        record.principal_id,
        record.purpose,
        entry.mechanisms if events is None else mechanisms_of(events),
        record.recorded_at,
    )
    if found != said:
        raise beside(entry, record, next(name for name, a, b in zip(REPEATED, found, said, strict=True) if a != b))


def _check_budgets(session: Session, books: Books, rows: Sequence[Row[Any]]) -> None:
    states, comparison = books.states(), Comparison(session, BUDGETS)
    for row in rows:
        column = comparison.different(row, tables.budget_row(books.accounts[row.id], states[row.id]))
        if column is not None:
            raise BadPlace(
                row.id, None, None, (f"the column {column} of the row differs from what the entries add up to")
            )
