"""The Merkle tree over all entries (RFC 9162): its leaves, some of its nodes, and the checkpoints that were signed."""

from __future__ import annotations

import base64
import secrets

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_APPEND_ONLY = ("merkle_leaves", "merkle_nodes", "merkle_checkpoints")
_KEYS = {
    "merkle_leaves": "tree_index = NEW.tree_index OR leaf_index = NEW.leaf_index",
    "merkle_nodes": "level = NEW.level AND node_index = NEW.node_index",
    "merkle_checkpoints": "number = NEW.number OR (tree_size = NEW.tree_size AND public_key = NEW.public_key)",
    "merkle_trees": "id = NEW.id",
}
_REFUSED = "the Merkle tree is append-only"


def upgrade() -> None:
    op.create_table(
        "merkle_trees",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("ledger_id", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("frontier", sa.LargeBinary(), nullable=False),
        sa.Column("settled_leaf_index", sa.BigInteger(), nullable=False),
        sa.Column("awaited_leaf_index", sa.BigInteger(), nullable=True),
        sa.Column("awaited_transaction", sa.BigInteger(), nullable=True),
        sa.Column("checkpoints", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_merkle_trees_one")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_merkle_trees")),
    )
    op.create_table(
        "merkle_leaves",
        sa.Column(
            "tree_index", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=False
        ),
        sa.Column("leaf_index", sa.BigInteger(), nullable=False),
        sa.Column("entry_hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tree_index", name=op.f("pk_merkle_leaves")),
        sa.UniqueConstraint("leaf_index", name=op.f("uq_merkle_leaves_leaf_index")),
    )
    op.create_table(
        "merkle_nodes",
        sa.Column("level", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("node_index", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("level", "node_index", name=op.f("pk_merkle_nodes")),
    )
    op.create_table(
        "merkle_checkpoints",
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("tree_size", sa.BigInteger(), nullable=False),
        sa.Column("root_hash", sa.LargeBinary(), nullable=False),
        sa.Column("public_key", sa.String(200), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_merkle_checkpoints")),
        sa.UniqueConstraint("tree_size", "public_key", name=op.f("uq_merkle_checkpoints_tree_size")),
    )
    _insert_the_empty_tree()
    if op.get_bind().dialect.name == "sqlite":
        _refuse_changes_on_sqlite()
    else:
        _refuse_changes_on_postgresql()


def _insert_the_empty_tree() -> None:
    """Insert the empty tree. Existing entries are added later in batches, since adding them here would keep everybody
    waiting."""
    tree = sa.table(
        "merkle_trees",
        sa.column("id", sa.Integer()),
        sa.column("ledger_id", sa.String()),
        sa.column("size", sa.BigInteger()),
        sa.column("frontier", sa.LargeBinary()),
        sa.column("settled_leaf_index", sa.BigInteger()),
        sa.column("checkpoints", sa.BigInteger()),
    )
    ledger_id = f"led_{base64.b32encode(secrets.token_bytes(15)).decode().lower()}"
    row = {"id": 1, "ledger_id": ledger_id, "size": 0, "frontier": b"", "settled_leaf_index": 0, "checkpoints": 0}
    op.bulk_insert(tree, [row])


def _refuse_changes_on_sqlite() -> None:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
    for table in _APPEND_ONLY:
        op.execute(f"CREATE TRIGGER {table}_refuse_update BEFORE UPDATE ON {table} {refuse}")
    op.execute(
        "CREATE TRIGGER merkle_trees_refuse_update BEFORE UPDATE ON merkle_trees "
        f"WHEN NEW.size < OLD.size OR NEW.ledger_id <> OLD.ledger_id OR NEW.checkpoints < OLD.checkpoints {refuse}"
    )
    for table, key in _KEYS.items():
        op.execute(f"CREATE TRIGGER {table}_refuse_delete BEFORE DELETE ON {table} {refuse}")
        # INSERT OR REPLACE would delete the old row without firing its trigger (recursive_triggers is off).
        op.execute(
            f"CREATE TRIGGER {table}_refuse_replace BEFORE INSERT ON {table} "  # noqa: S608
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {key}) {refuse}"
        )


def _refuse_changes_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION merkle_refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
    )
    refuse = "EXECUTE FUNCTION merkle_refuse_change()"
    for table in _APPEND_ONLY:
        op.execute(f"CREATE TRIGGER {table}_refuse_change BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW {refuse}")
    op.execute(
        "CREATE TRIGGER merkle_trees_refuse_change BEFORE UPDATE ON merkle_trees FOR EACH ROW WHEN "
        "(NEW.size < OLD.size OR NEW.ledger_id <> OLD.ledger_id OR NEW.checkpoints < OLD.checkpoints) "
        f"{refuse}"
    )
    op.execute(f"CREATE TRIGGER merkle_trees_refuse_delete BEFORE DELETE ON merkle_trees FOR EACH ROW {refuse}")
    for table in _KEYS:
        op.execute(f"CREATE TRIGGER {table}_refuse_truncate BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {refuse}")


def downgrade() -> None:
    """Refuse, because checkpoints that were handed out depend on the places of the entries in the tree."""
    raise RuntimeError("the ledger does not go back before revision 0010; restore a backup instead")
