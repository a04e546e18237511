"""The capacity of each data set, and contents that may be bound to several root budgets.

An older data set gets room for twice its declared size, which the previous version allowed without saying so. A bundled
data set gets room for its own rows. No migration reads rows, so a data set with more rows is found only later: its
description tells its owner, and its runs fail without a charge.

The root budgets of a content now follow from its data sets, whose rows stay after a deletion. So the column that named
a single root budget is dropped.

About earlier releases, no migration can prove or undo the following:

- A run took longer if there were more rows, and a step took longer with rows that were not finite, or subnormal.
  Somebody who saw when such a run ended may know the true number of rows, or that some record was there, whatever was
  charged.
- Noise and sums were floating-point numbers. The last bits of released models, means and scores may show which records
  were in them, whatever was charged.
- An upload told any owner whether the same rows were registered anywhere. Nothing records who tried this.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_HOLDS = "ck_datasets_capacity_holds_declared_size"


def upgrade() -> None:
    op.add_column("datasets", sa.Column("capacity", sa.BigInteger(), nullable=True))
    op.execute("UPDATE datasets SET capacity = CASE WHEN is_bundled THEN declared_size ELSE 2 * declared_size END")
    with op.batch_alter_table("datasets") as datasets:
        datasets.alter_column("capacity", existing_type=sa.BigInteger(), nullable=False)
        datasets.create_check_constraint(op.f(_HOLDS), "capacity >= declared_size")
    with op.batch_alter_table("dataset_contents") as contents:
        contents.drop_constraint(op.f("fk_dataset_contents_root_budget_id_budgets"), type_="foreignkey")
        contents.drop_column("root_budget_id")


def downgrade() -> None:
    op.add_column("dataset_contents", sa.Column("root_budget_id", sa.String(64), nullable=True))
    # Only one of several capacities is kept, since the version before this one has room for one.
    op.execute(
        "UPDATE dataset_contents SET root_budget_id = (SELECT MIN(budget_id) FROM datasets "
        "WHERE datasets.content_hash = dataset_contents.content_hash)"
    )
    with op.batch_alter_table("dataset_contents") as contents:
        contents.create_foreign_key(
            op.f("fk_dataset_contents_root_budget_id_budgets"), "budgets", ["root_budget_id"], ["id"]
        )
    with op.batch_alter_table("datasets") as datasets:
        datasets.drop_constraint(op.f(_HOLDS), type_="check")
        datasets.drop_column("capacity")
