"""Tables of the ledger: entries, the tree over them, and the state that can be rebuilt from the entries.

Budgets, reservations and exposed steps are the present state. Entries, the tree and its checkpoints are append-only.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Date,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    literal,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from accounting.filters import PrivacyFilter
from accounting.relations import NeighboringRelation
from app.tables.base import Base, UtcDateTime
from app.tables.columns import AmountsText, Events, EventsText, FilterText
from app.tables.states import REGISTER, Amounts, LimitRequestStatus, ReservationStatus


def _one_of(column: str, values: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


class Budget(Base):
    """A limit on privacy loss, and how much of it is used.

    Amounts are lists of integers in the filter's units, one per order in a Rényi filter. They include charges to all
    budgets below. `headroom` decides admission; the database keeps it from becoming negative, unless a correction
    exceeded the limit. `path` consists of the ids from the root to the budget. Everything that concerns the budget is
    done under the lock of this row.
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
        """Return the id of the budget at the top of the tree."""
        return self.path.partition("/")[0]


def under(path: str) -> Any:
    """Return the condition that a budget has this path or is below it. All budgets meet the condition for the empty
    path."""
    if not path:
        return literal(True)
    column = Budget.__table__.c.path
    return (column == path) | column.startswith(f"{path}/", autoescape=True)


class Reservation(Base):
    """A hold on a budget for events that have not happened yet, and its outcome."""

    __tablename__ = "reservations"
    __table_args__ = (
        CheckConstraint(_one_of("state", list(ReservationStatus)), name="state"),
        CheckConstraint("(state = 'committed') = (charged IS NOT NULL)", name="charged_when_committed"),
        CheckConstraint("(state IN ('pending', 'started')) = (resolved_at IS NULL)", name="resolved_at"),
        # Each entry makes at most one reservation. The index also lists a budget's reservations in order.
        UniqueConstraint("budget_id", "sequence"),
        # This index finds the holds that may be released, and those that are overdue.
        Index(
            "ix_reservations_expiry",
            "budget_id",
            "state",
            "expires_at",
            postgresql_where=text("resolved_at IS NULL"),
            sqlite_where=text("resolved_at IS NULL"),
        ),
        # This index counts the open holds of a key.
        Index(
            "ix_reservations_open",
            "principal_id",
            postgresql_where=text("resolved_at IS NULL"),
            sqlite_where=text("resolved_at IS NULL"),
        ),
        # This index adds up spending over time.
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
    #: The data that the reservation is for: an id, a version and a keyed hash of the content.
    dataset: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    #: The SHA-256 of a certificate of what the reservation's events cost alone.
    certificate: Mapped[str | None] = mapped_column(String(64))
    #: The hash of the entry that made the reservation.
    entry_hash: Mapped[str] = mapped_column(String(64), server_default=text("''"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    resolved_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Certificate(Base):
    """A certificate. Entries name it by the hash of its bytes."""

    __tablename__ = "certificates"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class LimitRequest(Base):
    """A request for another limit, and its outcome.

    Attributes:
        sequence: The sequence of the entry that made the request.
        filter: The filter with the wanted limit.
        filter_before: The filter with the budget's limit at the time of the request.
        approvals: The approvals in their order: by whom, why and when.
        decided_by, decision_reason, decided_at: Who ended the request, why and when; None while it is open.
    """

    __tablename__ = "limit_requests"
    __table_args__ = (
        CheckConstraint(_one_of("state", list(LimitRequestStatus)), name="state"),
        CheckConstraint("(state = 'open') = (decided_at IS NULL)", name="decided_at"),
        CheckConstraint("approvals_needed >= 1", name="approvals_needed"),
        # Each entry makes at most one request. The index also lists a budget's requests in order.
        UniqueConstraint("budget_id", "sequence"),
        # This index finds the requests that wait for a decision.
        Index(
            "ix_limit_requests_open",
            "budget_id",
            "principal_id",
            postgresql_where=text("state = 'open'"),
            sqlite_where=text("state = 'open'"),
        ),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"))
    sequence: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16))
    filter: Mapped[PrivacyFilter] = mapped_column(FilterText)
    filter_before: Mapped[PrivacyFilter] = mapped_column(FilterText)
    reason: Mapped[str] = mapped_column(String(200))
    principal_id: Mapped[str] = mapped_column(String(64))
    approvals_needed: Mapped[int] = mapped_column(Integer)
    approvals: Mapped[list[dict[str, str]]] = mapped_column(JSON)
    decided_by: Mapped[str | None] = mapped_column(String(64))
    decision_reason: Mapped[str | None] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    decided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Register(Base):
    """The last entry of the register's chain. The register has the facts, other than reservations, that decide a
    charge."""

    __tablename__ = "registers"
    __table_args__ = (CheckConstraint(f"id = '{REGISTER}'", name="one"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger)
    head_hash: Mapped[str] = mapped_column(String(64))


class Entry(Base):
    """One transition of one budget, or one statement of the register. Triggers refuse to change or delete it.

    `canonical` holds the hashed bytes and never changes. The other columns repeat parts of these bytes for queries.
    `leaf_index` numbers the entries of all budgets. It is unique and growing; a failed transaction may leave a gap.
    """

    __tablename__ = "entries"
    __table_args__ = (
        UniqueConstraint("budget_id", "sequence"),
        UniqueConstraint("id"),
        CheckConstraint("sequence >= 1", name="sequence"),
        Index("ix_entries_budget_kind", "budget_id", "kind", "sequence"),
        Index("ix_entries_budget_purpose", "budget_id", "purpose", "sequence"),
        Index("ix_entries_budget_recorded_at", "budget_id", "recorded_at"),
        Index(
            "ix_entries_subject_id",
            "subject_id",
            "sequence",
            postgresql_where=text("subject_id IS NOT NULL"),
            sqlite_where=text("subject_id IS NOT NULL"),
        ),
        # This index counts how often a reservation was extended.
        Index(
            "ix_entries_extensions",
            "reservation_id",
            postgresql_where=text("kind = 'extend'"),
            sqlite_where=text("kind = 'extend'"),
        ),
        {"sqlite_autoincrement": True},
    )

    leaf_index: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    id: Mapped[str] = mapped_column(String(64))
    #: The chain of the entry: a budget's id, or `REGISTER`.
    budget_id: Mapped[str] = mapped_column(String(64))
    sequence: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(String(32))
    reservation_id: Mapped[str | None] = mapped_column(ForeignKey("reservations.id"))
    #: The subject, if the entry is in the register.
    subject_id: Mapped[str | None] = mapped_column(String(64))
    principal_id: Mapped[str] = mapped_column(String(64))
    purpose: Mapped[str | None] = mapped_column(String(200))
    mechanisms: Mapped[str] = mapped_column(String(500), server_default=text("''"))
    recorded_at: Mapped[datetime] = mapped_column(UtcDateTime)
    canonical: Mapped[bytes] = mapped_column(LargeBinary)
    previous_hash: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))


class LedgerUse(Base):
    """The use of one key on one day (UTC): the number of entries that it has written, and of their canonical bytes.

    A key's quotas are checked under the lock of this row. It repeats facts from entries, and the ledger does not depend
    on it.
    """

    __tablename__ = "ledger_uses"

    principal_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    entries: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)


