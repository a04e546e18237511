"""Compute the state of all budgets ("the books") from their entries, in one pass in the order in which the entries were
written.

This module is pure: the caller reads the entries from a database or from a file. Every entry is checked as soon as it
is read, so a reported fault names the first wrong entry. Only reservations that later entries may still change are kept
in memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import add, sub
from typing import NamedTuple, Protocol

from accounting.canonical import Json, canonical_text
from accounting.errors import AccountingError
from accounting.events import Event
from accounting.events.schedules import resolve_schedules
from accounting.relations import NeighboringRelation
from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord
from app.entries.register import Refused, Register, Told
from app.kit.hash_chain import GENESIS
from app.ledger import rebuild
from app.ledger.rebuild import UNREADABLE, BrokenChain, Chained, History, details_of
from app.ledger.states import BudgetState, ReservationState, plus
from app.tables.states import REGISTER, Amounts, ReservationStatus

# These members have names of their own because every entry is compared with them. Looking up a member in its class each
# time would take longer than the rest of the work.
_CREATE, _RESERVE, _LIMIT = EntryKind.CREATE, EntryKind.RESERVE, EntryKind.LIMIT
_PENDING, _STARTED, _COMMITTED = ReservationStatus.PENDING, ReservationStatus.STARTED, ReservationStatus.COMMITTED


class StoredEntry(Chained, Protocol):
    """A stored entry, with the columns that state its chain and its place."""

    @property
    def leaf_index(self) -> int: ...
    @property
    def budget_id(self) -> str: ...
    @property
    def sequence(self) -> int: ...


class BadPlace(Exception):
    """Reports the first place where the stored ledger differs from what the service wrote.

    Attributes:
        budget_id: The budget whose entry or row is wrong; None if a file is truncated, or contains a line that is not
            an entry.
        sequence: The sequence number of the wrong entry; None if the entries are intact and another table contradicts
            them.
        leaf_index: The position of the stored entry among the entries of all budgets; None if the entry is missing.
        reason: What is wrong, in words.
    """

    def __init__(self, budget_id: str | None, sequence: int | None, leaf_index: int | None, reason: str) -> None:
        super().__init__(reason)
        self.budget_id = budget_id
        self.sequence = sequence
        self.leaf_index = leaf_index
        self.reason = reason


class Charges(Protocol):
    """An observer that is called for each entry about a reservation while the entries are read."""

    def add(
        self,
        leaf_index: int,
        history: History,
        record: EntryRecord,
        before: ReservationState | None,
        after: ReservationState,
    ) -> None:
        """Process an entry about a reservation.

        Args:
            leaf_index: The position of the entry among the entries of all budgets.
            history: The history of the entry's budget, up to and including the entry.
            record: The parsed entry.
            before, after: The reservation before and after the entry; ``before`` is None if the entry created it.
        """


class Known(NamedTuple):
    """A reservation, with the place and the maker of the entry that created it.

    Attributes:
        state: The reservation's state after the last entry about it.
        sequence, principal_id: The sequence number and the principal of the entry that created it.
    """

    state: ReservationState
    sequence: int
    principal_id: str


@dataclass(frozen=True)
class Head:
    """The head of a budget's chain: the sequence number and the hash of its last entry."""

    budget_id: str
    sequence: int
    hash: str


@dataclass
class Account:
    """A budget, as the entries read so far describe it.

    Attributes:
        history: The state that results from the budget's own entries.
        above: The accounts of its ancestors, the parent first.
        used: The amounts that this budget and its descendants use together, which count against the limit.
        makers: For each reservation in ``history``, the sequence number and the principal of the entry that created it.
        exposed: How often each step may have been released by reservations of this budget itself, keyed by the step's
            text.
        steps: The steps that ``exposed`` counts, by their text.
    """

    history: History
    above: tuple[Account, ...]
    used: Amounts
    makers: dict[str, tuple[int, str]] = field(default_factory=dict)
    exposed: Counter[str] = field(default_factory=Counter)
    steps: dict[str, Event] = field(default_factory=dict)

    @property
    def head(self) -> Head:
        """Return the head of the budget's chain."""
        return Head(self.history.budget_id, self.history.sequence, self.history.head_hash)

    @property
    def path(self) -> str:
        """Return the ids of the budgets from the root to this one, as one text."""
        return "/".join([account.history.budget_id for account in (*reversed(self.above), self)])

    @property
    def terms(self) -> Mapping[str, Json]:
        """Return the terms with which the budget was opened."""
        return details_of(self.history.made)

    def known(self, reservation_id: str) -> Known:
        """Return a reservation that is still held in memory."""
        return Known(self.history.reservations[reservation_id], *self.makers[reservation_id])


