"""The auditor of the tests: whatever was done to a budget, its entries must explain its tables."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.budgets import storage
from app.budgets.models import Budget, Reservation
from app.ledger import repository
from app.ledger.models import Entry
from app.ledger.rebuild import History, Link, first_broken_link, rebuild


def links(entries: list[Entry]) -> list[Link]:
    return [Link(entry.canonical, entry.previous_hash, entry.hash) for entry in entries]


def audit(session: Session, budget_id: str) -> History:
    """Check the chain, rebuild the state from the entries alone and compare it with the tables."""
    entries = repository.history(session, budget_id)
    assert first_broken_link(links(entries)) is None
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    history = rebuild(links(entries))
    budget = session.get_one(Budget, budget_id)
    assert storage.budget_state(budget) == history.budget
    assert (budget.sequence, budget.head_hash) == (history.sequence, history.head_hash)
    assert budget.headroom == history.budget.headroom >= 0
    assert history.budget.filter.admits(history.budget.used)
    rows = session.scalars(select(Reservation).where(Reservation.budget_id == budget_id))
    stored = {row.id: storage.reservation_state(row) for row in rows}
    assert stored == history.reservations
    return history
