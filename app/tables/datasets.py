"""Tables of data sets: their declarations, and the root budgets to which their contents are bound for ever."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, CheckConstraint, Double, ForeignKey, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, UtcDateTime
from app.tables.states import Change


class DatasetContent(Base):
    """The content of an uploaded data set, identified by a keyed hash. The row is kept even when all data sets with
    this content are deleted.

    Every decision about the content locks this row. The rows of data sets, which are kept after a deletion, say to
    which root budgets the content is bound.
    """

    __tablename__ = "dataset_contents"

    content_hash: Mapped[str] = mapped_column(String(64), primary_key=True)


class Dataset(Base):
    """A data set's declaration, with the sizes and the content of its first version. The row is kept after a deletion;
    the files are not."""

    __tablename__ = "datasets"
    __table_args__ = (
        CheckConstraint("is_public = (budget_id IS NULL)", name="private_has_budget"),
        CheckConstraint("is_bundled = (content_hash IS NULL)", name="uploaded_has_content"),
        CheckConstraint("is_public OR NOT is_bundled", name="bundled_is_public"),
        CheckConstraint("capacity >= declared_size", name="capacity_holds_declared_size"),
        CheckConstraint("(person_column IS NULL) = (rows_per_person IS NULL)", name="persons_are_bounded"),
        CheckConstraint("person_column IS NULL OR NOT is_public", name="persons_are_private"),
        CheckConstraint("held_out_share IS NULL OR NOT is_public", name="held_out_rows_are_private"),
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
    #: The extra column of the data set's files, which holds ids of persons; no table stores its cells.
    person_column: Mapped[str | None] = mapped_column(String(200))
    rows_per_person: Mapped[int | None] = mapped_column(Integer)
    #: The probability with which a row of any version is held out; null if no row is.
    held_out_share: Mapped[float | None] = mapped_column(Double)
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id"))
    content_hash: Mapped[str | None] = mapped_column(ForeignKey("dataset_contents.content_hash"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class DatasetVersion(Base):
    """The second or a later version of a private data set. The row never changes, and outlives the file."""

    __tablename__ = "dataset_versions"
    __table_args__ = (
        UniqueConstraint("dataset_id", "version"),
        CheckConstraint("version >= 2", name="first_is_the_data_set"),
        CheckConstraint("capacity >= declared_size", name="capacity_holds_declared_size"),
        CheckConstraint(f"change IN ({', '.join(repr(str(change)) for change in Change)})", name="change"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"))
    version: Mapped[int] = mapped_column(Integer)
    #: The root budget of the data set.
    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"))
    content_hash: Mapped[str] = mapped_column(ForeignKey("dataset_contents.content_hash"), index=True)
    declared_size: Mapped[int] = mapped_column(BigInteger)
    capacity: Mapped[int] = mapped_column(BigInteger)
    change: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(String(200))
    #: Whether the version also erases the rows of all earlier versions.
    erases_earlier: Mapped[bool] = mapped_column(Boolean)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
