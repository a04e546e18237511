"""The table of commands that came with an idempotency key, and of their answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, UtcDateTime

MAX_KEY_LENGTH = 200


class IdempotencyRecord(Base):
    """The answer to one command, written in the same transaction as the command's effect."""

    __tablename__ = "idempotency_records"

    principal_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(MAX_KEY_LENGTH), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int | None] = mapped_column(Integer)
    answer: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    recorded_at: Mapped[datetime] = mapped_column(UtcDateTime)
