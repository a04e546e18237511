"""Use cases of reservations.

`reserve`, `start`, `commit` and `void` work in the caller's write session and lock the budgets themselves, so another
resource (a run) can make them part of its own transaction; each raises `Problem` without having written anything. Over
HTTP the same instructions go through `app.ledger.executor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from accounting.events import Event
from accounting.relations import NeighboringRelation
from app.budgets.models import Reservation
from app.kit.context import Context
from app.kit.idempotency import UnfinishedProblem
from app.kit.ids import new_id
from app.ledger import pricing, rows
from app.ledger import repository as ledger
from app.ledger.amounts import amounts_in_words, remaining_in_words
from app.ledger.commands import Commit, Expire, Quote, Reserve, Resolution, Start, Void
from app.ledger.denials import Denial
from app.ledger.executor import problem_of
from app.ledger.journal import Instruction, NoTarget, carry_out, path_of
from app.ledger.states import Path, ReservationState, minus
from app.ledger.transitions import Transition, decide
from app.problems import not_found
from app.reservations import quotes, repository
from app.reservations.bodies import reservation_body

#: Entries that nobody asked for, such as the release of a hold, are made in this name.
SERVICE = "service"
#: Due holds that are released in one transaction.
_RELEASED_AT_ONCE = 100


def get_reservation(session: Session, reservation_id: str) -> Reservation:
    """The reservation, to look at.

    Raises:
        Problem: 404.
    """
    row = repository.find(session, reservation_id)
    if row is None:
        raise not_found("reservation", reservation_id)
    return row


def reservation_cost(session: Session, reservation_id: str) -> dict[str, Any]:
    """What the reservation holds while it is open, and what it has spent since: nothing where its hold was released."""
    state = rows.reservation_state(get_reservation(session, reservation_id))
    path = path_of(session, state.budget_id)
    assert path is not None, "a reservation has a budget"
    paid = state.cost if state.is_open else state.charged
    return amounts_in_words(path[0].filter, path[0].filter.zero if paid is None else paid)


def make_room(
    context: Context,
    budget_id: str,
    events: Sequence[Event],
    *,
    charge_delta: float | None = None,
    relation: NeighboringRelation | None = None,
) -> None:
    """Release the holds that are due, if these events would not fit without that.

    Raises:
        Problem: as `quotes.quote`.
    """
    price = quotes.quote(context, budget_id, events, charge_delta=charge_delta, relation=relation)
    command = Reserve("", tuple(events), price, context.clock(), charge_delta=charge_delta)
    while True:
        with context.database.read() as session:
            path = path_of(session, budget_id)
        assert path is not None, "it has a price"
        outcome = decide(path, None, command, context.clock(), "")
        # Once one budget of the path has room, one above it may stand in the way.
        if not isinstance(outcome, Denial) or not release_due_holds(context, outcome.budget_id):
            return


def dry_run(
    context: Context,
    budget_id: str,
    events: tuple[Event, ...],
    *,
    purpose: str,
    expires_in: int,
    charge_delta: float | None,
) -> dict[str, Any]:
    """What `reserve` would answer now; nothing is written. Holds that are due count as released.

    Raises:
        Problem: as `reserve`.
    """
    price = quotes.quote(context, budget_id, events, charge_delta=charge_delta)
    now = context.clock()
    command = Reserve(
        "", events, price, now + timedelta(seconds=expires_in), purpose=purpose, charge_delta=charge_delta
    )
    with context.database.read() as session:
        path = path_without_due_holds(session, budget_id, now)
    outcome = decide(path, None, command, now, price.engine_version)
    if isinstance(outcome, Denial):
        raise budget_exceeded(context, outcome, path, command).finished()
    assert outcome.reservation is not None, "a reservation would be made"
    return reservation_body(outcome.reservation, outcome.path, now)


def bodies(session: Session, found: Sequence[Reservation], now: datetime) -> list[dict[str, Any]]:
    """Reservations as the contract writes them."""
    paths: dict[str, Path] = {}
    for row in found:
        if row.budget_id not in paths:
            path = path_of(session, row.budget_id)
            assert path is not None, "a reservation has a budget"
            paths[row.budget_id] = path
    return [reservation_body(rows.reservation_state(row), paths[row.budget_id], now) for row in found]


def path_without_due_holds(session: Session, budget_id: str, now: datetime) -> Path:
    """The states that a decision would see once the holds that are due are released."""
    path = path_of(session, budget_id)
    assert path is not None, "it has a price"
    return tuple(
        replace(level, pending=minus(level.pending, ledger.due_amounts(session, level.id, level.filter.zero, now)))
        for level in path
    )


def release_due_holds(context: Context, budget_id: str | None = None) -> int:
    """Release pending reservations whose time to start is over, of a budget and those under it; of all for None.

    Returns:
        How many were released.
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


