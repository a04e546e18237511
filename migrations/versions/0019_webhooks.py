"""Webhooks, and the outbox of their messages.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("url", sa.String(1000), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("fractions", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("secret_version", sa.Integer(), nullable=False),
        sa.Column("dropped", sa.Integer(), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_webhooks_budget_id_budgets")),
        sa.CheckConstraint("state IN ('active', 'disabled')", name=op.f("ck_webhooks_state")),
        sa.CheckConstraint("dropped >= 0", name=op.f("ck_webhooks_dropped")),
    )
    op.create_index(op.f("ix_webhooks_budget_id"), "webhooks", ["budget_id"])
    op.create_table(
        "webhook_messages",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("webhook_id", sa.String(64), nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(200), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.String(40), nullable=True),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_messages")),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], name=op.f("fk_webhook_messages_webhook_id_webhooks")),
        sa.UniqueConstraint("webhook_id", "subject", name=op.f("uq_webhook_messages_webhook_id")),
        sa.CheckConstraint("state IN ('pending', 'delivered', 'given_up')", name=op.f("ck_webhook_messages_state")),
        sa.CheckConstraint("(state = 'pending') = (ended_at IS NULL)", name=op.f("ck_webhook_messages_ended_at")),
    )
    op.create_index("ix_webhook_messages_webhook_created_at", "webhook_messages", ["webhook_id", "created_at", "id"])
    op.create_index(
        "ix_webhook_messages_due",
        "webhook_messages",
        ["due_at"],
        postgresql_where=sa.text("state = 'pending'"),
        sqlite_where=sa.text("state = 'pending'"),
    )


def downgrade() -> None:
    op.drop_table("webhook_messages")
    op.drop_table("webhooks")
