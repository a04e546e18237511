"""The append-only entries of the ledger. Triggers refuse to change or delete one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, UtcDateTime


class Entry(Base):
    """One transition of one budget.

    `canonical` holds the bytes that were hashed, once and for ever; every other column repeats something in them for
    queries. `leaf_index` numbers the entries of all budgets: unique and growing; a transaction that fails may leave a
    gap.
    """

    __tablename__ = "entries"
    __table_args__ = (
        UniqueConstraint("budget_id", "sequence"),
        UniqueConstraint("id"),
        CheckConstraint("sequence >= 1", name="sequence"),
        Index("ix_entries_budget_kind", "budget_id", "kind", "sequence"),
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
    amounts: Mapped[list[int]] = mapped_column(JSON)
    events: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    recorded_at: Mapped[datetime] = mapped_column(UtcDateTime)
    engine_version: Mapped[str] = mapped_column(String(16))
    canonical: Mapped[bytes] = mapped_column(LargeBinary)
    previous_hash: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))
