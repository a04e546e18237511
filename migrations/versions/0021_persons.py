"""The column with ids of persons, and how many rows one person may have.

Older data sets have no such column. No migration reads rows, so nobody knows which person each of their rows belongs
to.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_BOUNDED = "ck_datasets_persons_are_bounded"
_PRIVATE = "ck_datasets_persons_are_private"


def upgrade() -> None:
    with op.batch_alter_table("datasets") as datasets:
        datasets.add_column(sa.Column("person_column", sa.String(200), nullable=True))
        datasets.add_column(sa.Column("rows_per_person", sa.Integer(), nullable=True))
        datasets.create_check_constraint(op.f(_BOUNDED), "(person_column IS NULL) = (rows_per_person IS NULL)")
        datasets.create_check_constraint(op.f(_PRIVATE), "person_column IS NULL OR NOT is_public")


def downgrade() -> None:
    with op.batch_alter_table("datasets") as datasets:
        datasets.drop_constraint(op.f(_BOUNDED), type_="check")
        datasets.drop_constraint(op.f(_PRIVATE), type_="check")
        datasets.drop_column("person_column")
        datasets.drop_column("rows_per_person")