def reserve(
    session: Session,
    context: Context,
    *,
    budget_id: str,
    events: Sequence[Event],
    purpose: str,
    principal_id: str,
    expires_in: int,
    charge_delta: float | None = None,
    run_id: str | None = None,
    plan_hash: str | None = None,
    relation: NeighboringRelation | None = None,
) -> ReservationState:
    """Hold the cost of the events. Ask `quotes.quote` before the session opens, so that the price is known here.

    Args:
        session: A write session.
        context: The process's context.
        budget_id: Which budget.
        events: What is to be released, under the budget's own neighbouring relation.
        purpose: Free text, shown with every entry.
        principal_id: Who asks.
        expires_in: Seconds until the hold may be released, unless it is started before.
        charge_delta: The delta at which an approximate_dp budget prices the events.
        run_id: The run that owns the reservation, and alone resolves it.
        plan_hash: The plan that the events come from; the worker compares what it executes with it.
        relation: The relation that the caller calibrated under, to be compared with the budget's.

    Raises:
        Problem: as `quotes.quote`; 409 ``budget_exceeded`` with the members cost, remaining and warnings, to which
            `run_once` adds largest_count_that_fits when the lock is released.
    """
    price = quotes.quote(context, budget_id, events, charge_delta=charge_delta, relation=relation)
    command = Reserve(
        reservation_id=new_id("res"),
        events=tuple(events),
        quote=price,
        expires_at=context.clock() + timedelta(seconds=expires_in),
        purpose=purpose,
        charge_delta=charge_delta,
        run_id=run_id,
        plan_hash=plan_hash,
    )
    outcome = _carry_out(session, context, Instruction(command, principal_id, budget_id), "budget")
    if isinstance(outcome, Denial):
        path = path_of(session, budget_id)
        assert path is not None, "it has a price"
        raise budget_exceeded(context, outcome, path, command)
    assert outcome.reservation is not None, "a reservation was made"
    return outcome.reservation


def budget_exceeded(context: Context, denial: Denial, path: Path, command: Reserve) -> UnfinishedProblem:
    """The answer to a reservation that does not fit; its slow member is found when no lock is held."""
    members: dict[str, Any] = {
        "cost": amounts_in_words(path[0].filter, command.quote.amounts),
        "remaining": remaining_in_words(path),
        "warnings": [{"code": code, "detail": detail} for code, detail in command.quote.warnings],
        "budget_id": denial.budget_id,
    }

    def what_would_fit() -> dict[str, int]:
        return pricing.what_would_fit(context, path, command.events, command.charge_delta)

    return UnfinishedProblem(
        denial.status, str(denial.code), denial.detail, members=members, missing_members=what_would_fit
    )


def start(session: Session, context: Context, reservation_id: str, *, principal_id: str = SERVICE) -> ReservationState:
    """For the run that owns the reservation. Noise may be drawn once this is committed; then only a commit is left.

    Raises:
        Problem: 404; 409 ``already_resolved``, ``expired`` or ``already_started``.
    """
    return _resolve(session, context, reservation_id, Start(by_run=True), principal_id)


def commit(
    session: Session,
    context: Context,
    reservation_id: str,
    *,
    events: Sequence[Event] | None = None,
    quote: Quote | None = None,
    principal_id: str = SERVICE,
) -> ReservationState:
    """For the run that owns the reservation: spend what was held.

    Args:
        session: A write session.
        context: The process's context.
        reservation_id: Which one.
        events: The part of its events that happened; None for all.
        quote: The part's price, from `quotes.quote_part`.
        principal_id: For the entry.

    Raises:
        Problem: 404; 409 ``already_resolved`` or ``expired``; 422 ``not_a_prefix``.
    """
    part = None if events is None else tuple(events)
    return _resolve(session, context, reservation_id, Commit(part, quote, by_run=True), principal_id)


def void(session: Session, context: Context, reservation_id: str, *, principal_id: str = SERVICE) -> ReservationState:
    """For the run that owns the reservation: release what was held, because nothing was released.

    Raises:
        Problem: 404; 409 ``already_resolved``, ``expired`` or ``already_started``.
    """
    return _resolve(session, context, reservation_id, Void(by_run=True), principal_id)


def _resolve(
    session: Session, context: Context, reservation_id: str, command: Resolution, principal_id: str
) -> ReservationState:
    outcome = _carry_out(session, context, Instruction(command, principal_id, reservation_id), "reservation")
    if isinstance(outcome, Denial):
        raise problem_of(outcome)
    assert outcome.reservation is not None, "it is about a reservation"
    return outcome.reservation


def _carry_out(session: Session, context: Context, instruction: Instruction, target: str) -> Transition | Denial:
    (outcome,) = carry_out(session, context.database, [instruction], context.clock())
    if isinstance(outcome, NoTarget):
        raise not_found(target, instruction.target_id)
    return outcome
