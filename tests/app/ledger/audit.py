"""The auditor of the tests: whatever was done to budgets, their entries must explain their tables."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.events import Event
from accounting.events.schedules import resolve_schedules
from app.ledger import repository, rows
from app.ledger.rebuild import History, Link, rebuild
from app.ledger.states import plus
from app.tables.ledger import Budget, ExposedStep, LimitRequest, Reservation


def links(session: Session, budget_id: str) -> list[Link]:
    return [Link(entry.canonical, entry.previous_hash, entry.hash) for entry in repository.chain(session, budget_id)]


def audit(session: Session, budget_id: str) -> History:
    """Rebuild a budget, and those under it, from the entries alone and compare with the tables; its own history."""
    histories = {
        budget.id: rebuild(links(session, budget.id))
        for budget in session.scalars(select(Budget))
        if budget_id in budget.path.split("/")
    }
    for each, history in histories.items():
        budget = session.get_one(Budget, each)
        assert (budget.sequence, budget.head_hash) == (history.sequence, history.head_hash)
        state = rows.budget_state(budget)
        below = [
            other for other in histories.values() if each in session.get_one(Budget, other.budget_id).path.split("/")
        ]
        for name in ("spent", "started", "pending"):
            total = state.filter.zero
            for other in below:
                total = plus(total, getattr(other, name))
            assert getattr(state, name) == total, name
        assert state.filter == history.filter
        assert budget.headroom == state.headroom
        assert state.overdrawn == (state.headroom < 0)
        assert state.overdrawn or state.filter.admits(state.used)
        found = session.scalars(select(Reservation).where(Reservation.budget_id == each))
        assert {row.id: rows.reservation_state(row) for row in found} == history.reservations
        asked = session.scalars(select(LimitRequest).where(LimitRequest.budget_id == each))
        assert {row.id: rows.limit_request_state(row) for row in asked} == history.limit_requests
        assert exposed(session, each) == exposed_by(history)
    return histories[budget_id]


def exposed(session: Session, budget_id: str) -> Counter[Event]:
    found = session.scalars(select(ExposedStep).where(ExposedStep.budget_id == budget_id, ExposedStep.count > 0))
    return Counter({row.step[0]: row.count for row in found})


def exposed_by(history: History) -> Counter[Event]:
    counts: Counter[Event] = Counter()
    for reservation in history.reservations.values():
        for event in resolve_schedules(reservation.exposed_events, history.relation):
            counts[Event(event.mechanism, event.sampling)] += event.count
    return counts
