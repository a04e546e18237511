"""Add the cosignatures of checkpoints by witnesses.

Revision ID: 0028
Revises: 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "merkle_cosignatures",
        sa.Column("tree_size", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("witness", sa.String(400), nullable=False),
        sa.Column("cosigned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tree_size", "witness", name=op.f("pk_merkle_cosignatures")),
    )


def downgrade() -> None:
    op.drop_table("merkle_cosignatures")
