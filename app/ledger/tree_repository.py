"""All SQL of the tree over all entries: its one row, its leaves and nodes, and the checkpoints that were signed.

Functions that read raise `app.ledger.stored_values.WrongKind` if a stored value is not of its column's kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from sqlalchemy import Row, Select, Table, func, insert, select, text, update
from sqlalchemy.orm import Session

from app.entries.statements import ENTRIES
from app.ledger.merkle import Node, Tiles, leaf_hash
from app.ledger.stored_values import rows as checked_rows
from app.tables.ledger import MerkleCheckpoint, MerkleLeaf, MerkleNode, MerkleTree

TREES = cast(Table, MerkleTree.__table__)
LEAVES = cast(Table, MerkleLeaf.__table__)
NODES = cast(Table, MerkleNode.__table__)
CHECKPOINTS = cast(Table, MerkleCheckpoint.__table__)

#: The number of leaves that are held in memory at once.
BATCH = 20_000
#: Entries without a place in the tree. The query adds the place up to which all entries have one.
_LEFT_OUT = (
    select(ENTRIES.c.leaf_index, ENTRIES.c.hash)
    .outerjoin(LEAVES, LEAVES.c.leaf_index == ENTRIES.c.leaf_index)
    .where(LEAVES.c.tree_index.is_(None))
    .order_by(ENTRIES.c.leaf_index)
)


def find(session: Session) -> Row[Any] | None:
    """Return the row of the tree; None if somebody has deleted it."""
    found = checked_rows(session, select(TREES).limit(1), *TREES.c)
    return found[0] if found else None


def lock(session: Session) -> Row[Any]:
    """Lock and return the row of the tree, which nobody else can change until the transaction ends."""
    return checked_rows(session, select(TREES).with_for_update(), *TREES.c)[0]


def own_transaction(session: Session) -> int | None:
    """Return the number of the session's transaction, which is assigned now if it has none yet; None on SQLite."""
    return _number(session, "pg_current_xact_id()")


def oldest_transaction(session: Session) -> int | None:
    """Return a number below which every transaction has ended and its writes are visible; None on SQLite."""
    return _number(session, "pg_snapshot_xmin(pg_current_snapshot())")


def last_leaf_index(session: Session) -> int:
    """Return the place of the newest entry; 0 if there is none."""
    return session.scalar(select(func.max(ENTRIES.c.leaf_index))) or 0


def left_out(session: Session, settled: int, limit: int) -> Sequence[Row[Any]]:
    """Return the next entries after the place ``settled`` that are not in the tree, with their places and hashes."""
    statement: Select[Any] = _LEFT_OUT.where(ENTRIES.c.leaf_index > settled).limit(limit)
    return checked_rows(session, statement, ENTRIES.c.leaf_index, ENTRIES.c.hash)


def append(session: Session, first: int, rows: Sequence[Row[Any]], nodes: Sequence[Node]) -> None:
    """Give entries their places in the tree, from ``first`` on, and store the nodes that this completes."""
    leaves = [
        {"tree_index": first + number, "leaf_index": row.leaf_index, "entry_hash": bytes.fromhex(row.hash)}
        for number, row in enumerate(rows)
    ]
    session.execute(insert(LEAVES).inline(), leaves)
    if nodes:
        values = [{"level": node.level, "node_index": node.index, "hash": node.hash} for node in nodes]
        session.execute(insert(NODES).inline(), values)


def update_tree(session: Session, **values: Any) -> None:
    """Change the row of the tree, whose lock is held."""
    session.execute(update(TREES).values(values))


def tiles(session: Session) -> Tiles:
    """Return a reader of the nodes from which proofs are made."""

    def fetch(level: int, index: int) -> Sequence[bytes]:
        wanted = Tiles.nodes_of(index)
        if level == 0:
            place, column = LEAVES.c.tree_index, LEAVES.c.entry_hash
            leaves = select(place, column).where(place.between(wanted[0], wanted[-1])).order_by(place)
            return [leaf_hash(row.entry_hash) for row in checked_rows(session, leaves, place, column)]
        place, column = NODES.c.node_index, NODES.c.hash
        nodes = select(place, column).where(NODES.c.level == level, place.between(wanted[0], wanted[-1]))
        return [row.hash for row in checked_rows(session, nodes.order_by(place), place, column)]

    return Tiles(fetch)


