"""The state of a budget from its entries alone, and whether the chain of entries is whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from accounting.canonical import Json
from accounting.filters import filter_from_json
from accounting.relations import NeighboringRelation
from app.ledger.records import GENESIS, EntryRecord, chain_hash, record_from_canonical
from app.ledger.states import EntryKind, ReservationStatus
from app.ledger.transitions import BudgetState, ReservationState

_STATUS_AFTER = {
    EntryKind.RESERVE: ReservationStatus.PENDING,
    EntryKind.START: ReservationStatus.STARTED,
    EntryKind.COMMIT: ReservationStatus.COMMITTED,
    EntryKind.VOID: ReservationStatus.VOIDED,
    EntryKind.EXPIRE: ReservationStatus.EXPIRED,
}


@dataclass(frozen=True)
class Link:
    """An entry as it is stored: its bytes and its hashes."""

    canonical: bytes
    previous_hash: str
    hash: str


@dataclass(frozen=True)
class History:
    """What a budget's entries amount to."""

    budget: BudgetState
    reservations: dict[str, ReservationState]
    head_hash: str
    sequence: int


def first_broken_link(chain: Iterable[Link]) -> int | None:
    """The place (from 1) of the first entry whose hash, predecessor or sequence is not what it must be."""
    head = GENESIS
    for place, link in enumerate(chain, start=1):
        if link.previous_hash != head or link.hash != chain_hash(head, link.canonical):
            return place
        if record_from_canonical(link.canonical).sequence != place:
            return place
        head = link.hash
    return None


def rebuild(chain: Iterable[Link]) -> History:
    """Replay the entries of one budget, the first of which made it.

    Requires: a whole chain (`first_broken_link` is None).
    """
    links = iter(chain)
    first = next(links)
    made = record_from_canonical(first.canonical)
    budget = _made_budget(made)
    reservations: dict[str, ReservationState] = {}
    head_hash, sequence = first.hash, made.sequence
    for link in links:
        record = record_from_canonical(link.canonical)
        assert record.reservation_id is not None, "only the first entry has no reservation"
        before = reservations.get(record.reservation_id)
        after = _replay(record, before)
        reservations[record.reservation_id] = after
        budget = _charge(budget, before, after)
        head_hash, sequence = link.hash, record.sequence
    return History(budget, reservations, head_hash, sequence)


def _made_budget(record: EntryRecord) -> BudgetState:
    details = _details(record)
    description = details["filter"]
    assert isinstance(description, dict), "written by open_budget"
    budget_filter = filter_from_json(description)
    relation = NeighboringRelation(str(details["neighboring_relation"]))
    return BudgetState(budget_filter, relation, budget_filter.zero, budget_filter.zero)


def _replay(record: EntryRecord, before: ReservationState | None) -> ReservationState:
    if before is None:
        assert record.reservation_id is not None, "checked by the caller"
        details = _details(record)
        run_id, plan_hash, warnings = details["run_id"], details["plan_hash"], details["warnings"]
        assert isinstance(warnings, list), "written by storage.write"
        return ReservationState(
            id=record.reservation_id,
            status=ReservationStatus.PENDING,
            events=record.events,
            cost=record.amounts,
            expires_at=datetime.fromisoformat(str(details["expires_at"])),
            run_id=None if run_id is None else str(run_id),
            plan_hash=None if plan_hash is None else str(plan_hash),
            warnings=tuple(warnings),
        )
    after = replace(before, status=_STATUS_AFTER[record.kind])
    if record.kind is EntryKind.COMMIT:
        return replace(after, charged=record.amounts, charged_events=record.events)
    return after


def _charge(budget: BudgetState, before: ReservationState | None, after: ReservationState) -> BudgetState:
    spent, reserved = list(budget.spent), list(budget.reserved)
    for order, cost in enumerate(after.cost):
        if before is None:
            reserved[order] += cost
        elif not after.is_open:
            reserved[order] -= cost
            spent[order] += after.charged[order] if after.charged is not None else 0
    return replace(budget, spent=tuple(spent), reserved=tuple(reserved))


def _details(record: EntryRecord) -> dict[str, Json]:
    assert record.details is not None, "read from canonical bytes"
    return dict(record.details)
