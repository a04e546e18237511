"""All SQL on reservations, except for writing, which the ledger does."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from accounting.filters import PrivacyFilter
from app.tables.ledger import Budget, Reservation
from app.tables.states import ReservationStatus


def find(session: Session, reservation_id: str) -> Reservation | None:
    """Return the reservation as it is now; once its budget is locked, it cannot change."""
    return session.get(Reservation, reservation_id, populate_existing=True)


def page(
    session: Session,
    budget_id: str,
    *,
    before: int | None,
    limit: int,
    state: ReservationStatus | None = None,
    purpose: str | None = None,
    overdue_at: datetime | None = None,
) -> list[Reservation]:
    """Return a page of reservations, newest first, from just before the sequence number ``before``.

    Args:
        session: A session.
        budget_id: The budget whose reservations are listed.
        before: None for the first page.
        limit: The largest number of reservations.
        state: List only reservations in this state.
        purpose: List only reservations with exactly this purpose.
        overdue_at: List only started reservations whose time was over at this moment.
    """
    statement = select(Reservation).where(Reservation.budget_id == budget_id)
    if before is not None:
        statement = statement.where(Reservation.sequence < before)
    if state is not None:
        statement = statement.where(Reservation.state == str(state))
    if purpose is not None:
        statement = statement.where(Reservation.purpose == purpose)
    if overdue_at is not None:
        statement = statement.where(
            Reservation.resolved_at.is_(None),  # this condition lets the index of open reservations be used
            Reservation.state == str(ReservationStatus.STARTED),
            Reservation.expires_at <= overdue_at,
        )
    return list(session.scalars(statement.order_by(Reservation.sequence.desc()).limit(limit)))


def priced_by_others(
    session: Session, engine_version: str, after: tuple[str, int], limit: int
) -> list[tuple[PrivacyFilter, Reservation]]:
    """Return reservations that are held or charged at another engine's prices, with the budget's filter, in a fixed
    order.

    Args:
        session: A session.
        engine_version: The version of this engine.
        after: The budget and the sequence number of the last one that was seen; ("", 0) at first.
        limit: The largest number of reservations.
    """
    counted = (ReservationStatus.PENDING, ReservationStatus.STARTED, ReservationStatus.COMMITTED)
    statement = (
        select(Budget.filter, Reservation)
        .join(Budget, Budget.id == Reservation.budget_id)
        .where(
            Reservation.engine_version != engine_version,
            Reservation.state.in_([str(status) for status in counted]),
            tuple_(Reservation.budget_id, Reservation.sequence) > after,
        )
        .order_by(Reservation.budget_id, Reservation.sequence)
        .limit(limit)
    )
    return [(budget_filter, row) for budget_filter, row in session.execute(statement)]
