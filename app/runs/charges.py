"""The charge of a run or a sweep: its reservation, compared with the entries that made it, and settled by them.

A reservation's row says what a commit charges. Somebody who can write to the database could lower that amount during a
training, and the ledger would then have the lower charge for ever.
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
    """The row of a reservation differs from its entries."""


def as_entered(session: Session, vouched: Vouched, budget_id: str, reservation_id: str) -> tuple[History, Known]:
    """Return a reservation as its entries describe it, and its budget.

    Args:
        session: The session of ``vouched``.
        vouched: Reads entries up to the last one that the fence knows. The fence is a record outside of the database.
        budget_id, reservation_id: The budget and the reservation.

    Raises:
        ChargeAltered: its row differs, its row or its entry is missing, or the chain is broken.
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
        raise ChargeAltered(f"the column {column} differs from its entries")
    return history, known


def resolve(
    session: Session, context: Context, reservation_id: str, command: Commit | Void, ends: Mapping[str, Head] | None
) -> None:
    """Resolve a reservation in the caller's transaction, unless its row differed from its entries.

    The comparison comes after the command: its entry and its row are locked until the transaction ends.

    Args:
        session: A write session.
        context: The process's context.
        reservation_id: The reservation.
        command: The command that resolves it. A commit without a part charges what the entries say.
        ends: The last hashes of the chains, including the budget's, as the fence had them before the session. None to
            compare nothing.

    Raises:
        ChargeAltered: its row differed, or a commit was denied. A commit of a started reservation is never denied.
            Nothing was written.
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
            raise ChargeAltered("the reservation holds more than was charged")
