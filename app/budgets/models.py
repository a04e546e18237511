"""Tables of budgets and reservations: the present state, which the ledger's entries can rebuild."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from accounting.relations import NeighboringRelation
from app.db.base import Base, UtcDateTime
from app.ledger.states import ReservationStatus


def _one_of(column: str, values: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


class Budget(Base):
    """A limit on privacy loss and what became of it.

    Amounts are lists of integers in nano-units of the filter's currency, one per order in a Rényi filter. `headroom`
    is the largest room that any order still has; the database itself refuses to let it become negative. The row is
    the lock of everything that concerns the budget.
    """

    __tablename__ = "budgets"
    __table_args__ = (
        CheckConstraint("headroom >= 0", name="within_limit"),
        CheckConstraint("sequence >= 0", name="sequence"),
        CheckConstraint(_one_of("neighboring_relation", list(NeighboringRelation)), name="neighboring_relation"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    neighboring_relation: Mapped[str] = mapped_column(String(32))
    privacy_unit: Mapped[str] = mapped_column(String(200))
    filter_kind: Mapped[str] = mapped_column(String(32))
    filter: Mapped[dict[str, Any]] = mapped_column(JSON)
    report_delta: Mapped[str | None] = mapped_column(String(64))
    labels: Mapped[dict[str, str]] = mapped_column(JSON)
    principal_id: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    spent: Mapped[list[int]] = mapped_column(JSON)
    reserved: Mapped[list[int]] = mapped_column(JSON)
    headroom: Mapped[int] = mapped_column(BigInteger)
    sequence: Mapped[int] = mapped_column(BigInteger)
    head_hash: Mapped[str] = mapped_column(String(64))


class Reservation(Base):
    """Budget held for events that have not happened yet, and how that ended."""

    __tablename__ = "reservations"
    __table_args__ = (
        CheckConstraint(_one_of("state", list(ReservationStatus)), name="state"),
        CheckConstraint("(state = 'committed') = (charged IS NOT NULL)", name="charged_when_committed"),
        CheckConstraint("(state IN ('pending', 'started')) = (resolved_at IS NULL)", name="resolved_at"),
        # One reservation per entry; also the order in which a budget's reservations are listed.
        UniqueConstraint("budget_id", "sequence"),
        # Finds the holds that may be released when room is needed.
        Index("ix_reservations_expiry", "budget_id", "state", "expires_at"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"))
    sequence: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    events: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    charged_events: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    purpose: Mapped[str] = mapped_column(String(200))
    cost: Mapped[list[int]] = mapped_column(JSON)
    charged: Mapped[list[int] | None] = mapped_column(JSON(none_as_null=True))
    warnings: Mapped[list[dict[str, str]]] = mapped_column(JSON)
    engine_version: Mapped[str] = mapped_column(String(16))
    principal_id: Mapped[str] = mapped_column(String(64))
    run_id: Mapped[str | None] = mapped_column(String(64), index=True)
    plan_hash: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    resolved_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
