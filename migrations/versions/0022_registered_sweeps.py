"""Sweeps are registered with a hash of their cells, and no column has the number of a sweep's trials any more.

The number now follows from the id of the sweep. An unfinished sweep for the best cannot go on with its old number: it
is cancelled, and remains charged if a trial was started.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_SWEEPS = sa.table(
    "run_sweeps",
    sa.column("id", sa.String),
    sa.column("select", sa.String),
    sa.column("cells_hash", sa.String),
    sa.column("is_cancelled", sa.Boolean),
    sa.column("finished_at", sa.DateTime(timezone=True)),
)
_CELLS = sa.table(
    "run_sweep_cells",
    sa.column("sweep_id", sa.String),
    sa.column("number", sa.Integer),
    sa.column("values", sa.JSON),
    sa.column("plan_hash", sa.String),
    sa.column("achieved", sa.JSON),
    sa.column("draft", sa.JSON),
)


def upgrade() -> None:
    op.add_column("run_sweeps", sa.Column("cells_hash", sa.String(64), nullable=False, server_default=sa.text("''")))
    connection = op.get_bind()
    for sweep_id in connection.scalars(sa.select(_SWEEPS.c.id)).all():
        hashed = hashlib.sha256()
        cells = sa.select(_CELLS).where(_CELLS.c.sweep_id == sweep_id).order_by(_CELLS.c.number)
        for cell in connection.execute(cells):
            said = json.dumps(list(cell[1:]), sort_keys=True, separators=(",", ":"))
            hashed.update(said.encode() + b"\n")
        values = {"cells_hash": hashed.hexdigest()}
        connection.execute(sa.update(_SWEEPS).where(_SWEEPS.c.id == sweep_id).values(values))
    is_unfinished = (_SWEEPS.c.select == "best") & _SWEEPS.c.finished_at.is_(None)
    connection.execute(sa.update(_SWEEPS).where(is_unfinished).values(is_cancelled=True))
    op.drop_column("run_sweeps", "trials_left")
    op.drop_column("runs", "is_spare")


def downgrade() -> None:
    op.add_column("runs", sa.Column("is_spare", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("run_sweeps", sa.Column("trials_left", sa.Integer(), nullable=True))
    op.drop_column("run_sweeps", "cells_hash")
