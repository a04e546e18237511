"""All SQL on budgets and reservations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.budgets.models import Budget, Reservation
from app.ledger.states import ReservationStatus

# Holds are released in batches, so that one request never loads an unbounded list.
_BATCH = 100


def lock_budget(session: Session, budget_id: str) -> Budget | None:
    """Take the budget's row for this transaction and read it as it is now.

    An UPDATE that changes nothing: it waits for whoever has the row, then sees what they committed; a SELECT before it
    would decide on what was there before. On SQLite the transaction holds the write lock already.
    """
    statement = update(Budget).where(Budget.id == budget_id).values(sequence=Budget.sequence).returning(Budget)
    return session.scalars(statement, execution_options=_FRESH).one_or_none()


def lock_budget_of(session: Session, reservation_id: str) -> Budget | None:
    """`lock_budget` for the budget that the reservation belongs to."""
    budget_id = select(Reservation.budget_id).where(Reservation.id == reservation_id).scalar_subquery()
    statement = update(Budget).where(Budget.id == budget_id).values(sequence=Budget.sequence).returning(Budget)
    return session.scalars(statement, execution_options=_FRESH).one_or_none()


def find_budget(session: Session, budget_id: str) -> Budget | None:
    """The budget as the session knows it: not for decisions, which need the lock."""
    return session.get(Budget, budget_id)


def page_of_budgets(session: Session, before: tuple[datetime, str] | None, limit: int) -> list[Budget]:
    """Newest first, from just after the cursor."""
    statement = select(Budget).order_by(Budget.created_at.desc(), Budget.id.desc()).limit(limit)
    if before is not None:
        moment, budget_id = before
        statement = statement.where(
            (Budget.created_at < moment) | ((Budget.created_at == moment) & (Budget.id < budget_id))
        )
    return list(session.scalars(statement))


def find_reservation(session: Session, reservation_id: str) -> Reservation | None:
    """The reservation as it is now; after its budget is locked it stays so."""
    return session.get(Reservation, reservation_id, populate_existing=True)


def page_of_reservations(session: Session, budget_id: str, before: int | None, limit: int) -> list[Reservation]:
    """Newest first, from just after the cursor."""
    statement = select(Reservation).where(Reservation.budget_id == budget_id)
    if before is not None:
        statement = statement.where(Reservation.sequence < before)
    return list(session.scalars(statement.order_by(Reservation.sequence.desc()).limit(limit)))


def holds_past_their_time(session: Session, budget_id: str, now: datetime) -> Iterator[Reservation]:
    """Pending reservations whose time to start is over, the oldest first; nothing is read before the first is asked."""
    last: tuple[datetime, str] | None = None
    while True:
        statement = select(Reservation).where(
            Reservation.budget_id == budget_id,
            Reservation.state == ReservationStatus.PENDING,
            Reservation.expires_at <= now,
        )
        if last is not None:
            moment, reservation_id = last
            statement = statement.where(
                (Reservation.expires_at > moment)
                | ((Reservation.expires_at == moment) & (Reservation.id > reservation_id))
            )
        batch = list(session.scalars(statement.order_by(Reservation.expires_at, Reservation.id).limit(_BATCH)))
        yield from batch
        if len(batch) < _BATCH:
            return
        last = (batch[-1].expires_at, batch[-1].id)


# The session may have read the row before it was locked.
_FRESH = {"populate_existing": True, "synchronize_session": False}
