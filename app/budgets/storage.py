"""Between rows and the transition machine: read a state from rows, write a transition and its entry to them.

Both functions that write are called with the budget's row locked (`repository.lock_budget`), in the transaction that
also holds the idempotency record; effect and entry therefore commit together or not at all.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache

from sqlalchemy.orm import Session

from accounting import ENGINE_VERSION
from accounting.events import Event, event_from_json
from accounting.filters import PrivacyFilter, filter_from_json
from accounting.relations import NeighboringRelation
from app.budgets.models import Budget, Reservation
from app.kit.ids import new_id
from app.kit.moments import format_moment
from app.ledger import repository as entries
from app.ledger.records import GENESIS, EntryRecord
from app.ledger.states import EntryKind, ReservationStatus
from app.ledger.transitions import BudgetState, ReservationState, Transition


@lru_cache(maxsize=1024)
def _filter(description: str) -> PrivacyFilter:
    return filter_from_json(json.loads(description))


def filter_of(budget: Budget) -> PrivacyFilter:
    """The budget's privacy filter; it never changes."""
    return _filter(json.dumps(budget.filter, sort_keys=True))


def budget_state(budget: Budget) -> BudgetState:
    """The row as the transition machine sees it."""
    relation = NeighboringRelation(budget.neighboring_relation)
    return BudgetState(filter_of(budget), relation, tuple(budget.spent), tuple(budget.reserved))


def reservation_state(row: Reservation) -> ReservationState:
    """The row as the transition machine sees it."""
    return ReservationState(
        id=row.id,
        status=ReservationStatus(row.state),
        events=_events(row.events),
        cost=tuple(row.cost),
        expires_at=row.expires_at,
        run_id=row.run_id,
        plan_hash=row.plan_hash,
        charged=None if row.charged is None else tuple(row.charged),
        charged_events=None if row.charged_events is None else _events(row.charged_events),
        warnings=tuple(row.warnings),
    )


def open_budget(session: Session, budget: Budget) -> None:
    """Insert a new budget, whose terms are set, with nothing spent and its first entry."""
    budget_filter = filter_of(budget)
    relation = NeighboringRelation(budget.neighboring_relation)
    state = BudgetState(budget_filter, relation, spent=budget_filter.zero, reserved=budget_filter.zero)
    budget.sequence, budget.head_hash = 0, GENESIS
    _write_state(budget, state)
    session.add(budget)
    record = EntryRecord(
        id=new_id("ent"),
        budget_id=budget.id,
        sequence=1,
        kind=EntryKind.CREATE,
        principal_id=budget.principal_id,
        recorded_at=budget.created_at,
        engine_version=ENGINE_VERSION,
        amounts=budget_filter.caps,
        details={
            "name": budget.name,
            "neighboring_relation": budget.neighboring_relation,
            "privacy_unit": budget.privacy_unit,
            "filter": budget.filter,
            "report_delta": budget.report_delta,
            "labels": budget.labels,
        },
    )
    _append(session, budget, record)


def new_reservation(
    transition: Transition, *, budget_id: str, purpose: str, principal_id: str, now: datetime
) -> Reservation:
    """The row of a reservation that was just admitted; `write` adds it."""
    state = transition.reservation
    return Reservation(
        id=state.id,
        budget_id=budget_id,
        events=[event.to_json() for event in state.events],
        purpose=purpose,
        cost=list(state.cost),
        warnings=list(state.warnings),
        engine_version=ENGINE_VERSION,
        principal_id=principal_id,
        run_id=state.run_id,
        plan_hash=state.plan_hash,
        created_at=now,
        expires_at=state.expires_at,
    )


def write(
    session: Session, budget: Budget, row: Reservation, transition: Transition, *, principal_id: str, now: datetime
) -> None:
    """Write what the transition changed, and its entry."""
    state = transition.reservation
    _write_state(budget, transition.budget)
    row.state = str(state.status)
    row.charged = None if state.charged is None else list(state.charged)
    row.charged_events = None if state.charged_events is None else [event.to_json() for event in state.charged_events]
    row.resolved_at = None if state.is_open else now
    details = {}
    if transition.kind is EntryKind.RESERVE:
        row.sequence = budget.sequence + 1
        details = {
            "expires_at": format_moment(row.expires_at),
            "run_id": row.run_id,
            "plan_hash": row.plan_hash,
            "warnings": row.warnings,
        }
        session.add(row)
    record = EntryRecord(
        id=new_id("ent"),
        budget_id=budget.id,
        sequence=budget.sequence + 1,
        kind=transition.kind,
        principal_id=principal_id,
        recorded_at=now,
        # Amounts come from the engine that priced them, which may be an older one than this.
        engine_version=row.engine_version,
        amounts=transition.amounts,
        events=transition.events,
        reservation_id=row.id,
        purpose=row.purpose,
        details=details,
    )
    _append(session, budget, record)


def _write_state(budget: Budget, state: BudgetState) -> None:
    budget.spent, budget.reserved, budget.headroom = list(state.spent), list(state.reserved), state.headroom


def _append(session: Session, budget: Budget, record: EntryRecord) -> None:
    budget.head_hash = entries.append(session, record, budget.head_hash)
    budget.sequence = record.sequence


def _events(plain: list[dict[str, object]]) -> tuple[Event, ...]:
    return tuple(event_from_json(event) for event in plain)
