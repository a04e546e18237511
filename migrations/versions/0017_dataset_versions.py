"""Versions of private data sets, and the version that a run trains on. The first version is in the row of its data set.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dataset_versions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("dataset_id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("declared_size", sa.BigInteger(), nullable=False),
        sa.Column("capacity", sa.BigInteger(), nullable=False),
        sa.Column("change", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(200), nullable=False),
        sa.Column("erases_earlier", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_versions")),
        sa.UniqueConstraint("dataset_id", "version", name=op.f("uq_dataset_versions_dataset_id")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_dataset_versions_dataset_id_datasets")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_dataset_versions_budget_id_budgets")),
        sa.ForeignKeyConstraint(
            ["content_hash"],
            ["dataset_contents.content_hash"],
            name=op.f("fk_dataset_versions_content_hash_dataset_contents"),
        ),
        sa.CheckConstraint("version >= 2", name=op.f("ck_dataset_versions_first_is_the_data_set")),
        sa.CheckConstraint("capacity >= declared_size", name=op.f("ck_dataset_versions_capacity_holds_declared_size")),
        sa.CheckConstraint(
            "change IN ('appended', 'deleted', 'corrected', 'replaced')", name=op.f("ck_dataset_versions_change")
        ),
    )
    op.create_index("ix_dataset_versions_content_hash", "dataset_versions", ["content_hash"])
    op.add_column("runs", sa.Column("dataset_version", sa.Integer(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("dataset_version")
    op.drop_table("dataset_versions")
