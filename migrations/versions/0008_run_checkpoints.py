"""Runs that go on after their worker was lost: the stream of randomness of each run, and how often its worker was
lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("stream_id", sa.String(64), nullable=True))
    op.add_column("runs", sa.Column("workers_lost", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("runs", "workers_lost")
    op.drop_column("runs", "stream_id")
