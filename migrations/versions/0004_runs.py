"""Runs: what is queued, running and done."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("algorithm", sa.String(64), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("plan_hash", sa.String(64), nullable=False),
        sa.Column("target", sa.JSON(), nullable=False),
        sa.Column("achieved", sa.JSON(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("model", sa.JSON(), nullable=False),
        sa.Column("description", sa.JSON(), nullable=False),
        sa.Column("dataset_id", sa.String(64)),
        sa.Column("inline_dataset", sa.JSON(none_as_null=True)),
        sa.Column("test_dataset_id", sa.String(64)),
        sa.Column("budget_id", sa.String(64)),
        sa.Column("reservation_id", sa.String(64)),
        sa.Column("seed", sa.BigInteger()),
        sa.Column("steps_done", sa.Integer(), nullable=False),
        sa.Column("steps_total", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(64)),
        sa.Column("result", sa.JSON(none_as_null=True)),
        sa.Column("problem", sa.JSON(none_as_null=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint("(dataset_id IS NULL) <> (inline_dataset IS NULL)", name=op.f("ck_runs_one_dataset")),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelling', 'cancelled')",
            name=op.f("ck_runs_state"),
        ),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_runs_dataset_id_datasets")),
        sa.ForeignKeyConstraint(["test_dataset_id"], ["datasets.id"], name=op.f("fk_runs_test_dataset_id_datasets")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_runs_budget_id_budgets")),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name=op.f("fk_runs_reservation_id_reservations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("reservation_id", name=op.f("uq_runs_reservation_id")),
    )
    op.create_index("ix_runs_state_created_at", "runs", ["state", "created_at"])


def downgrade() -> None:
    op.drop_index("ix_runs_state_created_at", "runs")
    op.drop_table("runs")
