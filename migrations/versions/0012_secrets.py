"""Check values of secrets, and the version of the secret under which each API key is hashed.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Migrations do not know the secrets, so the next start of a server enters the check values that identify them.
    op.create_table(
        "secrets",
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("check_value", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("purpose", "version", name=op.f("pk_secrets")),
    )
    # Existing tokens are hashed under version 1.
    op.add_column("api_keys", sa.Column("secret_version", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("api_keys", sa.Column("previous_secret_version", sa.Integer(), nullable=False, server_default="1"))


def downgrade() -> None:
    with op.batch_alter_table("api_keys") as keys:
        keys.drop_column("previous_secret_version")
        keys.drop_column("secret_version")
    op.drop_table("secrets")
