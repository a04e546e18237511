"""The schedule of a run on private data, and the time at which its end is shown.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Runs that are queued or in progress get a schedule with their next claim. The recorded times of ended runs stay
    # unchanged; they may show how many rows were read.
    op.add_column("runs", sa.Column("schedule", sa.JSON(), nullable=True))
    op.add_column("runs", sa.Column("release_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("release_at")
        runs.drop_column("schedule")
