"""Leases on runs: the epoch of a claim, and the counter that its worker raises."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("epoch", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("heartbeat", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("runs", "heartbeat")
    op.drop_column("runs", "epoch")
