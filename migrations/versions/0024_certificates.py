"""Add the certificates of charges, and the certificate of each reservation.

Older reservations have none.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "certificates",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_certificates")),
    )
    op.add_column("reservations", sa.Column("certificate", sa.String(64), nullable=True))


def downgrade() -> None:
    op.drop_column("reservations", "certificate")
    op.drop_table("certificates")
