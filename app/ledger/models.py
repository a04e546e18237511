"""Tables of the ledger: the append-only entries and the tree over them, and what was charged by kind of step."""

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
    Text,
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


class MerkleTree(Base):
    """The one row of the tree over all entries. Triggers let its size and the number of checkpoints only grow.

    Attributes:
        ledger_id: Drawn once; checkpoints name it.
        size: How many entries are in the tree.
        frontier: The hashes of the complete subtrees that make it up, the largest first.
        settled_leaf_index: Every entry up to this place is in the tree, and none will appear there any more.
        awaited_leaf_index, awaited_transaction: On PostgreSQL, the next place that is settled, as soon as every
            transaction before this one is over.
        checkpoints: How many were signed.
    """

    __tablename__ = "merkle_trees"
    __table_args__ = (CheckConstraint("id = 1", name="one"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    ledger_id: Mapped[str] = mapped_column(String(64))
    size: Mapped[int] = mapped_column(BigInteger)
    frontier: Mapped[bytes] = mapped_column(LargeBinary)
    settled_leaf_index: Mapped[int] = mapped_column(BigInteger)
    awaited_leaf_index: Mapped[int | None] = mapped_column(BigInteger)
    awaited_transaction: Mapped[int | None] = mapped_column(BigInteger)
    checkpoints: Mapped[int] = mapped_column(BigInteger)


class MerkleLeaf(Base):
    """The place of an entry in the tree: from 0, without gaps. Triggers refuse to change or delete it.

    Without a foreign key, which would be looked up for each of a million old entries: verification compares the two.
    """

    __tablename__ = "merkle_leaves"
    __table_args__ = (UniqueConstraint("leaf_index"),)

    tree_index: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False
    )
    leaf_index: Mapped[int] = mapped_column(BigInteger)
    entry_hash: Mapped[bytes] = mapped_column(LargeBinary)


class MerkleNode(Base):
    """The root of a complete subtree of 256**level leaves. Triggers refuse to change or delete it."""

    __tablename__ = "merkle_nodes"

    level: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    node_index: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    hash: Mapped[bytes] = mapped_column(LargeBinary)


class MerkleCheckpoint(Base):
    """A checkpoint that was signed; numbered from 1, without gaps. Triggers refuse to change or delete it."""

    __tablename__ = "merkle_checkpoints"
    __table_args__ = (UniqueConstraint("tree_size", "public_key"),)

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    tree_size: Mapped[int] = mapped_column(BigInteger)
    root_hash: Mapped[bytes] = mapped_column(LargeBinary)
    public_key: Mapped[str] = mapped_column(String(200))
    note: Mapped[str] = mapped_column(Text)
    issued_at: Mapped[datetime] = mapped_column(UtcDateTime)
