"""All SQL that reads the ledger; the SQL that writes is in `app.ledger.statements`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import Any, cast

from sqlalchemy import Row, Table, select
from sqlalchemy.orm import Session

from app.ledger.states import plus
from app.ledger.stored_values import WrongKind, wrong_kinds_named
from app.problems import not_found
from app.tables.ledger import Budget, Entry, Reservation, under
from app.tables.states import Amounts, ReservationStatus

_BUDGETS = cast(Table, Budget.__table__)
_RESERVATIONS = cast(Table, Reservation.__table__)


def find_budget(session: Session, budget_id: str) -> Row[Any] | None:
    """Return the budget in this session's snapshot."""
    return session.execute(select(_BUDGETS).where(_BUDGETS.c.id == budget_id)).one_or_none()


def get_budget(session: Session, budget_id: str) -> Budget:
    """Return the budget for reading. Its relation, unit, place in its tree and kind of filter never change.

    Raises:
        Problem: 404.
    """
    budget = session.get(Budget, budget_id)
    if budget is None:
        raise not_found("budget", budget_id)
    return budget


def report_delta(session: Session, budget_id: str) -> float | None:
    """Return the delta at which a budget's reports are stated, if it has one besides its filter's.

    Raises:
        Problem: 404.
    """
    written = get_budget(session, budget_id).report_delta
    return None if written is None else float(written)


def budgets(session: Session, ids: Sequence[str]) -> Sequence[Row[Any]]:
    """Return budgets in this session's snapshot."""
    return session.execute(select(_BUDGETS).where(_BUDGETS.c.id.in_(ids))).all()


def due_holds(session: Session, path: str, now: datetime, limit: int) -> list[str]:
    """Return the ids of expired pending reservations of a budget and of those under it, oldest first."""
    statement = (
        select(_RESERVATIONS.c.id)
        .join_from(_RESERVATIONS, _BUDGETS, _RESERVATIONS.c.budget_id == _BUDGETS.c.id)
        .where(_due(path, now))
        .order_by(_RESERVATIONS.c.expires_at, _RESERVATIONS.c.id)
        .limit(limit)
    )
    return list(session.scalars(statement))


def due_amounts(session: Session, budget_id: str, zero: Amounts, now: datetime) -> Amounts:
    """Return the total of the due holds of a budget and of those under it."""
    path = session.execute(select(_BUDGETS.c.path).where(_BUDGETS.c.id == budget_id)).scalar_one()
    statement = (
        select(_RESERVATIONS.c.cost)
        .join_from(_RESERVATIONS, _BUDGETS, _RESERVATIONS.c.budget_id == _BUDGETS.c.id)
        .where(_due(path, now))
    )
    return reduce(plus, session.scalars(statement), zero)


def _due(path: str, now: datetime) -> Any:
    # "Not resolved" is part of the condition so that the index of open reservations is used.
    is_pending = _RESERVATIONS.c.resolved_at.is_(None) & (_RESERVATIONS.c.state == str(ReservationStatus.PENDING))
    return under(path) & is_pending & (_RESERVATIONS.c.expires_at <= now)


def page(
    session: Session,
    budget_id: str,
    *,
    behind: int | None,
    limit: int,
    newest_first: bool = False,
    kind: str | None = None,
    after: datetime | None = None,
    before: datetime | None = None,
    purpose: str | None = None,
    mechanism: str | None = None,
    principal_ids: Collection[str] | None = None,
    subject_id: str | None = None,
) -> list[Entry]:
    """Return entries of the budget, or of the register, oldest first unless the newest are asked for.

    Args:
        session: A session.
        budget_id: The budget whose entries are listed.
        behind: The sequence number of the entry after which the page begins; None for the first page.
        limit: The largest number of entries.
        newest_first: Whether the newest come first.
        kind: List only entries of this kind.
        after: List only entries recorded at this moment or later.
        before: List only entries recorded before this moment.
        purpose: List only entries of reservations with exactly this purpose.
        mechanism: List only entries with an event of this mechanism.
        principal_ids: List only entries that one of these principals made.
        subject_id: List only entries of the register about this subject.

    Raises:
        WrongKind: a stored value is not of its column's kind.
    """
    statement = select(Entry).where(Entry.budget_id == budget_id)
    if behind is not None:
        statement = statement.where(Entry.sequence < behind if newest_first else Entry.sequence > behind)
    if kind is not None:
        statement = statement.where(Entry.kind == kind)
    if after is not None:
        statement = statement.where(Entry.recorded_at >= after)
    if before is not None:
        statement = statement.where(Entry.recorded_at < before)
    if purpose is not None:
        statement = statement.where(Entry.purpose == purpose)
    if mechanism is not None:
        statement = statement.where(Entry.mechanisms.contains(f",{mechanism},", autoescape=True))
    if principal_ids is not None:
        statement = statement.where(Entry.principal_id.in_(principal_ids))
    if subject_id is not None:
        statement = statement.where(Entry.subject_id == subject_id)
    with wrong_kinds_named("an entry of the budget"):
        order = Entry.sequence.desc() if newest_first else Entry.sequence
        found: list[Entry | None] = list(session.scalars(statement.order_by(order).limit(limit)))
    entries = [entry for entry in found if entry is not None]
    if len(entries) < len(found):
        raise WrongKind("an entry of the budget has no leaf index")
    return entries


def of_reservation(session: Session, reservation: Reservation) -> list[Entry]:
    """Return the entries about a reservation, oldest first."""
    statement = select(Entry).where(
        Entry.budget_id == reservation.budget_id,
        # Entries have no index by reservation, but they have one by purpose, and the purpose of a run is unique.
        Entry.purpose == reservation.purpose,
        Entry.reservation_id == reservation.id,
    )
    return list(session.scalars(statement.order_by(Entry.sequence)))


def chain(session: Session, budget_id: str) -> Iterator[Entry]:
    """Return all entries of the budget, oldest first, a batch at a time."""
    statement = select(Entry).where(Entry.budget_id == budget_id).order_by(Entry.sequence)
    return iter(session.scalars(statement, execution_options={"yield_per": 1000}))
