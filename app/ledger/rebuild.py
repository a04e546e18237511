"""Rebuild the state of a budget from its own entries, and check that the chain of entries is intact.

A charge is an entry only of the budget that it was requested from, not of that budget's ancestors. So the total amounts
of a budget are the sum over its own chain and the chains of all its descendants (`app.ledger.books`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import add, le, sub
from typing import Protocol

from accounting.canonical import Json
from accounting.errors import AccountingError
from accounting.filters import PrivacyFilter, filter_from_json
from accounting.relations import NeighboringRelation
from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord, record_from_canonical
from app.kit.hash_chain import GENESIS, chain_hash
from app.ledger.states import Approval, LimitRequestState, ReservationState, is_prefix, plus
from app.tables.states import REGISTER, Amounts, LimitRequestStatus, ReservationStatus

# These members have names of their own because every entry is compared with them. Looking up a member in its class each
# time would take longer than the rest of the work.
_CREATE, _RESERVE, _START, _EXTEND = EntryKind.CREATE, EntryKind.RESERVE, EntryKind.START, EntryKind.EXTEND
_COMMIT, _VOID, _CORRECT, _LIMIT = EntryKind.COMMIT, EntryKind.VOID, EntryKind.CORRECT, EntryKind.LIMIT
_LOSS = EntryKind.LOSS
_ASK, _APPROVE = EntryKind.ASK, EntryKind.APPROVE
_REFUSE, _WITHDRAW = EntryKind.REFUSE, EntryKind.WITHDRAW
_OF_LIMIT_REQUESTS = frozenset({_ASK, _APPROVE, _REFUSE, _WITHDRAW})
_PENDING, _STARTED, _COMMITTED = ReservationStatus.PENDING, ReservationStatus.STARTED, ReservationStatus.COMMITTED

# The kinds of entries that may come next for a reservation, by its state. Once noise may have been drawn, no entry
# releases the held amounts.
_OF_STARTED = frozenset({_EXTEND, _COMMIT, _CORRECT})
_TAKES: Mapping[ReservationStatus, frozenset[EntryKind]] = {
    _PENDING: _OF_STARTED | {_START, _VOID, EntryKind.EXPIRE},
    _STARTED: _OF_STARTED,
    _COMMITTED: frozenset({_CORRECT}),
    ReservationStatus.VOIDED: frozenset(),
    ReservationStatus.EXPIRED: frozenset(),
}
#: The errors that the code which parses an entry may raise when the bytes have wrong contents.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, AccountingError)


class Chained(Protocol):
    """A stored entry: its bytes and its hashes."""

    @property
    def canonical(self) -> bytes: ...
    @property
    def previous_hash(self) -> str: ...
    @property
    def hash(self) -> str: ...


@dataclass(frozen=True)
class Link:
    """The bytes and the hashes of an entry, without its other columns."""

    canonical: bytes
    previous_hash: str
    hash: str


class BrokenChain(Exception):
    """Reports that a chain was changed: an entry at ``sequence`` was altered, deleted, inserted or moved.

    Attributes:
        sequence: The sequence number of the first entry that does not follow from the entries before it.
        reason: What is wrong, in words.
    """

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"entry {sequence}: {reason}")
        self.sequence = sequence
        self.reason = reason


@dataclass
class History:
    """A budget as its own entries describe it.

    Attributes:
        made: The entry that created the budget. It contains the budget's terms.
        parent_id: The id of the parent budget.
        filter: The privacy filter with the current limit.
        relation: The neighboring relation under which every event is priced.
        spent, started, pending: The amounts charged to this budget itself, without the charges to its descendants.
        sequence, head_hash: The sequence number and the hash of the last entry.
        reservations, limit_requests: All reservations and all requests for another limit, by id.
    """

    made: EntryRecord
    parent_id: str | None
    filter: PrivacyFilter
    relation: NeighboringRelation
    spent: Amounts
    started: Amounts
    pending: Amounts
    sequence: int = 1
    head_hash: str = GENESIS
    reservations: dict[str, ReservationState] = field(default_factory=dict)
    limit_requests: dict[str, LimitRequestState] = field(default_factory=dict)

    @property
    def budget_id(self) -> str:
        return self.made.budget_id

    @property
    def used(self) -> Amounts:
        """Return the amounts that count against the limit: spent, started and pending together."""
        return plus(plus(self.spent, self.started), self.pending)


#: The states of a reservation before and after an entry. Both are None for an entry that concerns no reservation.
Step = tuple[ReservationState | None, ReservationState | None]


def rebuild(chain: Iterable[Chained]) -> History:
    """Return the state of one budget after replaying its entries, beginning with the entry that created it.

    Raises:
        BrokenChain: the chain is not intact, or an entry records an action that the ledger would not have taken.
    """
    history: History | None = None
    for link, record in checked_records(chain):
        if history is None:
            history = opened(record)
        else:
            replay(history, record, link.hash)
            if record.kind is _RESERVE and not history.filter.admits(history.used):
                raise BrokenChain(record.sequence, "the entry exceeds the budget's limit")
        history.sequence, history.head_hash = record.sequence, link.hash
    if history is None:
        raise BrokenChain(1, "the budget's first entry, which opens it, is missing")
    return history


def checked_records(chain: Iterable[Chained]) -> Iterator[tuple[Chained, EntryRecord]]:
    """Yield the entries of one budget, oldest first, each after checking that it follows the one before it.

    Raises:
        BrokenChain: an entry does not follow the one before it.
    """
    head, budget_id = GENESIS, ""
    for place, link in enumerate(chain, start=1):
        record = checked_record(link, place, head)
        budget_id = budget_id or record.budget_id
        if record.budget_id != budget_id:
            raise BrokenChain(place, "the entry belongs to another budget")
        yield link, record
        head = link.hash


def checked_record(link: Chained, place: int, head: str) -> EntryRecord:
    """Return the parsed record of an entry, after checking that the entry follows the one with the hash ``head``.

    Raises:
        BrokenChain: the entry does not follow.
    """
    if link.previous_hash != head:
        raise BrokenChain(place, "the entry does not follow the entry before it")
    record = said_by(link)
    if record is None:
        raise BrokenChain(place, "the bytes are not an entry with this hash")
    if record.sequence != place:
        raise BrokenChain(place, f"the entry says that it is entry {record.sequence}")
    if record.budget_id != REGISTER and (place == 1) != (record.kind is _CREATE):
        raise BrokenChain(place, "the first entry of a budget, and no other entry, must open it")
    return record


def said_by(link: Chained) -> EntryRecord | None:
    """Return the parsed record of an entry without checking its place in the chain. Return None if the bytes are not a
    valid entry or do not have the entry's hash."""
    try:
        is_genuine = link.hash == chain_hash(link.previous_hash, link.canonical)
        return record_from_canonical(link.canonical) if is_genuine else None
    except UNREADABLE:
        return None


