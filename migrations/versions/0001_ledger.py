"""The ledger: budgets, reservations, append-only entries, idempotency records.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("neighboring_relation", sa.String(32), nullable=False),
        sa.Column("privacy_unit", sa.String(200), nullable=False),
        sa.Column("filter_kind", sa.String(32), nullable=False),
        sa.Column("filter", sa.JSON(), nullable=False),
        sa.Column("report_delta", sa.String(64), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("spent", sa.JSON(), nullable=False),
        sa.Column("reserved", sa.JSON(), nullable=False),
        sa.Column("headroom", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
        sa.CheckConstraint("headroom >= 0", name=op.f("ck_budgets_within_limit")),
        sa.CheckConstraint("sequence >= 0", name=op.f("ck_budgets_sequence")),
        sa.CheckConstraint(
            "neighboring_relation IN ('add_or_remove_one', 'replace_one', 'replace_special')",
            name=op.f("ck_budgets_neighboring_relation"),
        ),
    )
    op.create_index(op.f("ix_budgets_created_at"), "budgets", ["created_at"])
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("charged_events", sa.JSON(), nullable=True),
        sa.Column("purpose", sa.String(200), nullable=False),
        sa.Column("cost", sa.JSON(), nullable=False),
        sa.Column("charged", sa.JSON(), nullable=True),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("engine_version", sa.String(16), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=True),
        sa.Column("plan_hash", sa.String(64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_reservations_budget_id_budgets")),
        sa.UniqueConstraint("budget_id", "sequence", name=op.f("uq_reservations_budget_id")),
        sa.CheckConstraint(
            "state IN ('pending', 'started', 'committed', 'voided', 'expired')", name=op.f("ck_reservations_state")
        ),
        sa.CheckConstraint(
            "(state = 'committed') = (charged IS NOT NULL)", name=op.f("ck_reservations_charged_when_committed")
        ),
        sa.CheckConstraint(
            "(state IN ('pending', 'started')) = (resolved_at IS NULL)", name=op.f("ck_reservations_resolved_at")
        ),
    )
    op.create_index("ix_reservations_expiry", "reservations", ["budget_id", "state", "expires_at"])
    op.create_index(op.f("ix_reservations_run_id"), "reservations", ["run_id"])
    op.create_table(
        "entries",
        sa.Column("leaf_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("reservation_id", sa.String(64), nullable=True),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("purpose", sa.String(200), nullable=True),
        sa.Column("amounts", sa.JSON(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("engine_version", sa.String(16), nullable=False),
        sa.Column("canonical", sa.LargeBinary(), nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("leaf_index", name=op.f("pk_entries")),
        sa.UniqueConstraint("id", name=op.f("uq_entries_id")),
        sa.UniqueConstraint("budget_id", "sequence", name=op.f("uq_entries_budget_id")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_entries_budget_id_budgets")),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name=op.f("fk_entries_reservation_id_reservations")
        ),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_entries_sequence")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_entries_budget_kind", "entries", ["budget_id", "kind", "sequence"])
    op.create_index("ix_entries_budget_recorded_at", "entries", ["budget_id", "recorded_at"])
    op.create_table(
        "idempotency_records",
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("answer", sa.JSON(), nullable=True),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("principal_id", "key", name=op.f("pk_idempotency_records")),
    )
    _make_entries_append_only()


def _make_entries_append_only() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER entries_refuse_{verb.lower()} BEFORE {verb} ON entries "
                "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END"
            )
        # INSERT OR REPLACE would delete the old row without firing its trigger (recursive_triggers is off).
        op.execute(
            "CREATE TRIGGER entries_refuse_replace BEFORE INSERT ON entries "
            "WHEN EXISTS (SELECT 1 FROM entries WHERE leaf_index = NEW.leaf_index OR id = NEW.id "
            "OR (budget_id = NEW.budget_id AND sequence = NEW.sequence)) "
            "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END"
        )
        return
    op.execute(
        "CREATE FUNCTION entries_refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'entries are append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER entries_refuse_change BEFORE UPDATE OR DELETE ON entries "
        "FOR EACH ROW EXECUTE FUNCTION entries_refuse_change()"
    )
    op.execute(
        "CREATE TRIGGER entries_refuse_truncate BEFORE TRUNCATE ON entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION entries_refuse_change()"
    )


def downgrade() -> None:
    for table in ("idempotency_records", "entries", "reservations", "budgets"):
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION entries_refuse_change()")
