"""The entry of a transition, with everything that is needed to replay it."""

from __future__ import annotations

from datetime import datetime

from accounting.canonical import Json
from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord
from app.kit.timestamps import format_moment
from app.ledger.states import LimitRequestState
from app.ledger.transitions import Transition

#: Entries that say nothing new about a reservation except its state or its time.
_REPEATING = frozenset({EntryKind.START, EntryKind.EXTEND, EntryKind.VOID, EntryKind.EXPIRE})


def entry_record(
    transition: Transition, *, entry_id: str, sequence: int, principal_id: str, recorded_at: datetime
) -> EntryRecord:
    """Return the entry of a transition, with everything that is needed to replay it."""
    reservation, before = transition.reservation, transition.before
    # Such entries refer to the entry that has the events.
    repeats = before is not None and transition.kind in _REPEATING
    return EntryRecord(
        id=entry_id,
        budget_id=transition.budget.id,
        sequence=sequence,
        kind=transition.kind,
        principal_id=principal_id,
        recorded_at=recorded_at,
        engine_version=transition.engine_version,
        amounts=transition.amounts,
        events=() if repeats else transition.events,
        reservation_id=None if reservation is None else reservation.id,
        purpose=None if reservation is None else reservation.purpose,
        details=_details(transition),
        refers_to=None if before is None else before.entry_hash,
        tail=transition.given_back,
        dataset=None if reservation is None or before is not None else reservation.dataset,
        certificate=None if reservation is None or before is not None else reservation.certificate,
    )


def _details(transition: Transition) -> dict[str, Json]:
    reservation, kind = transition.reservation, transition.kind
    details: dict[str, Json] = dict(transition.details)
    if kind is EntryKind.LIMIT:
        details["filter"] = transition.budget.filter.to_json()
    if transition.reason is not None:
        details["reason"] = transition.reason
    if transition.limit_request is not None:
        details |= _of_limit_request(transition.limit_request, kind)
    if reservation is None:
        return details
    if transition.before is None:
        details["expires_at"] = format_moment(reservation.expires_at)
        details["run_id"], details["plan_hash"] = reservation.run_id, reservation.plan_hash
        details["warnings"] = [{"code": code, "detail": detail} for code, detail in reservation.warnings]
        if reservation.charge_delta is not None:
            details["charge_delta"] = reservation.charge_delta
    elif kind is EntryKind.EXTEND:
        details["expires_at"] = format_moment(reservation.expires_at)
    elif kind is EntryKind.CORRECT:
        before = transition.before
        details["before"] = [str(amount) for amount in (before.cost if before.charged is None else before.charged)]
        details["events_replaced"] = reservation.corrected
        if reservation.charge_delta is not None:
            details["charge_delta"] = reservation.charge_delta
    return details


def _of_limit_request(request: LimitRequestState, kind: EntryKind) -> dict[str, Json]:
    """Return which request an entry is about and, if it makes the request, what is asked for."""
    details: dict[str, Json] = {"limit_request_id": request.id}
    if kind is EntryKind.ASK:
        details["filter"], details["filter_before"] = request.filter.to_json(), request.filter_before.to_json()
        details["approvals_needed"] = request.approvals_needed
    return details