def opened(record: EntryRecord) -> History:
    """Return the history of a new budget whose only entry so far is the one that created it.

    Raises:
        BrokenChain: the entry cannot have created a budget.
    """
    try:
        details = details_of(record)
        parent_id, budget_filter = details.get("parent_id"), _filter(details)
        zero = budget_filter.zero
        relation = NeighboringRelation(str(details["neighboring_relation"]))
        return History(record, None if parent_id is None else str(parent_id), budget_filter, relation, zero, zero, zero)
    except UNREADABLE as error:
        raise unreadable(record, error) from None


def replay(history: History, record: EntryRecord, hashed: str) -> Step:
    """Apply an entry after the first to the history of its budget, and return the change of the reservation.

    Args:
        history: The history after the entries before this one. It is changed in place.
        record: The parsed entry.
        hashed: The entry's hash.

    Raises:
        BrokenChain: the ledger would not have written this entry. The budget's limit is not checked here, because the
            amounts that count against it include those of the descendants.
    """
    try:
        if record.kind is _LIMIT:
            if "limit_request_id" in details_of(record):
                _replay_limit_request(history, record)
            changed = _filter(details_of(record))
            changed.check_child_of(history.filter)
            history.filter = changed
            return None, None
        if record.kind is _LOSS:
            _check_charges_nothing(history, record)
            return None, None
        if record.kind in _OF_LIMIT_REQUESTS:
            _check_charges_nothing(history, record)
            _replay_limit_request(history, record)
            return None, None
        return _replay(history, record, hashed)
    except UNREADABLE as error:
        raise unreadable(record, error) from None


