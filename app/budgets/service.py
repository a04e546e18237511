"""Use cases of budgets and reservations.

`reserve`, `start`, `commit` and `void` work in the caller's write session and lock the budget themselves, so another
resource (a run) can make them part of its own transaction. Each raises `Problem` without having written anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from accounting.events import Event
from accounting.relations import NeighboringRelation
from app.budgets import repository, storage
from app.budgets.amounts import numbers
from app.budgets.models import Budget, Reservation
from app.budgets.schemas import BudgetRequest
from app.kit.context import Context
from app.kit.idempotency import UnfinishedProblem
from app.kit.ids import new_id
from app.ledger import pricing, transitions
from app.ledger.states import EntryKind
from app.ledger.transitions import (
    BudgetState,
    Command,
    Commit,
    Denial,
    Expire,
    ReservationState,
    Reserve,
    Start,
    Transition,
    Void,
)
from app.problems import Problem, ProblemItem, from_accounting, json_pointer, not_found, unprocessable


def create_budget(session: Session, context: Context, request: BudgetRequest, principal_id: str) -> Budget:
    """Open a budget with nothing spent.

    Raises:
        Problem: 422 when the filter has no room at any order, or names a parent.
    """
    if request.parent_id is not None:
        detail = "budgets under a parent are not available; leave parent_id out to make a root budget"
        raise unprocessable("unsupported", detail, "parent_id")
    try:
        budget_filter = request.filter.to_filter()
    except AccountingError as error:
        raise from_accounting(error, "filter") from None
    budget = Budget(
        id=new_id("bud"),
        name=request.name,
        neighboring_relation=str(request.neighboring_relation),
        privacy_unit=request.privacy_unit,
        filter_kind=budget_filter.kind,
        filter=budget_filter.to_json(),
        report_delta=None if request.report_delta is None else repr(request.report_delta),
        labels=dict(request.labels),
        principal_id=principal_id,
        created_at=context.clock(),
    )
    storage.open_budget(session, budget)
    session.flush()
    return budget


def get_budget(session: Session, budget_id: str) -> Budget:
    """The budget, to look at. Its `neighboring_relation`, `privacy_unit` and filter never change.

    Raises:
        Problem: 404.
    """
    budget = repository.find_budget(session, budget_id)
    if budget is None:
        raise not_found("budget", budget_id)
    return budget


def get_reservation(session: Session, reservation_id: str) -> Reservation:
    """The reservation, to look at.

    Raises:
        Problem: 404.
    """
    row = repository.find_reservation(session, reservation_id)
    if row is None:
        raise not_found("reservation", reservation_id)
    return row


def reservation_cost(session: Session, reservation_id: str) -> dict[str, Any]:
    """What the reservation holds while it is open, and what it has spent since: nothing where its hold was released."""
    row = get_reservation(session, reservation_id)
    budget_filter = storage.filter_of(get_budget(session, row.budget_id))
    state = storage.reservation_state(row)
    paid = state.cost if state.is_open else state.charged
    return numbers(budget_filter.describe(budget_filter.zero if paid is None else paid))


def price(context: Context, budget_id: str, events: Sequence[Event]) -> None:
    """Find out what the events cost, before any lock is taken: `reserve` remembers the answer.

    Raises:
        Problem: 404; 422 ``no_cost_in_filter``, or ``unsupported`` when it takes too long.
    """
    with context.database.read() as session:
        state = storage.budget_state(get_budget(session, budget_id))
    _price(context, state, tuple(events))


def prepare_commit(context: Context, reservation_id: str, events: Sequence[Event] | None) -> None:
    """Before the transaction of `commit`: release an overdue hold, and find out what a part of the events costs.

    Raises:
        Problem: 422 ``unsupported`` when finding the price takes too long.
    """
    expire_if_due(context, reservation_id)
    if events is None:
        return
    with context.database.read() as session:
        row = repository.find_reservation(session, reservation_id)
        if row is None:
            return
        reservation, budget = storage.reservation_state(row), storage.budget_state(get_budget(session, row.budget_id))
    part = tuple(events)
    # What `commit` will refuse, or charges in full, needs no price.
    if reservation.is_open and part != reservation.events and transitions.is_prefix(part, reservation.events):
        _price(context, budget, part)


def reserve(
    session: Session,
    context: Context,
    *,
    budget_id: str,
    events: Sequence[Event],
    purpose: str,
    principal_id: str,
    expires_in: int,
    run_id: str | None = None,
    plan_hash: str | None = None,
    relation: NeighboringRelation | None = None,
) -> ReservationState:
    """Hold the cost of the events.

    Args:
        session: A write session.
        context: The process's context.
        budget_id: Which budget.
        events: What is to be released, under the budget's own neighbouring relation.
        purpose: Free text, shown with every entry.
        principal_id: Who asks.
        expires_in: Seconds until the hold may be released, unless it is started before.
        run_id: The run that owns the reservation, and alone resolves it.
        plan_hash: The plan that the events come from; the worker compares what it executes with it.
        relation: The relation that the caller calibrated under, to be compared with the budget's.

    Raises:
        Problem: 404; 422 ``relation_mismatch`` or ``no_cost_in_filter``; 409 ``budget_exceeded`` with the members
            cost, remaining and warnings, to which `run_once` adds largest_count_that_fits when the lock is released.
    """
    budget = repository.lock_budget(session, budget_id)
    if budget is None:
        raise not_found("budget", budget_id)
    now = context.clock()
    command = Reserve(
        reservation_id=new_id("res"),
        events=tuple(events),
        expires_at=now + timedelta(seconds=expires_in),
        run_id=run_id,
        plan_hash=plan_hash,
        relation=relation,
    )
    made = _admit(session, budget, command, context)
    for transition in made:
        if transition.kind is EntryKind.RESERVE:
            row = storage.new_reservation(
                transition, budget_id=budget.id, purpose=purpose, principal_id=principal_id, now=now
            )
        else:
            row = get_reservation(session, transition.reservation.id)
        storage.write(session, budget, row, transition, principal_id=principal_id, now=now)
    session.flush()
    return made[-1].reservation


def try_reserve(session: Session, context: Context, *, budget_id: str, events: Sequence[Event]) -> Transition:
    """What `reserve` would do now; nothing is written, and a read session will do.

    Raises:
        Problem: as `reserve`.
    """
    command = Reserve("", tuple(events), context.clock())
    return _admit(session, get_budget(session, budget_id), command, context)[-1]


def start(
    session: Session,
    context: Context,
    reservation_id: str,
    *,
    principal_id: str | None = None,
    by_run: bool = True,
) -> ReservationState:
    """Noise may be drawn once this is committed; from then on the reservation can only be committed.

    Raises:
        Problem: 404; 409 ``owned_by_run``, ``already_resolved``, ``expired`` or ``already_started``.
    """
    return _resolve(session, context, reservation_id, Start(by_run), principal_id)


def commit(
    session: Session,
    context: Context,
    reservation_id: str,
    events: Sequence[Event] | None = None,
    *,
    principal_id: str | None = None,
    by_run: bool = True,
) -> ReservationState:
    """Spend what was held, or what the given prefix of its events costs; the rest is released.

    Raises:
        Problem: 404; 409 ``owned_by_run``, ``already_resolved`` or ``expired``; 422 ``not_a_prefix``.
    """
    part = None if events is None else tuple(events)
    return _resolve(session, context, reservation_id, Commit(part, by_run), principal_id)


def void(
    session: Session,
    context: Context,
    reservation_id: str,
    *,
    principal_id: str | None = None,
    by_run: bool = True,
) -> ReservationState:
    """Release what was held: nothing was released and nothing will be.

    Raises:
        Problem: 404; 409 ``owned_by_run``, ``already_resolved``, ``expired`` or ``already_started``.
    """
    return _resolve(session, context, reservation_id, Void(by_run), principal_id)


def expire_if_due(context: Context, reservation_id: str) -> None:
    """Release the hold of a pending reservation whose time to start is over, in a transaction of its own."""
    with context.database.read() as session:
        row = repository.find_reservation(session, reservation_id)
        if row is None or not storage.reservation_state(row).is_past_its_time(context.clock()):
            return
    with context.database.write() as session:
        budget = repository.lock_budget_of(session, reservation_id)
        row = repository.find_reservation(session, reservation_id)
        assert budget is not None, "budgets are never deleted"
        assert row is not None, "reservations are never deleted"
        now = context.clock()
        outcome = transitions.resolve(storage.budget_state(budget), storage.reservation_state(row), Expire(), now)
        if isinstance(outcome, Transition):
            storage.write(session, budget, row, outcome, principal_id=row.principal_id, now=now)


def _price(context: Context, budget: BudgetState, events: tuple[Event, ...]) -> None:
    try:
        with context.numerics:
            pricing.price(budget.filter, events, budget.relation)
    except AccountingError as error:
        raise from_accounting(error) from None


def _admit(session: Session, budget: Budget, command: Reserve, context: Context) -> list[Transition]:
    now = context.clock()
    holds = map(storage.reservation_state, repository.holds_past_their_time(session, budget.id, now))
    try:
        outcome = transitions.reserve(storage.budget_state(budget), command, holds, now)
    except AccountingError as error:
        raise from_accounting(error) from None
    if isinstance(outcome, Denial):
        raise _denied(outcome, "neighboring_relation", context)
    return outcome


def _resolve(
    session: Session, context: Context, reservation_id: str, command: Command, principal_id: str | None
) -> ReservationState:
    budget = repository.lock_budget_of(session, reservation_id)
    if budget is None:
        raise not_found("reservation", reservation_id)
    row = get_reservation(session, reservation_id)
    now = context.clock()
    outcome = transitions.resolve(storage.budget_state(budget), storage.reservation_state(row), command, now)
    if isinstance(outcome, Denial):
        raise _denied(outcome, "events", context)
    storage.write(session, budget, row, outcome, principal_id=principal_id or row.principal_id, now=now)
    session.flush()
    return outcome.reservation


def _denied(denial: Denial, field: str, context: Context) -> Problem:
    """The denial as an answer; ``field`` is the one that a malformed command (422) got wrong."""
    amounts = {name: numbers(denial.members[name]) for name in ("cost", "remaining") if name in denial.members}
    errors: list[ProblemItem] = []
    if denial.status == 422:
        errors = [ProblemItem(pointer=json_pointer((field,)), code=str(denial.code), detail=denial.detail)]
    members = {**denial.members, **amounts}
    shortfall = denial.shortfall
    if shortfall is None:
        return Problem(denial.status, str(denial.code), denial.detail, errors=errors, members=members)

    def what_would_fit() -> dict[str, int]:
        with context.numerics:
            return {"largest_count_that_fits": shortfall.largest_count_that_fits()}

    return UnfinishedProblem(
        denial.status, str(denial.code), denial.detail, members=members, missing_members=what_would_fit
    )
