"""Data sets, and the three that come with the service.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from app.datasets.bundled import declaration

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# The data sets of this revision; a set that is bundled later is registered by a later revision.
BUNDLED = ("ds_breast_cancer", "ds_diabetes", "ds_digits")
REGISTERED_AT = datetime(2025, 1, 1, tzinfo=UTC)


def upgrade() -> None:
    op.create_table(
        "dataset_contents",
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("root_budget_id", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("content_hash", name=op.f("pk_dataset_contents")),
        sa.ForeignKeyConstraint(
            ["root_budget_id"], ["budgets.id"], name=op.f("fk_dataset_contents_root_budget_id_budgets")
        ),
    )
    datasets = op.create_table(
        "datasets",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("is_bundled", sa.Boolean(), nullable=False),
        sa.Column("declared_size", sa.BigInteger(), nullable=False),
        sa.Column("privacy_unit", sa.String(200), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=True),
        sa.Column("content_hash", sa.String(64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_datasets_budget_id_budgets")),
        sa.ForeignKeyConstraint(
            ["content_hash"], ["dataset_contents.content_hash"], name=op.f("fk_datasets_content_hash_dataset_contents")
        ),
        sa.CheckConstraint("is_public = (budget_id IS NULL)", name=op.f("ck_datasets_private_has_budget")),
        sa.CheckConstraint("is_bundled = (content_hash IS NULL)", name=op.f("ck_datasets_uploaded_has_content")),
        sa.CheckConstraint("is_public OR NOT is_bundled", name=op.f("ck_datasets_bundled_is_public")),
    )
    op.create_index(op.f("ix_datasets_content_hash"), "datasets", ["content_hash"])
    op.create_index(op.f("ix_datasets_created_at"), "datasets", ["created_at"])
    op.bulk_insert(datasets, [_row(dataset_id) for dataset_id in BUNDLED])


def _row(dataset_id: str) -> dict[str, object]:
    metadata = declaration(dataset_id).metadata
    return {
        "id": dataset_id,
        "name": metadata.name,
        "is_public": True,
        "is_bundled": True,
        "declared_size": metadata.declared_size,
        "privacy_unit": metadata.privacy_unit,
        "columns": [column.model_dump() for column in metadata.columns],
        "label": metadata.label,
        "budget_id": None,
        "content_hash": None,
        "created_at": REGISTERED_AT,
        "deleted_at": None,
    }


def downgrade() -> None:
    op.drop_table("datasets")
    op.drop_table("dataset_contents")
