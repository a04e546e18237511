"""Database queries of the metrics. They return only counts, read a bounded number of rows, and use nothing that is
withheld."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, load_only

from app.tables.ledger import Budget, Reservation
from app.tables.runs import Audit, Run
from app.tables.states import ReservationStatus, RunState

#: No query reads more rows than this, however large a table is.
MOST_ROWS = 10_000
#: The most budgets whose used shares are computed. The row of each of these budgets is read.
MOST_BUDGETS = 2_000


def runs_by_state(session: Session) -> dict[str, int]:
    """Return how many runs are in each state, at most `MOST_ROWS`. Hidden trials are not counted."""
    return {
        str(state): _count(session, select(Run.id).where(Run.state == state, ~Run.is_withheld)) for state in RunState
    }


def oldest_queued(session: Session) -> datetime | None:
    """Return when the longest-waiting run was created; None if none waits."""
    statement = (
        select(Run.created_at).where(Run.state == RunState.QUEUED, ~Run.is_withheld).order_by(Run.created_at).limit(1)
    )
    return session.scalar(statement)


def overdue_reservations(session: Session, now: datetime) -> int:
    """Count reservations that were started and not committed in time."""
    statement = select(Reservation.id).where(
        Reservation.resolved_at.is_(None),
        Reservation.state == ReservationStatus.STARTED,
        Reservation.expires_at <= now,
    )
    return _count(session, statement)


def contradicted_audits(session: Session) -> int:
    """Count the audits that found a claim violated, among the newest ones."""
    newest = select(Audit.finding).order_by(Audit.created_at.desc(), Audit.id.desc()).limit(MOST_ROWS).subquery()
    statement = select(func.count()).where(newest.c.finding["verdict"].as_string() == "violated")
    return session.scalar(statement) or 0


def budgets(session: Session) -> Iterator[Budget]:
    """Return the newest budgets with the columns for their shares. A row beyond `MOST_BUDGETS` shows that there are
    more."""
    columns = (Budget.id, Budget.filter, Budget.spent, Budget.started, Budget.pending, Budget.overdrawn)
    statement = select(Budget).order_by(Budget.created_at.desc()).limit(MOST_BUDGETS + 1).options(load_only(*columns))
    return iter(session.scalars(statement))


def _count(session: Session, statement: Select[str]) -> int:
    return session.scalar(select(func.count()).select_from(statement.limit(MOST_ROWS).subquery())) or 0