class Books:
    """The state of all budgets, built from the entries of whole trees of budgets and of the register.

    Pass the entries in the order of their leaf indices.

    Args:
        may_be_corrected: The ids of the committed reservations that a later entry may correct; None if they are not
            known in advance.
        charges: The observer of every entry about a reservation.
    """

    def __init__(self, may_be_corrected: Container[str] | None = None, charges: Charges | None = None) -> None:
        self._charges = charges
        self.accounts: dict[str, Account] = {}
        self.register = Register()
        self.entries = 0
        self._may_be_corrected = may_be_corrected

    def read(self, entry: StoredEntry) -> EntryRecord:
        """Return the parsed record of the next entry, after checking that the entry follows in its chain. Then pass
        both to `enter`.

        Raises:
            BadPlace: the entry does not follow the one before it.
        """
        end = self.end_of(entry.budget_id)
        place, head = (1, GENESIS) if end is None else (end.sequence + 1, end.hash)
        try:
            record = rebuild.checked_record(entry, place, head)
        except BrokenChain as broken:
            raise _bad_link(entry, broken) from None
        if record.budget_id != entry.budget_id:
            raise beside(entry, record, "budget_id")
        if record.sequence != entry.sequence:
            raise beside(entry, record, "sequence")
        return record

    def end_of(self, budget_id: str) -> Head | None:
        """Return the head of a budget's chain or of the register's chain; None if the chain has no entry."""
        if budget_id == REGISTER:
            register = self.register
            return Head(REGISTER, register.sequence, register.head_hash) if register.sequence else None
        account = self.accounts.get(budget_id)
        return None if account is None else account.head

    def events_of(self, record: EntryRecord) -> tuple[Event, ...] | None:
        """Return the events of an entry that was passed to `read` but not yet to `enter`: its own events, or those of
        the entry that it refers to.

        Return None if the reservation is unknown; `enter` then refuses the entry.
        """
        account = self.accounts.get(record.budget_id)
        if record.events or record.refers_to is None or record.reservation_id is None or account is None:
            return record.events
        reservation = account.history.reservations.get(record.reservation_id)
        if record.kind is EntryKind.CORRECT:
            return ()
        return None if reservation is None else reservation.events

    def enter(self, entry: StoredEntry, record: EntryRecord) -> Known | Told | None:
        """Apply the entry.

        Returns:
            The reservation or the register's subject that the entry is about, if no later entry can change it. This
            object then forgets it. Otherwise None.

        Raises:
            BadPlace: the ledger would not have written this entry.
        """
        self.entries += 1
        try:
            if record.budget_id == REGISTER:
                return self._enter_register(record, entry.hash)
            if record.kind is _CREATE:
                self._open(record, entry.hash)
                return None
            return self._move(self.accounts[record.budget_id], record, entry)
        except BrokenChain as broken:
            raise BadPlace(entry.budget_id, broken.sequence, entry.leaf_index, broken.reason) from None

    def unsettled(self) -> Iterator[Known]:
        """Yield the reservations that `enter` has not returned."""
        for account in self.accounts.values():
            yield from map(account.known, account.history.reservations)

    def states(self) -> dict[str, BudgetState]:
        """Return the current states of all budgets by id. Each includes the charges to the budget's descendants."""
        totals: dict[str, list[Amounts]] = {}
        for budget_id, account in self.accounts.items():
            own = account.history
            totals[budget_id] = [own.spent, own.started, own.pending]
            for level in account.above:
                # An ancestor was opened before this budget, so its total already exists.
                amounts = totals[level.history.budget_id]
                amounts[:] = map(plus, amounts, (own.spent, own.started, own.pending))
        return {budget_id: self._state(budget_id, *amounts) for budget_id, amounts in totals.items()}

    def heads(self) -> list[Head]:
        """Return the heads of all chains."""
        register = self.end_of(REGISTER)
        return [*(account.head for account in self.accounts.values()), *([] if register is None else [register])]

    def digest(self) -> str:
        """Return one hash that covers all entries so far (`digest_of`)."""
        return digest_of(self.heads())

    def check_ends(self, ends: Iterable[Head], source: str) -> None:
        """Check that the heads of all chains are the ones that another source gives.

        Args:
            ends: The heads that the source gives.
            source: The name of the source, which the error's ``reason`` quotes. Its placeholder ``{whose}`` is replaced
                by the owner of the chain.

        Raises:
            BadPlace: a chain has too few or too many entries.
        """

        def says(budget_id: str) -> str:
            return source.format(whose="register's" if budget_id == REGISTER else "budget's")

        checked = set()
        for end in ends:
            checked.add(end.budget_id)
            found_end = self.end_of(end.budget_id)
            found = 0 if found_end is None else found_end.sequence
            if found < end.sequence:
                reason = f"the entry is missing: {says(end.budget_id)} says that entry {end.sequence} is the last one"
                raise BadPlace(end.budget_id, found + 1, None, reason)
            if found > end.sequence:
                reason = (
                    f"the entry is one too many: {says(end.budget_id)} says that entry {end.sequence} is the last one"
                )
                raise BadPlace(end.budget_id, end.sequence + 1, None, reason)
            if found_end is None or found_end.hash != end.hash:
                reason = f"{says(end.budget_id)} says that the last entry has another hash"
                raise BadPlace(end.budget_id, found, None, reason)
        for head in self.heads():
            if head.budget_id not in checked:
                what = "no register" if head.budget_id == REGISTER else "no such budget"
                raise BadPlace(head.budget_id, 1, None, f"{says(head.budget_id)} knows {what}")

    def _state(self, budget_id: str, spent: Amounts, started: Amounts, pending: Amounts) -> BudgetState:
        history = self.accounts[budget_id].history
        state = BudgetState(budget_id, history.filter, history.relation, spent, started, pending)
        return replace(state, overdrawn=state.headroom < 0)

    def _enter_register(self, record: EntryRecord, hashed: str) -> Told | None:
        try:
            return self.register.enter(record, hashed)
        except Refused as refused:
            raise BrokenChain(record.sequence, str(refused)) from None
        except UNREADABLE as error:
            raise rebuild.unreadable(record, error) from None

    def _open(self, record: EntryRecord, hashed: str) -> None:
        history = rebuild.opened(record)
        history.head_hash = hashed
        above: tuple[Account, ...] = ()
        if history.parent_id is not None:
            parent = self.accounts.get(history.parent_id)
            if parent is None:
                raise BadPlace(
                    history.parent_id, 1, None, (f"the budget is missing: {record.budget_id} was opened under it")
                )
            above = (parent, *parent.above)
            try:
                history.filter.check_child_of(parent.history.filter)
            except AccountingError:
                raise BrokenChain(
                    record.sequence, ("the budget's filter has another kind than the filter of the budget above it")
                ) from None
        account = Account(history, above, history.filter.zero)
        # Entries of version 1 state no path, because budgets did not form trees then.
        if details_of(record).get("path", account.path) != account.path:
            raise BrokenChain(record.sequence, "the budget's path does not continue the path of the budget above it")
        self.accounts[record.budget_id] = account

    def _move(self, account: Account, record: EntryRecord, entry: StoredEntry) -> Known | None:
        history = account.history
        before, after = rebuild.replay(history, record, entry.hash)
        history.sequence, history.head_hash = record.sequence, entry.hash
        if self._charges is not None and after is not None:
            self._charges.add(entry.leaf_index, history, record, before, after)
        path = (account, *account.above)
        was, now = _used(before), _used(after)
        if was != now:
            for level in path:
                level.used = level.used if was is None else tuple(map(sub, level.used, was))
                level.used = level.used if now is None else tuple(map(add, level.used, now))
        _check_limit(path, record)
        if after is None:
            return None
        if before is None:
            account.makers[after.id] = (record.sequence, record.principal_id)
        _expose(account, before, after, record.sequence)
        return self._settled(account, after)

    def _settled(self, account: Account, state: ReservationState) -> Known | None:
        status = state.status
        if status is _PENDING or status is _STARTED:
            return None
        if status is _COMMITTED and (self._may_be_corrected is None or state.id in self._may_be_corrected):
            return None
        del account.history.reservations[state.id]
        return Known(state, *account.makers.pop(state.id))


