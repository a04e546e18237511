"""Tables of data sets: what was declared about them, and which root budgets their content is bound to for ever."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, CheckConstraint, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, UtcDateTime


class DatasetContent(Base):
    """A content that was ever uploaded, known by a keyed hash. The row outlives every data set that held it.

    It is the lock of every decision about the content. Which root budgets the content is bound to, the data sets say:
    their rows stay after a deletion.
    """

    __tablename__ = "dataset_contents"

    content_hash: Mapped[str] = mapped_column(String(64), primary_key=True)


class Dataset(Base):
    """A data set's declaration. A deleted one stays, without its file."""

    __tablename__ = "datasets"
    __table_args__ = (
        CheckConstraint("is_public = (budget_id IS NULL)", name="private_has_budget"),
        CheckConstraint("is_bundled = (content_hash IS NULL)", name="uploaded_has_content"),
        CheckConstraint("is_public OR NOT is_bundled", name="bundled_is_public"),
        CheckConstraint("capacity >= declared_size", name="capacity_holds_declared_size"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    is_public: Mapped[bool] = mapped_column(Boolean)
    is_bundled: Mapped[bool] = mapped_column(Boolean)
    declared_size: Mapped[int] = mapped_column(BigInteger)
    capacity: Mapped[int] = mapped_column(BigInteger)
    privacy_unit: Mapped[str] = mapped_column(String(200))
    columns: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    label: Mapped[str] = mapped_column(String(200))
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id"))
    content_hash: Mapped[str | None] = mapped_column(ForeignKey("dataset_contents.content_hash"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
