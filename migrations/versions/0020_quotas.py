"""How much each key writes to the ledger in a day, how many reservations it holds open, and how often each was
extended.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_OPEN = sa.text("resolved_at IS NULL")
_EXTENDS = sa.text("kind = 'extend'")


def upgrade() -> None:
    # Writes before the upgrade are not counted, so the quotas of that day begin anew.
    op.create_table(
        "ledger_uses",
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("entries", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("principal_id", "day", name=op.f("pk_ledger_uses")),
    )
    op.create_index(
        "ix_reservations_open", "reservations", ["principal_id"], postgresql_where=_OPEN, sqlite_where=_OPEN
    )
    op.create_index(
        "ix_entries_extensions", "entries", ["reservation_id"], postgresql_where=_EXTENDS, sqlite_where=_EXTENDS
    )


def downgrade() -> None:
    op.drop_index("ix_entries_extensions", "entries")
    op.drop_index("ix_reservations_open", "reservations")
    op.drop_table("ledger_uses")
