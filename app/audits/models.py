"""The audits table: claims, and what attacks on them found."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, UtcDateTime


class Audit(Base):
    """One audit. It is made of canaries and noise alone: no row of any data set has a part in it."""

    __tablename__ = "audits"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    principal_id: Mapped[str] = mapped_column(String(64))
    algorithm: Mapped[str] = mapped_column(String(64))
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"))
    plan: Mapped[bytes] = mapped_column(LargeBinary)
    plan_hash: Mapped[str] = mapped_column(String(64))
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    claim: Mapped[dict[str, Any]] = mapped_column(JSON)
    finding: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        Index("ix_audits_created_at", "created_at", "id"),
        Index("ix_audits_run_id", "run_id"),
    )