def leaves(session: Session) -> Iterator[Sequence[Any]]:
    """Yield all leaves in the order of the tree, in batches: their places, leaf indices and entry hashes."""
    columns = (LEAVES.c.tree_index, LEAVES.c.leaf_index, LEAVES.c.entry_hash)
    statement = select(*columns).order_by(LEAVES.c.tree_index).limit(BATCH)
    batch = checked_rows(session, statement, *columns)
    while batch:
        yield batch
        batch = checked_rows(session, statement.where(LEAVES.c.tree_index > batch[-1].tree_index), *columns)


def nodes(session: Session) -> dict[tuple[int, int], bytes]:
    """Return all nodes that are stored, by level and index: one for each 255 leaves."""
    columns = (NODES.c.level, NODES.c.node_index, NODES.c.hash)
    return {(row.level, row.node_index): row.hash for row in checked_rows(session, select(*columns), *columns)}


def leaf_of(session: Session, entry_id: str) -> Row[Any] | None:
    """Return an entry with its budget, its hash and its place in the tree, which is None if it has none yet."""
    columns = (ENTRIES.c.id, ENTRIES.c.budget_id, ENTRIES.c.leaf_index, ENTRIES.c.hash)
    statement: Select[Any] = select(*columns, LEAVES.c.tree_index).where(ENTRIES.c.id == entry_id).limit(1)
    is_its_leaf = LEAVES.c.leaf_index == ENTRIES.c.leaf_index
    found = checked_rows(session, statement.outerjoin(LEAVES, is_its_leaf), *columns)
    return found[0] if found else None


def entry_at(session: Session, leaf_index: int) -> Row[Any] | None:
    """Return the budget and the sequence of the entry with a leaf index."""
    columns = (ENTRIES.c.budget_id, ENTRIES.c.sequence)
    statement: Select[Any] = select(*columns).where(ENTRIES.c.leaf_index == leaf_index)
    return session.execute(statement.limit(1)).one_or_none()


def places(session: Session, leaf_indices: Sequence[int]) -> dict[int, int]:
    """Return the places in the tree of entries, of those that have one."""
    wanted = LEAVES.c.leaf_index.in_(leaf_indices)
    columns = (LEAVES.c.leaf_index, LEAVES.c.tree_index)
    return {row.leaf_index: row.tree_index for row in checked_rows(session, select(*columns).where(wanted), *columns)}


def checkpoints(session: Session) -> Sequence[Row[Any]]:
    """Return all checkpoints that were signed, the oldest first."""
    return checked_rows(session, select(CHECKPOINTS).order_by(CHECKPOINTS.c.number), *CHECKPOINTS.c)


def newest_checkpoint(session: Session) -> Row[Any] | None:
    """Return the checkpoint that was signed last."""
    return _newest(session, select(CHECKPOINTS))


def checkpoint_at(session: Session, size: int, public_key: str | None = None) -> Row[Any] | None:
    """Return the newest checkpoint of a tree of this size, if one was signed; by this key, if one is given."""
    statement = select(CHECKPOINTS).where(CHECKPOINTS.c.tree_size == size)
    if public_key is not None:
        statement = statement.where(CHECKPOINTS.c.public_key == public_key)
    return _newest(session, statement)


def insert_checkpoint(session: Session, values: dict[str, Any]) -> None:
    """Insert a checkpoint that was signed just now."""
    session.execute(insert(CHECKPOINTS).values(values))


def _newest(session: Session, statement: Select[Any]) -> Row[Any] | None:
    found = checked_rows(session, statement.order_by(CHECKPOINTS.c.number.desc()).limit(1), *CHECKPOINTS.c)
    return found[0] if found else None


def _number(session: Session, function: str) -> int | None:
    if session.get_bind().dialect.name == "sqlite":
        return None
    number: int = session.execute(text(f"SELECT {function}::text::bigint")).scalar_one()
    return number
