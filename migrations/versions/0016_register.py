"""The register: a chain of entries about data sets, keys, runs and audits; what a reservation is for, and its entry.

The service enters existing objects before it enters anything new, since no migration writes entries.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_ABOUT_SOMETHING = sa.text("subject_id IS NOT NULL")
_INDICES = {
    "ix_entries_budget_kind": ["budget_id", "kind", "sequence"],
    "ix_entries_budget_purpose": ["budget_id", "purpose", "sequence"],
    "ix_entries_budget_recorded_at": ["budget_id", "recorded_at"],
}
_REFUSED = "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END"
_SAME = "leaf_index = NEW.leaf_index OR id = NEW.id OR (budget_id = NEW.budget_id AND sequence = NEW.sequence)"


def upgrade() -> None:
    registers = op.create_table(
        "registers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
        sa.CheckConstraint("id = 'register'", name=op.f("ck_registers_one")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_registers")),
    )
    op.bulk_insert(registers, [{"id": "register", "sequence": 0, "head_hash": "0" * 64}])
    op.add_column("reservations", sa.Column("dataset", sa.JSON(), nullable=True))
    op.add_column("reservations", sa.Column("entry_hash", sa.String(64), nullable=False, server_default=sa.text("''")))
    op.execute(
        "UPDATE reservations SET entry_hash = COALESCE((SELECT hash FROM entries WHERE "
        "entries.budget_id = reservations.budget_id AND entries.sequence = reservations.sequence), '')"
    )
    # The chain of the register belongs to no budget. Verification checks that every other chain has one.
    if op.get_bind().dialect.name == "sqlite":
        _make_entries_anew()
    else:
        op.drop_constraint("fk_entries_budget_id_budgets", "entries", type_="foreignkey")
        op.add_column("entries", sa.Column("subject_id", sa.String(64), nullable=True))
    op.create_index(
        "ix_entries_subject_id",
        "entries",
        ["subject_id", "sequence"],
        postgresql_where=_ABOUT_SOMETHING,
        sqlite_where=_ABOUT_SOMETHING,
    )


def _make_entries_anew() -> None:
    """Move every entry, with its leaf index, into a new table, since SQLite cannot drop a constraint."""
    op.create_table(
        "new_entries",
        sa.Column("leaf_index", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("reservation_id", sa.String(64), nullable=True),
        sa.Column("subject_id", sa.String(64), nullable=True),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("purpose", sa.String(200), nullable=True),
        sa.Column("mechanisms", sa.String(500), nullable=False, server_default=sa.text("''")),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("canonical", sa.LargeBinary(), nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("leaf_index", name=op.f("pk_entries")),
        sa.UniqueConstraint("id", name=op.f("uq_entries_id")),
        sa.UniqueConstraint("budget_id", "sequence", name=op.f("uq_entries_budget_id")),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name=op.f("fk_entries_reservation_id_reservations")
        ),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_entries_sequence")),
        sqlite_autoincrement=True,
    )
    columns = (
        "leaf_index, id, budget_id, sequence, kind, reservation_id, principal_id, purpose, mechanisms, recorded_at, "
        "canonical, previous_hash, hash"
    )
    op.execute(f"INSERT INTO new_entries ({columns}) SELECT {columns} FROM entries ORDER BY leaf_index")  # noqa: S608
    # The largest index that was ever given out, even if its entry is gone.
    op.execute(
        "UPDATE sqlite_sequence SET seq = MAX(seq, (SELECT seq FROM sqlite_sequence WHERE name = 'entries')) "
        "WHERE name = 'new_entries' AND EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'entries')"
    )
    op.drop_table("entries")
    op.rename_table("new_entries", "entries")
    for name, indexed in _INDICES.items():
        op.create_index(name, "entries", indexed)
    for verb in ("UPDATE", "DELETE"):
        op.execute(f"CREATE TRIGGER entries_refuse_{verb.lower()} BEFORE {verb} ON entries {_REFUSED}")
    op.execute(
        "CREATE TRIGGER entries_refuse_replace BEFORE INSERT ON entries "  # noqa: S608
        f"WHEN EXISTS (SELECT 1 FROM entries WHERE {_SAME}) {_REFUSED}"
    )


def downgrade() -> None:
    """Refuse, because checkpoints that were handed out depend on the places of the register's entries in the tree."""
    raise RuntimeError("the ledger does not go back before revision 0016; restore a backup instead")
