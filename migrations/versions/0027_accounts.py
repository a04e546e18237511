"""Add the issuer and the subject of a provider's accounts to the keys.

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("api_keys") as keys:
        keys.add_column(sa.Column("issuer", sa.String(500)))
        keys.add_column(sa.Column("subject", sa.String(255)))
        keys.create_unique_constraint(op.f("uq_api_keys_issuer"), ["issuer", "subject"])


def downgrade() -> None:
    with op.batch_alter_table("api_keys") as keys:
        keys.drop_constraint(op.f("uq_api_keys_issuer"), type_="unique")
        keys.drop_column("subject")
        keys.drop_column("issuer")
