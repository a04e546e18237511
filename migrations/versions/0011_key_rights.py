"""Rights and limits of API keys: budgets, rotation, limits of requests, last use.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# All of them may be null, because the version before this one may still write keys beside it.
_COLUMNS = {
    "budgets": sa.JSON(none_as_null=True),
    "requests_per_second": sa.Double(),
    "concurrent_requests": sa.Integer(),
    "rotated_at": sa.DateTime(timezone=True),
    "previous_token_hash": sa.String(64),
    "previous_token_until": sa.DateTime(timezone=True),
    "last_used_at": sa.DateTime(timezone=True),
}


def upgrade() -> None:
    for name, kind in _COLUMNS.items():
        op.add_column("api_keys", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("api_keys") as keys:
        for name in _COLUMNS:
            keys.drop_column(name)
