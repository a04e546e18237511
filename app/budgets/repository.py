"""All SQL on budgets, except for writing amounts, which the ledger does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session

from accounting.events import Event
from app.tables.ledger import Budget, ExposedStep, Reservation
from app.tables.states import ReservationStatus


def find(session: Session, budget_id: str) -> Budget | None:
    """Return the budget as the session sees it, for reading only, because decisions need the lock."""
    return session.get(Budget, budget_id)


def page(
    session: Session,
    before: tuple[datetime, str] | None,
    limit: int,
    *,
    parent_id: str | None = None,
    within: ColumnElement[bool] | None = None,
) -> list[Budget]:
    """Return a page of budgets, newest first, from just after the cursor; of one parent's children if it is named.

    Args:
        session: A session.
        before: None for the first page.
        limit: The largest number of budgets.
        parent_id: The id of the children's parent.
        within: The budgets that the reader reaches; None for all.
    """
    statement = select(Budget).order_by(Budget.created_at.desc(), Budget.id.desc()).limit(limit)
    statement = statement.where(true() if within is None else within)
    if parent_id is not None:
        statement = statement.where(Budget.parent_id == parent_id)
    if before is not None:
        moment, budget_id = before
        statement = statement.where(
            (Budget.created_at < moment) | ((Budget.created_at == moment) & (Budget.id < budget_id))
        )
    return list(session.scalars(statement))


def overdue_counts(session: Session, budget_ids: Sequence[str], now: datetime) -> dict[str, int]:
    """Return how many reservations of each budget were started and not committed in their time."""
    statement = (
        select(Reservation.budget_id, func.count())
        .where(
            Reservation.budget_id.in_(budget_ids),
            Reservation.resolved_at.is_(None),  # this condition lets the index of open reservations be used
            Reservation.state == str(ReservationStatus.STARTED),
            Reservation.expires_at <= now,
        )
        .group_by(Reservation.budget_id)
    )
    return {row[0]: row[1] for row in session.execute(statement)}


def exposed_steps(session: Session, path: str, limit: int) -> list[tuple[Event, int]]:
    """Return each different step that may have been released under a budget and those below it, and how often.

    Args:
        session: A session.
        path: The path of the budget.
        limit: The largest number of different steps; one more is returned if there are more.
    """
    total = func.sum(ExposedStep.count)
    statement = (
        select(ExposedStep.step, total)
        .join(Budget, Budget.id == ExposedStep.budget_id)
        .where((Budget.path == path) | Budget.path.startswith(f"{path}/", autoescape=True))
        .group_by(ExposedStep.step_hash, ExposedStep.step)
        .having(total > 0)
        .order_by(ExposedStep.step_hash)
        .limit(limit + 1)
    )
    return [(step, int(count)) for (step,), count in session.execute(statement).all()]
