"""The lives of the ledger. The fence outside of the database has the present one, too.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # The first life begins when the fence is made. Migrations do not know the fence, so the next start of a server
    # makes it. A loss before that cannot be noticed.
    op.create_table(
        "ledger_lives",
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("life", sa.String(64), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("loss", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_ledger_lives")),
        sa.UniqueConstraint("life", name=op.f("uq_ledger_lives_life")),
    )


def downgrade() -> None:
    op.drop_table("ledger_lives")