class ExposedStep(Base):
    """The number of times that a step may have been released under a budget.

    Every transition updates the number, and the budget's report composes the steps.
    """

    __tablename__ = "exposed_steps"
    __table_args__ = (CheckConstraint("count >= 0", name="count"),)

    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"), primary_key=True)
    step_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    step: Mapped[Events] = mapped_column(EventsText)
    count: Mapped[int] = mapped_column(BigInteger)


class MerkleTree(Base):
    """The only row of the tree over all entries. Triggers ensure that its size and the number of checkpoints only grow.

    Attributes:
        ledger_id: The ledger's id, drawn once. Checkpoints name it.
        size: The number of entries in the tree.
        frontier: The hashes of the complete subtrees that form the tree, the largest first.
        settled_leaf_index: Every entry up to this `leaf_index` is in the tree, and no new entry will appear there.
        awaited_leaf_index, awaited_transaction: On PostgreSQL, the next settled place, and a transaction. The place is
            settled as soon as all transactions before that one are over.
        checkpoints: The number of signed checkpoints.
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
    """The place of an entry in the tree, counted from 0 without gaps. Triggers refuse to change or delete it.

    It has no foreign key, which would be checked for each of a million old entries. Verification compares leaves and
    entries.
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
    """A signed checkpoint. Checkpoints are numbered from 1 without gaps. Triggers refuse to change or delete them."""

    __tablename__ = "merkle_checkpoints"
    __table_args__ = (UniqueConstraint("tree_size", "public_key"),)

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    tree_size: Mapped[int] = mapped_column(BigInteger)
    root_hash: Mapped[bytes] = mapped_column(LargeBinary)
    public_key: Mapped[str] = mapped_column(String(200))
    note: Mapped[str] = mapped_column(Text)
    issued_at: Mapped[datetime] = mapped_column(UtcDateTime)


class MerkleCosignature(Base):
    """A witness's newest cosignature of the tree at one size. A later cosignature replaces it.

    Attributes:
        witness: The public key of the witness, as text.
        cosigned_at: The time in the cosignature.
        signature: The time and the signature, in the form of the note.
    """

    __tablename__ = "merkle_cosignatures"
    # This index finds the last cosignature of a witness by reading one row, even if the witness has been away for long.
    __table_args__ = (Index("ix_merkle_cosignatures_witness_tree_size", "witness", "tree_size"),)

    tree_size: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    witness: Mapped[str] = mapped_column(String(400), primary_key=True)
    cosigned_at: Mapped[datetime] = mapped_column(UtcDateTime)
    signature: Mapped[bytes] = mapped_column(LargeBinary)


class LedgerLife(Base):
    """A life of the ledger. The first life began when the fence was set up (`app.fence`). Each later life began when a
    loss of entries was acknowledged.

    Attributes:
        number: The number of the life, from 1 without gaps. The largest is the present life.
        life: A random id, which is also in the fence.
        loss: What was known to be missing when the life began; None for the first life.
    """

    __tablename__ = "ledger_lives"

    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    life: Mapped[str] = mapped_column(String(64), unique=True)
    began_at: Mapped[datetime] = mapped_column(UtcDateTime)
    loss: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
