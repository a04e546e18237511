"""Tables of the ledger: the append-only entries, and what was charged so far by kind of step."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, UtcDateTime
from app.ledger.columns import Events, EventsText


class Entry(Base):
    """One transition of one budget. Triggers refuse to change or delete it.

    `canonical` holds the bytes that were hashed, once and for ever; every other column repeats something in them, for
    queries alone. `leaf_index` numbers the entries of all budgets: unique and growing; a transaction that fails may
    leave a gap.
    """

    __tablename__ = "entries"
    __table_args__ = (
        UniqueConstraint("budget_id", "sequence"),
        UniqueConstraint("id"),
        CheckConstraint("sequence >= 1", name="sequence"),
        Index("ix_entries_budget_kind", "budget_id", "kind", "sequence"),
        Index("ix_entries_budget_purpose", "budget_id", "purpose", "sequence"),
        Index("ix_entries_budget_recorded_at", "budget_id", "recorded_at"),
        {"sqlite_autoincrement": True},
    )

    leaf_index: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    id: Mapped[str] = mapped_column(String(64))
    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"))
    sequence: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(String(32))
    reservation_id: Mapped[str | None] = mapped_column(ForeignKey("reservations.id"))
    principal_id: Mapped[str] = mapped_column(String(64))
    purpose: Mapped[str | None] = mapped_column(String(200))
    mechanisms: Mapped[str] = mapped_column(String(500), server_default=text("''"))
    recorded_at: Mapped[datetime] = mapped_column(UtcDateTime)
    canonical: Mapped[bytes] = mapped_column(LargeBinary)
    previous_hash: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))


class ExposedStep(Base):
    """How often a step may have been released under a budget: what its report composes, kept with every transition."""

    __tablename__ = "exposed_steps"
    __table_args__ = (CheckConstraint("count >= 0", name="count"),)

    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"), primary_key=True)
    step_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    step: Mapped[Events] = mapped_column(EventsText)
    count: Mapped[int] = mapped_column(BigInteger)