def _check_charges_nothing(history: History, record: EntryRecord) -> None:
    if any(record.amounts) or len(record.amounts) != len(history.pending) or record.events:
        raise BrokenChain(
            record.sequence, (f"the entry charges something, which {_with_article(record.kind)} never does")
        )


def _replay_limit_request(history: History, record: EntryRecord) -> None:
    """Apply an entry about a request for another limit to the request. The caller applies the new limit that an entry
    of kind ``limit`` gives the budget."""
    kind = record.kind
    request_id = str(details_of(record)["limit_request_id"])
    before = history.limit_requests.get(request_id)
    if kind is _ASK:
        if before is not None:
            raise BrokenChain(record.sequence, "the entry makes a request that was made before")
        history.limit_requests[request_id] = _asked(history, record, request_id)
        return
    if before is None:
        raise BrokenChain(record.sequence, "the entry is about a request for a limit that was never made")
    if not before.is_open:
        raise BrokenChain(
            record.sequence, (f"a request for a limit that is {before.status} cannot have the entry {kind}")
        )
    history.limit_requests[request_id] = _decided(history, before, record)


def _asked(history: History, record: EntryRecord, request_id: str) -> LimitRequestState:
    details = details_of(record)
    wanted, before, needed = _filter(details), _filter(details, "filter_before"), int(str(details["approvals_needed"]))
    wanted.check_child_of(history.filter)
    if before != history.filter:
        raise BrokenChain(record.sequence, "the entry gives another limit as the present one than the budget had")
    if needed < 1:
        raise BrokenChain(record.sequence, "the entry is a request that nobody has to approve")
    return LimitRequestState(
        id=request_id,
        budget_id=record.budget_id,
        status=LimitRequestStatus.OPEN,
        filter=wanted,
        filter_before=before,
        reason=str(details["reason"]),
        principal_id=record.principal_id,
        approvals_needed=needed,
        created_at=record.recorded_at,
        sequence=record.sequence,
    )


def _decided(history: History, before: LimitRequestState, record: EntryRecord) -> LimitRequestState:
    principal_id, kind = record.principal_id, record.kind
    if kind is _WITHDRAW:
        if principal_id != before.principal_id:
            raise BrokenChain(record.sequence, "somebody withdraws a request of somebody else")
        ended = replace(before, status=LimitRequestStatus.WITHDRAWN)
        return replace(ended, decided_by=principal_id, decided_at=record.recorded_at)
    reason = str(details_of(record)["reason"])
    ended = replace(before, decided_by=principal_id, decision_reason=reason, decided_at=record.recorded_at)
    if kind is _REFUSE:
        return replace(ended, status=LimitRequestStatus.REFUSED)
    if principal_id == before.principal_id:
        raise BrokenChain(record.sequence, "somebody approves their own request")
    if before.is_approved_by(principal_id):
        raise BrokenChain(record.sequence, "somebody approves a request twice")
    if history.filter != before.filter_before:
        raise BrokenChain(record.sequence, "the entry approves a request that was made under another limit")
    approvals = (*before.approvals, Approval(principal_id, reason, record.recorded_at))
    if kind is _APPROVE:
        return replace(before, approvals=approvals)
    if len(approvals) < before.approvals_needed:
        raise BrokenChain(record.sequence, "the entry sets a limit that too few people have approved")
    if _filter(details_of(record)) != before.filter:
        raise BrokenChain(record.sequence, "the entry sets another limit than the requested one")
    return replace(ended, status=LimitRequestStatus.APPROVED, approvals=approvals)


