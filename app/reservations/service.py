"""Use cases of reservations: read them, resolve one in a larger transaction, release expired ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from app.context import Context
from app.entries.kinds import SERVICE
from app.ledger import repository as ledger
from app.ledger import rows
from app.ledger.amounts import amounts_in_words, given_back_in_words
from app.ledger.books_repository import certificate
from app.ledger.commands import Expire, Resolution
from app.ledger.executor import carry_out_one
from app.ledger.journal import Instruction, carry_out, path_of
from app.ledger.states import Path, ReservationState, minus
from app.ledger.transitions import Transition
from app.problems import Problem, not_found
from app.reservations import repository
from app.reservations.bodies import reservation_body
from app.tables.ledger import Reservation

#: The most expired holds that are released in one transaction.
_RELEASED_AT_ONCE = 100


def get_reservation(session: Session, reservation_id: str) -> Reservation:
    """Return the reservation, for reading only.

    Raises:
        Problem: 404.
    """
    row = repository.find(session, reservation_id)
    if row is None:
        raise not_found("reservation", reservation_id)
    return row


def certificate_of(session: Session, reservation_id: str) -> bytes:
    """Return the certificate with which a reservation was made.

    Raises:
        Problem: 404, also if it was made without a certificate, or if the database has lost the certificate.
    """
    hashed = get_reservation(session, reservation_id).certificate
    if hashed is None:
        detail = (
            "This reservation has no certificate: ask for one with `certificate` when you reserve; if there is "
            "none, the warning `no_certificate` of the answer says why."
        )
        raise Problem(404, "not_found", detail)
    data = certificate(session, hashed)
    if data is None:
        detail = f"The database has lost the certificate {hashed}; `epsilond ledger verify --proofs` says what else."
        raise Problem(404, "not_found", detail)
    return data


def charge(session: Session, reservation_id: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what a reservation holds or has spent, and what its commit gave back.

    If the hold was released, nothing is spent. If no tail was given up, the second part is None.
    """
    state = rows.reservation_state(get_reservation(session, reservation_id))
    path = path_of(session, state.budget_id)
    assert path is not None, "a reservation has a budget"
    paid = state.cost if state.is_open else state.charged
    budget_filter = path[0].filter
    amount = amounts_in_words(budget_filter, budget_filter.zero if paid is None else paid)
    return amount, given_back_in_words(budget_filter, state)


def bodies(session: Session, found: Sequence[Reservation], now: datetime) -> list[dict[str, Any]]:
    """Return reservations in the form of the contract."""
    paths: dict[str, Path] = {}
    for row in found:
        if row.budget_id not in paths:
            path = path_of(session, row.budget_id)
            assert path is not None, "a reservation has a budget"
            paths[row.budget_id] = path
    return [reservation_body(rows.reservation_state(row), paths[row.budget_id], now) for row in found]


def path_without_due_holds(session: Session, budget_id: str, now: datetime) -> Path:
    """Return the states that a decision would see after releasing expired holds."""
    path = path_of(session, budget_id)
    assert path is not None, "it has a price"
    return tuple(
        replace(level, pending=minus(level.pending, ledger.due_amounts(session, level.id, level.filter.zero, now)))
        for level in path
    )


def release_due_holds(context: Context, budget_id: str | None = None) -> int:
    """Release pending reservations whose time to start is over, of a budget and those under it; of all for None.

    Returns:
        The number of reservations that were released.
    """
    released = 0
    while True:
        with context.database.read() as session:
            budget = None if budget_id is None else ledger.find_budget(session, budget_id)
            path = "" if budget is None else budget.path
            due = ledger.due_holds(session, path, context.clock(), _RELEASED_AT_ONCE)
        if not due:
            return released
        instructions = [Instruction(Expire(), SERVICE, reservation_id) for reservation_id in due]
        with context.database.write() as session:
            outcomes = carry_out(session, context.database, instructions, context.clock())
        count = sum(isinstance(outcome, Transition) for outcome in outcomes)
        released += count
        if count == 0:
            return released


def resolve(
    session: Session,
    context: Context,
    reservation_id: str,
    command: Resolution,
    *,
    principal_id: str = SERVICE,
) -> ReservationState:
    """Change a reservation as a part of the caller's transaction, as a run does with its own.

    Raises:
        Problem: 404; the denial. Nothing was written.
    """
    after = carry_out_one(session, context, Instruction(command, principal_id, reservation_id)).reservation
    assert after is not None, "every resolution is about a reservation"
    return after
