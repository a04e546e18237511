"""Spending by key and by time: charges of a budget and of those under it, added up by a key.

Sums are exact whatever their size: the database groups equal amounts and counts them, and Python multiplies and adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, cast, collate, func, literal_column, select, type_coerce
from sqlalchemy.orm import Session

from app.ledger.states import plus
from app.tables.ledger import Budget, Reservation, under
from app.tables.states import Amounts, ReservationStatus

_READ_AT_ONCE = 1000


class GroupBy(StrEnum):
    """The property by which charges are grouped."""

    DAY = "day"
    """The day in UTC on which a charge was committed."""
    MONTH = "month"
    """The month in UTC in which a charge was committed."""
    PURPOSE = "purpose"
    """The purpose that was given with the reservation."""
    PRINCIPAL = "principal"
    """The key that made the reservation."""
    MECHANISM = "mechanism"
    """The kinds of mechanism that were charged."""

    @property
    def is_time(self) -> bool:
        return self in (GroupBy.DAY, GroupBy.MONTH)


@dataclass(frozen=True)
class Period:
    """Charges that were resolved from ``after`` on and earlier than ``before``; None means no bound."""

    after: datetime | None = None
    before: datetime | None = None


@dataclass(frozen=True)
class Spent:
    """The charges of one key.

    Attributes:
        key: A day (2026-05-01) or a month (2026-05) in UTC, a purpose, a principal, or kinds of mechanism, each between
            commas.
        amounts: Their sum, in the filter's units.
        charges: The number of charges.
        first_at: The time of the first charge.
        cumulative: The sum of all charges up to this key, if the key is a time.
    """

    key: str
    amounts: Amounts
    charges: int
    first_at: datetime
    cumulative: Amounts | None


def spending(
    session: Session, budget: Budget, group_by: GroupBy, period: Period, *, after_key: str | None, limit: int
) -> list[Spent]:
    """Return the next keys in order, with the sums of their charges.

    Args:
        session: A session.
        budget: The budget; those under it are included.
        group_by: The key.
        period: The time of the charges.
        after_key: The last key of the page before; None for the first page.
        limit: The largest number of keys.
    """
    key = _key(session, group_by)
    charges = _charges(budget, period)
    total = budget.filter.zero if group_by.is_time else None
    if after_key is not None:
        if total is not None:
            total, _, _ = _sum(total, session.execute(_counted(charges.where(key <= after_key))))
        charges = charges.where(key > after_key)
    statement = _counted(charges.add_columns(key.label("key"))).group_by(key).order_by(key)
    rows = session.execute(statement, execution_options={"yield_per": _READ_AT_ONCE})
    found = []
    for each, group in islice(groupby(rows, attrgetter("key")), limit):
        amounts, count, first_at = _sum(budget.filter.zero, group)
        assert first_at is not None, "a key has charges"
        total = None if total is None else plus(total, amounts)
        found.append(Spent(each, amounts, count, first_at, total))
    rows.close()
    return found


def _key(session: Session, group_by: GroupBy) -> ColumnElement[str]:
    is_sqlite = session.get_bind().dialect.name == "sqlite"
    if group_by.is_time:
        # Numbers are written as literals, because PostgreSQL would take equal parameters in two clauses for different
        # ones.
        letters: ColumnElement[int] = literal_column("10" if group_by is GroupBy.DAY else "7")
        moment = Reservation.resolved_at
        text = moment if is_sqlite else cast(func.timezone(literal_column("'UTC'"), moment), Text)
        return func.substr(text, literal_column("1"), letters, type_=Text)
    column = {
        GroupBy.PURPOSE: Reservation.purpose,
        GroupBy.PRINCIPAL: Reservation.principal_id,
        GroupBy.MECHANISM: Reservation.mechanisms,
    }[group_by]
    # Sorts by code points, as SQLite and Python do, independently of the database's locale.
    return type_coerce(column, Text) if is_sqlite else collate(column, "C")


def _charges(budget: Budget, period: Period) -> Select[Amounts | None]:
    statement = (
        select(Reservation.charged)
        .join(Budget, Budget.id == Reservation.budget_id)
        .where(under(budget.path), Reservation.state == str(ReservationStatus.COMMITTED))
    )
    if period.after is not None:
        statement = statement.where(Reservation.resolved_at >= period.after)
    if period.before is not None:
        statement = statement.where(Reservation.resolved_at < period.before)
    return statement


def _counted(charges: Select[Any]) -> Select[Any]:
    """Return the different amounts, how often each was charged, and when it was first charged."""
    counted = func.count().label("charges"), func.min(Reservation.resolved_at).label("first_at")
    return charges.add_columns(*counted).group_by(Reservation.charged)


def _sum(first: Amounts, rows: Iterable[Any]) -> tuple[Amounts, int, datetime | None]:
    total, charges, first_at = first, 0, None
    for row in rows:
        total = plus(total, tuple(row.charges * amount for amount in row.charged))
        charges += row.charges
        first_at = row.first_at if first_at is None else min(first_at, row.first_at)
    return total, charges, first_at
