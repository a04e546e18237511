"""The share of a data set's rows that is held out of training.

Older data sets hold out no rows, because the coins are tossed when rows are stored, and no migration reads rows.

Revision ID: 0025
Revises: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_PRIVATE = "ck_datasets_held_out_rows_are_private"


def upgrade() -> None:
    with op.batch_alter_table("datasets") as datasets:
        datasets.add_column(sa.Column("held_out_share", sa.Double(), nullable=True))
        datasets.create_check_constraint(op.f(_PRIVATE), "held_out_share IS NULL OR NOT is_public")


def downgrade() -> None:
    with op.batch_alter_table("datasets") as datasets:
        datasets.drop_constraint(op.f(_PRIVATE), type_="check")
        datasets.drop_column("held_out_share")
