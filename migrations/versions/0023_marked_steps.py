"""Add the marks that say how many steps of a run may have drawn noise.

Older runs have no mark, so all of their steps count.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "marked_steps",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_marked_steps_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_marked_steps")),
        sa.CheckConstraint("steps >= 1", name=op.f("ck_marked_steps_steps")),
    )


def downgrade() -> None:
    op.drop_table("marked_steps")
