"""The charge of a run or a sweep: its reservation, compared with the entries that made it, and settled by them.

A reservation's row says what a commit charges. Whoever can write to the database could lower it while a run is trained,
and the books would say the lower charge ever after.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from app.context import Context
from app.fence.marks import Head
from app.ledger import books_repository as books
from app.ledger import tables
from app.ledger.books import Known
from app.ledger.commands import Commit, Void
from app.ledger.rebuild import BrokenChain, History
from app.ledger.statements import RESERVATIONS
from app.ledger.tables import Comparison
from app.ledger.vouched import Vouched
from app.problems import Problem
from app.reservations import service as reservations


class ChargeAltered(Exception):
    """The row of a reservation is not what its entries say."""


def as_entered(session: Session, vouched: Vouched, budget_id: str, reservation_id: str) -> tuple[History, Known]:
    """Return a reservation as its entries make it, and its budget.

    Args:
        session: The session of ``vouched``.
        vouched: Knows the end of the budget's chain that the fence has.
        budget_id, reservation_id: Whose entries.

    Raises:
        ChargeAltered: its row is another one, there is no row or no entry, or the chain is broken.
    """
    try:
        history, known = vouched.reservation(budget_id, reservation_id)
    except BrokenChain as error:
        raise ChargeAltered(str(error)) from None
    row = None if known is None else books.reservations(session, [known]).get(reservation_id)
    if known is None or row is None:
        raise ChargeAltered("a row or an entry is missing")
    column = Comparison(session, RESERVATIONS).different(row, tables.reservation_row(known))
    if column is not None:
        raise ChargeAltered(f"the column {column} is not what its entries say")
    return history, known


def resolve(
    session: Session, context: Context, reservation_id: str, command: Commit | Void, ends: Mapping[str, Head] | None
) -> None:
    """Resolve a reservation in the caller's transaction, unless its row was not what its entries say.

    The comparison comes after the command: its entry and its row are locked until the transaction ends.

    Args:
        session: A write session.
        context: The process's context.
        reservation_id: Which one.
        command: What becomes of it. A commit without a part charges what the entries say.
        ends: The ends that the fence has, the budget's among them, from before the session; None to compare nothing.

    Raises:
        ChargeAltered: its row was another one, or a commit was denied, which no started reservation does. Nothing was
            written.
        Problem: the denial of a release. Nothing was written.
    """
    with session.begin_nested():
        try:
            after = reservations.resolve(session, context, reservation_id, command)
        except Problem as denial:
            if isinstance(command, Commit):
                raise ChargeAltered(denial.code) from None
            raise
        if ends is None:
            return
        vouched = Vouched(session, context.database, ends)
        _, known = as_entered(session, vouched, after.budget_id, reservation_id)
        is_whole = isinstance(command, Commit) and command.events is None
        if is_whole and known.state.charged != known.state.cost:
            raise ChargeAltered("it holds more than was charged")
