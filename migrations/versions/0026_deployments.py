"""Add operators' statements about their deployments, once for each budget.

Revision ID: 0026
Revises: 0025
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deployments",
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("answers", sa.JSON(), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("stated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_deployments_budget_id_budgets")),
        sa.PrimaryKeyConstraint("budget_id", name=op.f("pk_deployments")),
    )


def downgrade() -> None:
    op.drop_table("deployments")