def details_of(record: EntryRecord) -> Mapping[str, Json]:
    """Return the member ``details`` of the entry."""
    return record.details or {}


def _replay(history: History, record: EntryRecord, hashed: str) -> Step:
    if record.reservation_id is None:
        raise BrokenChain(record.sequence, "the entry names no reservation")
    if len(record.amounts) != len(history.pending):
        raise BrokenChain(record.sequence, "the entry's amounts are not amounts of the budget's filter")
    if record.failure is not None:
        raise BrokenChain(
            record.sequence, ("the entry charges a failure beside its amounts, and no filter does this yet")
        )
    if record.tail is not None and record.kind is not _COMMIT:
        raise BrokenChain(record.sequence, "the entry gives a tail back, which only a commit can do")
    before = history.reservations.get(record.reservation_id)
    after = _made_reservation(record, record.reservation_id, hashed) if before is None else _step(before, record)
    if before is not None and record.kind is _COMMIT:
        _check_part(history.filter, before, record)
    history.reservations[after.id] = after
    if before is not None:
        _count(history, before, sub)
    _count(history, after, add)
    return before, after


def _check_part(budget_filter: PrivacyFilter, before: ReservationState, record: EntryRecord) -> None:
    # Every kind of filter may charge only a part of the events of a run that was cancelled before anybody saw its
    # results.
    if record.tail is not None:
        if before.events == record.events or not budget_filter.may_give_back(before.cost, record.tail):
            raise BrokenChain(
                record.sequence, "the entry gives something back, although the budget's filter gives nothing back"
            )
        return
    is_whole = budget_filter.prefix_may_depend_on_outputs or record.amounts == before.cost
    if not is_whole and before.run_id is None:
        raise BrokenChain(
            record.sequence, ("the entry charges a part, but the budget's filter charges a part like the whole")
        )


def _count(history: History, reservation: ReservationState, sign: Callable[[int, int], int]) -> None:
    """Add the amounts that a reservation holds or has spent to the budget's own amounts, or subtract them."""
    status = reservation.status
    if status is _PENDING:
        history.pending = tuple(map(sign, history.pending, reservation.cost))
    elif status is _STARTED:
        history.started = tuple(map(sign, history.started, reservation.cost))
    elif status is _COMMITTED and reservation.charged is not None:
        history.spent = tuple(map(sign, history.spent, reservation.charged))


def _made_reservation(record: EntryRecord, reservation_id: str, hashed: str) -> ReservationState:
    is_charge = record.kind is _CORRECT
    if not is_charge and record.kind is not _RESERVE:
        raise BrokenChain(
            record.sequence, ("the entry is about a reservation that was never made, or is already resolved")
        )
    if record.refers_to is not None:
        raise BrokenChain(
            record.sequence, ("the entry makes a reservation, but refers to an entry that already made one")
        )
    details = details_of(record)
    run_id, plan_hash, charge_delta = details["run_id"], details["plan_hash"], details.get("charge_delta")
    return _state(
        {},
        id=reservation_id,
        budget_id=record.budget_id,
        status=_COMMITTED if is_charge else _PENDING,
        events=record.events,
        cost=record.amounts,
        created_at=record.recorded_at,
        expires_at=datetime.fromisoformat(str(details["expires_at"])),
        purpose=record.purpose or "",
        engine_version=record.engine_version,
        charge_delta=None if charge_delta is None else float(str(charge_delta)),
        run_id=None if run_id is None else str(run_id),
        plan_hash=None if plan_hash is None else str(plan_hash),
        charged=record.amounts if is_charge else None,
        charged_events=record.events if is_charge else None,
        corrected=is_charge,
        resolved_at=record.recorded_at if is_charge else None,
        warnings=_warnings(details["warnings"]),
        dataset=record.dataset,
        certificate=record.certificate,
        entry_hash=hashed,
    )


