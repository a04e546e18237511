"""Integration: committed entries get the next places in the tree over all entries, independently of commands.

No command waits for integration, and it waits for no command. Only one transaction at a time has the lock of the tree's
row, so no place is given twice. On PostgreSQL an entry may be committed after others with larger leaf indices; its
place is then a later one.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from app.db.database import Database
from app.ledger import tree_repository as repository
from app.ledger.merkle import Frontier, leaf_hash
from app.ledger.stored_values import WrongKind

#: The most entries that one transaction integrates: on SQLite, every command waits meanwhile.
BATCH = 4096


#: The message when nothing more exact is known.
STUCK = "the entries cannot be given their places in the tree"


class CannotIntegrate(Exception):
    """The stored tree cannot take another entry, because somebody has changed the database. Verification says where."""


def integrate(database: Database, batches: int | None = None) -> None:
    """Give every committed entry its place in the tree.

    Guarantees: complete: an entry that was committed before the call is in the tree after it. In order: places that
        were given stay, and the next ones follow without a gap.

    Args:
        database: The ledger's database.
        batches: Stop after this many batches, and leave the rest to the next call; None for no limit.

    Raises:
        CannotIntegrate: a hash is malformed, a place is taken, or the tree does not fit its size.
    """
    for number in count():
        if number == batches:
            return
        try:
            if not _is_behind(database):
                return
            with database.write() as session:
                if _integrate(session) < BATCH:
                    return
        except WrongKind as error:
            raise CannotIntegrate(str(error)) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise CannotIntegrate(STUCK) from error
        except DBAPIError as error:
            # A lock, a lost connection or a full disk does not mean that the stored data are wrong.
            if isinstance(error, OperationalError) or error.connection_invalidated:
                raise
            raise CannotIntegrate(STUCK) from error


def _is_behind(database: Database) -> bool:
    # This looks in a read session first, which blocks nobody.
    with database.read() as session:
        tree = repository.find(session)
        return tree is not None and bool(repository.left_out(session, tree.settled_leaf_index, 1))


def _integrate(session: Session) -> int:
    """Integrate one batch, and return how many entries it had."""
    # The order of these statements matters; `_watermark` explains why.
    last = repository.last_leaf_index(session)
    own = repository.own_transaction(session)
    tree = repository.lock(session)
    oldest = repository.oldest_transaction(session)
    rows = repository.left_out(session, tree.settled_leaf_index, BATCH)
    frontier = Frontier(tree.size, tree.frontier)
    nodes = frontier.extend(leaf_hash(bytes.fromhex(row.hash)) for row in rows)
    if rows:
        repository.append(session, tree.size, rows, nodes)
    covered = rows[-1].leaf_index if len(rows) == BATCH else last
    watermark = _watermark(tree, last, covered, own, oldest)
    repository.update_tree(session, size=frontier.size, frontier=frontier.hashes(), **watermark)
    return len(rows)


def _watermark(tree: Row[Any], last: int, covered: int, own: int | None, oldest: int | None) -> dict[str, int]:
    """Return the place up to which no further entry can appear, and the place up to which this is still awaited.

    A transaction has its number before it draws a leaf index. One that drew an index up to ``last`` therefore has a
    smaller number than was given out afterwards, and once every transaction with a smaller number is over, no entry
    appears there any more. A gap that a failed transaction left is passed like everything else.

    Args:
        tree: The row as it was before.
        last: The newest entry, before ``own`` was given out.
        covered: Up to here, all entries that are committed are in the tree.
        own: The number of this transaction; None on SQLite, where one writes at a time.
        oldest: Every transaction before this one was over before the entries were read.
    """
    if own is None or oldest is None:
        return {"settled_leaf_index": max(tree.settled_leaf_index, covered)}
    awaited, transaction, settled = tree.awaited_leaf_index, tree.awaited_transaction, tree.settled_leaf_index
    # Transaction numbers begin anew when a dump is restored into another cluster, so an awaited number might never
    # come.
    if transaction is None or own < transaction:
        return {"awaited_leaf_index": last, "awaited_transaction": own}
    if oldest < transaction:
        return {}
    settled = max(settled, min(awaited, covered))
    if settled < awaited:
        return {"settled_leaf_index": settled}
    return {"settled_leaf_index": settled, "awaited_leaf_index": last, "awaited_transaction": own}
