"""Tables of budgets and reservations: the present state, which the ledger's entries can rebuild."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from accounting.filters import PrivacyFilter
from accounting.relations import NeighboringRelation
from app.db.base import Base, UtcDateTime
from app.ledger.columns import AmountsText, Events, EventsText, FilterText
from app.ledger.states import Amounts, ReservationStatus


def _one_of(column: str, values: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


class Budget(Base):
    """A limit on privacy loss and what became of it.

    Amounts are lists of integers in the filter's units, one per order in a Rényi filter; they count what is charged to
    the budget and to every budget under it. `headroom` is the room that decides admission; the database itself refuses
    to let it become negative, unless a correction told a truth beyond the limit. `path` is made of the ids from the
    root to the budget. The row is the lock of everything that concerns the budget.
    """

    __tablename__ = "budgets"
    __table_args__ = (
        CheckConstraint("headroom >= 0 OR overdrawn", name="within_limit"),
        CheckConstraint("sequence >= 0", name="sequence"),
        CheckConstraint(_one_of("neighboring_relation", list(NeighboringRelation)), name="neighboring_relation"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    neighboring_relation: Mapped[str] = mapped_column(String(32))
    privacy_unit: Mapped[str] = mapped_column(String(200))
    filter: Mapped[PrivacyFilter] = mapped_column(FilterText)
    report_delta: Mapped[str | None] = mapped_column(String(64))
    labels: Mapped[dict[str, str]] = mapped_column(JSON)
    principal_id: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id"), index=True)
    path: Mapped[str] = mapped_column(String(600), index=True)
    spent: Mapped[Amounts] = mapped_column(AmountsText)
    started: Mapped[Amounts] = mapped_column(AmountsText)
    pending: Mapped[Amounts] = mapped_column(AmountsText)
    overdrawn: Mapped[bool] = mapped_column(Boolean, default=False)
    headroom: Mapped[int] = mapped_column(BigInteger)
    sequence: Mapped[int] = mapped_column(BigInteger)
    head_hash: Mapped[str] = mapped_column(String(64))

    @property
    def root_id(self) -> str:
        """The id of the budget at the top of the tree."""
        return self.path.partition("/")[0]


class Reservation(Base):
    """Budget held for events that have not happened yet, and how that ended."""

    __tablename__ = "reservations"
    __table_args__ = (
        CheckConstraint(_one_of("state", list(ReservationStatus)), name="state"),
        CheckConstraint("(state = 'committed') = (charged IS NOT NULL)", name="charged_when_committed"),
        CheckConstraint("(state IN ('pending', 'started')) = (resolved_at IS NULL)", name="resolved_at"),
        # One reservation per entry; also the order in which a budget's reservations are listed.
        UniqueConstraint("budget_id", "sequence"),
        # Finds the holds that may be released, and those that are overdue.
        Index(
            "ix_reservations_expiry",
            "budget_id",
            "state",
            "expires_at",
            postgresql_where=text("resolved_at IS NULL"),
            sqlite_where=text("resolved_at IS NULL"),
        ),
        # Spending over time.
        Index(
            "ix_reservations_resolved_at",
            "budget_id",
            "resolved_at",
            postgresql_where=text("charged IS NOT NULL"),
            sqlite_where=text("charged IS NOT NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"))
    sequence: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    events: Mapped[Events] = mapped_column(EventsText)
    charged_events: Mapped[Events | None] = mapped_column(EventsText)
    mechanisms: Mapped[str] = mapped_column(String(500))
    purpose: Mapped[str] = mapped_column(String(200))
    cost: Mapped[Amounts] = mapped_column(AmountsText)
    charged: Mapped[Amounts | None] = mapped_column(AmountsText)
    charge_delta: Mapped[float | None] = mapped_column(Double)
    corrected: Mapped[bool] = mapped_column(Boolean, default=False)
    warnings: Mapped[list[dict[str, str]]] = mapped_column(JSON)
    engine_version: Mapped[str] = mapped_column(String(16))
    principal_id: Mapped[str] = mapped_column(String(64))
    run_id: Mapped[str | None] = mapped_column(String(64))
    plan_hash: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    resolved_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