def _step(before: ReservationState, record: EntryRecord) -> ReservationState:
    kind = record.kind
    if kind not in _TAKES[before.status]:
        raise BrokenChain(record.sequence, f"a reservation that is {before.status} cannot have the entry {kind}")
    if record.version > 1 and record.refers_to != before.entry_hash:
        raise BrokenChain(record.sequence, "the entry does not refer to the entry that made the reservation")
    if kind is _CORRECT:
        return _corrected(before, record)
    if kind is _COMMIT:
        return _committed(before, record)
    if record.amounts != before.cost:
        raise BrokenChain(record.sequence, "the entry's amounts differ from what the reservation holds")
    if kind is _EXTEND:
        return _state(vars(before), expires_at=datetime.fromisoformat(str(details_of(record)["expires_at"])))
    if kind is _START:
        return _state(vars(before), status=_STARTED)
    status = ReservationStatus.VOIDED if kind is _VOID else ReservationStatus.EXPIRED
    return _state(vars(before), status=status, resolved_at=record.recorded_at)


def _committed(before: ReservationState, record: EntryRecord) -> ReservationState:
    if record.tail is not None:
        if tuple(map(add, record.amounts, record.tail)) != before.cost:
            raise BrokenChain(
                record.sequence, ("what the entry charges and gives back differs from what the reservation holds")
            )
    elif record.amounts != before.cost and not all(map(le, record.amounts, before.cost)):
        raise BrokenChain(record.sequence, "the entry charges more than the reservation holds")
    if record.events is not before.events and not is_prefix(record.events, before.events):
        raise BrokenChain(record.sequence, "the entry's events are not the first events of the reservation")
    return _state(
        vars(before),
        status=_COMMITTED,
        charged=record.amounts,
        charged_events=record.events,
        resolved_at=record.recorded_at,
    )


def _corrected(before: ReservationState, record: EntryRecord) -> ReservationState:
    details = details_of(record)
    was = before.cost if before.charged is None else before.charged
    if details["before"] != [str(amount) for amount in was]:
        raise BrokenChain(record.sequence, "the entry corrects an amount that the reservation does not have")
    if before.is_open:
        return _state(vars(before), cost=record.amounts, engine_version=record.engine_version)
    corrected = details["events_replaced"] is True
    given = details.get("charge_delta")
    return _state(
        vars(before),
        charged=record.amounts,
        charged_events=record.events,
        charge_delta=before.charge_delta if given is None else float(str(given)),
        corrected=corrected,
    )


def _state(before: Mapping[str, object], **changes: object) -> ReservationState:
    """Return a reservation state with the attributes ``before``, of which ``changes`` replaces some.

    The result is the same as from the constructor or `dataclasses.replace`. Either of these would take as long as all
    other work on an entry.
    """
    after = object.__new__(ReservationState)
    vars(after).update(before, **changes)
    return after


def _filter(details: Mapping[str, Json], member: str = "filter") -> PrivacyFilter:
    description = details[member]
    if not isinstance(description, Mapping):
        raise ValueError("a filter must be an object")
    return filter_from_json(description)


def _warnings(given: Json) -> tuple[tuple[str, str], ...]:
    if not isinstance(given, list):
        raise ValueError("warnings must be a list")
    return () if not given else tuple((warning["code"], warning["detail"]) for warning in given)


def unreadable(record: EntryRecord, error: Exception) -> BrokenChain:
    """Return the `BrokenChain` error for an entry that lacks data which entries of its kind must contain."""
    reason = f"the entry does not have the fields of {_with_article(record.kind)} ({type(error).__name__})"
    return BrokenChain(record.sequence, reason)


def _with_article(kind: EntryKind) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
