"""What the register says, and a register that has not begun, as in a database from before there was one."""

from __future__ import annotations

from app.context import Context
from app.entries.register import Told
from app.fence import repository as fences
from app.fence.marks import Kept
from app.fence.watching import fence_of
from app.ledger import vouched
from app.ledger.vouched import Vouched
from app.tables.states import REGISTER
from tests.app.ledger import attacks


def told_of(context: Context, subject_id: str) -> Told | None:
    """What the register says of something now."""
    ends = fence_of(context).heads([REGISTER])
    with context.database.read() as session:
        return Vouched(session, context.database, ends).told(subject_id)


def forget_what_was_read(context: Context) -> None:
    """Check entries as a process does that has just begun."""
    vouched._CHAINS.pop(context.database, None)


def forget_register(context: Context) -> None:
    """Let the register say nothing, so that it begins with what is there now; the fence and the tree know no more."""
    database = context.database
    attacks.run(
        database,
        "DELETE FROM entries WHERE budget_id = 'register'",
        f"UPDATE registers SET sequence = 0, head_hash = '{'0' * 64}'",
    )
    attacks.forget_tree(database)
    with database.read() as session:
        connection = session.connection()
        life = fences.newest_life(connection)
        assert life is not None
        kept = Kept(fences.ledger_id(connection), life[1], fences.heads(connection))
    fence_of(context).renew(kept)