def digest_of(heads: Iterable[Head]) -> str:
    """Return one hash of the heads of all chains. Ledgers with the same hash hold the same entries.

    The hash is SHA-256 over one line ``<budget id> <sequence> <hash>\\n`` for each budget, in the order of their ids.
    """
    lines = sorted(f"{head.budget_id} {head.sequence} {head.hash}\n" for head in heads)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def beside(entry: StoredEntry, record: EntryRecord, column: str) -> BadPlace:
    """Return the `BadPlace` error for a column that contradicts the entry's bytes."""
    reason = f"the column {column} differs from the entry's bytes"
    return BadPlace(record.budget_id, record.sequence, entry.leaf_index, reason)


def _bad_link(entry: StoredEntry, broken: BrokenChain) -> BadPlace:
    """Return the `BadPlace` error for an entry that does not follow the one before it."""
    record = rebuild.said_by(entry)
    if record is not None and record.budget_id != entry.budget_id:
        return beside(entry, record, "budget_id")
    if record is not None and entry.sequence == record.sequence > broken.sequence:
        reason = f"the entry is missing: the next stored entry is {record.sequence}"
        return BadPlace(entry.budget_id, broken.sequence, None, reason)
    return BadPlace(entry.budget_id, broken.sequence, entry.leaf_index, broken.reason)


