"""A register that has not begun, as in a database from before there was one, or that is older than some subjects."""

from __future__ import annotations

from collections.abc import Collection

from app.context import Context
from app.entries import registering
from app.entries.registered import REGISTERED
from app.entries.subjects import Subject
from app.fence import repository as fences
from app.fence.marks import Kept
from app.fence.watching import fence_of
from tests.app.ledger import attacks


def forget_register(context: Context, but: Collection[Subject] = ()) -> None:
    """Let the register say nothing, so that it begins with what is there now; the fence and the tree know no more.

    Args:
        context: The process's context.
        but: What it begins with now, in entries that do not name their subjects, as those of its first version.
    """
    database = context.database
    attacks.run(
        database,
        "DELETE FROM entries WHERE budget_id = 'register'",
        f"UPDATE registers SET sequence = 0, head_hash = '{'0' * 64}'",
    )
    attacks.forget_tree(database)
    _renew(context)
    if but:
        with database.write() as session:
            writer = registering._Writer(session, context.clock())
            for subject in Subject:
                if subject in but:
                    writer.add_all(REGISTERED[subject], ())
            writer.write()


def _renew(context: Context) -> None:
    with context.database.read() as session:
        connection = session.connection()
        life = fences.newest_life(connection)
        assert life is not None
        kept = Kept(fences.ledger_id(connection), life[1], fences.heads(connection))
    fence_of(context).renew(kept)
