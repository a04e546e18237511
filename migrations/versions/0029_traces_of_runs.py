"""A link to the trace of the request that began a run, and an index of each witness's newest cosignature.

Older runs have no link.

Revision ID: 0029
Revises: 0028
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_INDEX = "ix_merkle_cosignatures_witness_tree_size"


def upgrade() -> None:
    op.add_column("runs", sa.Column("trace_parent", sa.String(55), nullable=True))
    op.create_index(_INDEX, "merkle_cosignatures", ["witness", "tree_size"])


def downgrade() -> None:
    op.drop_index(_INDEX, "merkle_cosignatures")
    op.drop_column("runs", "trace_parent")