def _used(reservation: ReservationState | None) -> Amounts | None:
    """Return the amounts of a reservation that count against the limit; None if there are none."""
    if reservation is None:
        return None
    status = reservation.status
    return reservation.cost if status is _PENDING or status is _STARTED else reservation.charged


def _check_limit(path: tuple[Account, ...], record: EntryRecord) -> None:
    if record.kind is _RESERVE or record.tail is not None:
        for level in path:
            if not level.history.filter.admits(level.used):
                raise BrokenChain(record.sequence, f"the entry exceeds the limit of {level.history.budget_id}")
    elif record.kind is _LIMIT and not path[0].history.filter.admits(path[0].used):
        raise BrokenChain(record.sequence, "the entry sets a limit below what is used")


def _expose(account: Account, before: ReservationState | None, after: ReservationState, sequence: int) -> None:
    if after.status is _PENDING:
        return
    was, now = () if before is None else before.exposed_events, after.exposed_events
    if was is now or was == now:
        return
    try:
        for sign, events in ((-1, was), (1, now)):
            for said, step, count in _steps(events, account.history.relation):
                account.exposed[said] += sign * count
                account.steps[said] = step
    except AccountingError as error:
        raise BrokenChain(
            sequence, (f"the entry's events cannot be accounted for under the budget's relation ({error.code})")
        ) from None


@lru_cache(maxsize=4096)
def _steps(events: tuple[Event, ...], relation: NeighboringRelation) -> tuple[tuple[str, Event, int], ...]:
    """Return each different step of the events: its text, the step, and how often it occurs."""
    counted = [(Event(event.mechanism, event.sampling), event.count) for event in resolve_schedules(events, relation)]
    return tuple((canonical_text(step.to_json()), step, count) for step, count in counted)
