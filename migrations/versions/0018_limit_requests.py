"""Requests for another limit of a budget.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "limit_requests",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("filter", sa.Text(), nullable=False),
        sa.Column("filter_before", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(200), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("approvals_needed", sa.Integer(), nullable=False),
        sa.Column("approvals", sa.JSON(), nullable=False),
        sa.Column("decided_by", sa.String(64), nullable=True),
        sa.Column("decision_reason", sa.String(200), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limit_requests")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_limit_requests_budget_id_budgets")),
        sa.UniqueConstraint("budget_id", "sequence", name=op.f("uq_limit_requests_budget_id")),
        sa.CheckConstraint(
            "state IN ('open', 'approved', 'refused', 'withdrawn')", name=op.f("ck_limit_requests_state")
        ),
        sa.CheckConstraint("(state = 'open') = (decided_at IS NULL)", name=op.f("ck_limit_requests_decided_at")),
        sa.CheckConstraint("approvals_needed >= 1", name=op.f("ck_limit_requests_approvals_needed")),
    )
    op.create_index(op.f("ix_limit_requests_created_at"), "limit_requests", ["created_at"])
    op.create_index(
        "ix_limit_requests_open",
        "limit_requests",
        ["budget_id", "principal_id"],
        postgresql_where=sa.text("state = 'open'"),
        sqlite_where=sa.text("state = 'open'"),
    )


def downgrade() -> None:
    op.drop_table("limit_requests")
