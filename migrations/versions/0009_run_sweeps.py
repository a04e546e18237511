"""Sweeps of runs: grids under one charge, and the runs that belong to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_sweeps",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("select", sa.String(8), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("sweep_hash", sa.String(64), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=True),
        sa.Column("reservation_id", sa.String(64), nullable=True),
        sa.Column("guarantee", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("trials", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("score", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("trials_left", sa.Integer(), nullable=True),
        sa.Column("release_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("is_cancelled", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("outcome", sa.String(16), nullable=True),
        sa.Column("best_run_id", sa.String(64), nullable=True),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("\"select\" IN ('all', 'best')", name=op.f("ck_run_sweeps_select")),
        sa.CheckConstraint("outcome IN ('succeeded', 'failed', 'cancelled')", name=op.f("ck_run_sweeps_outcome")),
        sa.CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name=op.f("ck_run_sweeps_finished_at")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_run_sweeps_budget_id_budgets")),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name=op.f("fk_run_sweeps_reservation_id_reservations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_sweeps")),
        sa.UniqueConstraint("reservation_id", name=op.f("uq_run_sweeps_reservation_id")),
    )
    op.create_index("ix_run_sweeps_created_at", "run_sweeps", ["created_at", "id"])
    op.create_index("ix_run_sweeps_finished_at", "run_sweeps", ["finished_at"])
    op.create_table(
        "run_sweep_cells",
        sa.Column("sweep_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.Column("plan_hash", sa.String(64), nullable=False),
        sa.Column("achieved", sa.JSON(), nullable=False),
        sa.Column("draft", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["sweep_id"], ["run_sweeps.id"], name=op.f("fk_run_sweep_cells_sweep_id_run_sweeps")),
        sa.PrimaryKeyConstraint("sweep_id", "number", name=op.f("pk_run_sweep_cells")),
    )
    # This is plain SQL, because SQLite accepts a reference only together with a new column.
    op.execute(
        "ALTER TABLE runs ADD COLUMN sweep_id VARCHAR(64) "
        "CONSTRAINT fk_runs_sweep_id_run_sweeps REFERENCES run_sweeps (id)"
    )
    op.add_column("runs", sa.Column("sweep_cell", sa.Integer(), nullable=True))
    op.add_column("runs", sa.Column("score_noise_multiplier", sa.Double(), nullable=True))
    op.add_column("runs", sa.Column("is_withheld", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("runs", sa.Column("is_spare", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index(op.f("ix_runs_sweep_id"), "runs", ["sweep_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_runs_sweep_id"), "runs")
    with op.batch_alter_table("runs") as runs:
        for column in ("is_spare", "is_withheld", "score_noise_multiplier", "sweep_cell", "sweep_id"):
            runs.drop_column(column)
    op.drop_table("run_sweep_cells")
    op.drop_table("run_sweeps")
