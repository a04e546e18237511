"""The capacity of each data set, and contents that may be bound to several root budgets.

A data set from before gets room for twice its declared size, as the version before this one gave it without saying so;
a bundled one for its own rows. No migration reads rows, so one that is fuller is found later: its owner is told by its
description, and its runs fail without a charge.

Which root budgets a content is bound to now follows from the data sets, whose rows stay after a deletion. So the column
that named the only one goes.

What no migration can prove, or undo, about releases from before:

- A run took longer the more rows there were, and so did a step with rows that were not finite, or subnormal. Whoever
  saw when runs of then ended may know the true number of rows, or that some record was there, whatever was charged.
- Noise and sums of then were floating-point numbers. The last bits of models, means and scores that were released show
  which records were in them, whatever was charged.
- An upload of then told any owner whether the same rows were registered anywhere. Nothing records who tried.

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
    # One of several: the version before this one knows no more.
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
