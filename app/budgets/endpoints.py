"""`/v1/budgets` and `/v1/reservations`."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Query
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse

from app.auth.principal import Principal, Scope, requires
from app.budgets import repository, service
from app.budgets.bodies import budget_body, dry_run_body, reservation_body
from app.budgets.examples import BUDGET_EXAMPLES, COMMIT_EXAMPLES, RESERVATION_EXAMPLES
from app.budgets.schemas import (
    BudgetBody,
    BudgetRequest,
    CommitRequest,
    EmptyRequest,
    ReservationBody,
    ReservationRequest,
)
from app.kit.context import CurrentContext
from app.kit.idempotency import (
    Answer,
    IdempotencyKey,
    OptionalIdempotencyKey,
    UnfinishedProblem,
    missing_key,
    request_fingerprint,
    run_once,
    to_response,
)
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.privacy.schemas import to_events

router = APIRouter(prefix="/v1", tags=["Budgets"], dependencies=[KnownParametersOnly])

Owner = Annotated[Principal, requires(Scope.OWNER)]
Spender = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST)]
Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]
DryRun = Annotated[bool, Query(description="Answer the same and write nothing; then no Idempotency-Key is needed.")]


@router.post(
    "/budgets",
    operation_id="create_budget",
    summary="Open a budget",
    status_code=201,
    response_model=BudgetBody,
)
def create_budget(
    context: CurrentContext,
    principal: Owner,
    key: IdempotencyKey,
    request: Annotated[BudgetRequest, Body(openapi_examples=BUDGET_EXAMPLES)],
) -> JSONResponse:
    """A limit on privacy loss under one neighbouring relation, in the currency of one filter, for ever."""

    def command(session: Session) -> Answer:
        budget = service.create_budget(session, context, request, principal.id)
        body = budget_body(budget).model_dump(mode="json")
        return Answer(201, body, {"Location": f"/v1/budgets/{budget.id}"})

    fingerprint = request_fingerprint("create_budget", request)
    return to_response(run_once(context, principal.id, key, fingerprint, command))


@router.get("/budgets", operation_id="list_budgets", summary="Budgets, newest first")
def list_budgets(
    context: CurrentContext, _: Reader, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[BudgetBody]:
    """All budgets with their limit and what became of it."""
    after = decode_cursor(cursor, datetime, str)
    with context.database.read() as session:
        found = repository.page_of_budgets(session, after, limit + 1)
        rows, next_cursor = cut_page(found, limit, lambda budget: (budget.created_at, budget.id))
        return Page(items=[budget_body(budget) for budget in rows], next_cursor=next_cursor)


@router.get("/budgets/{budget_id}", operation_id="get_budget", summary="One budget: limit, spent, reserved, remaining")
def get_budget(context: CurrentContext, _: Reader, budget_id: str) -> BudgetBody:
    """`spent` is committed, `reserved` is held by what is pending or started, `remaining` is what the next may cost."""
    with context.database.read() as session:
        return budget_body(service.get_budget(session, budget_id))


@router.post(
    "/budgets/{budget_id}/reservations",
    operation_id="create_reservation",
    summary="Hold budget for events that have not happened yet",
    status_code=201,
    response_model=ReservationBody,
)
def create_reservation(
    context: CurrentContext,
    principal: Spender,
    key: OptionalIdempotencyKey,
    budget_id: str,
    request: Annotated[ReservationRequest, Body(openapi_examples=RESERVATION_EXAMPLES)],
    dry_run: DryRun = False,
) -> JSONResponse:
    """Admitted when the filter admits what is spent and reserved together with the cost of these events; else 409
    `budget_exceeded`. Draw no noise before `start` has answered 200.
    """
    events = to_events(request.events)
    if dry_run:
        service.price(context, budget_id, events)
        try:
            with context.database.read() as session:
                transition = service.try_reserve(session, context, budget_id=budget_id, events=events)
        except UnfinishedProblem as problem:
            raise problem.finished() from None
        body = dry_run_body(budget_id, request, transition, context.clock())
        return JSONResponse(body.model_dump(mode="json"), 201)
    if key is None:
        raise missing_key()

    def command(session: Session) -> Answer:
        reservation = service.reserve(
            session,
            context,
            budget_id=budget_id,
            events=events,
            purpose=request.purpose,
            principal_id=principal.id,
            expires_in=request.expires_in,
        )
        body = reservation_body(session, service.get_reservation(session, reservation.id)).model_dump(mode="json")
        return Answer(201, body, {"Location": f"/v1/reservations/{reservation.id}"})

    fingerprint = request_fingerprint(f"create_reservation {budget_id}", request)
    answer = run_once(
        context, principal.id, key, fingerprint, command, prepare=lambda: service.price(context, budget_id, events)
    )
    return to_response(answer)


@router.get(
    "/budgets/{budget_id}/reservations",
    operation_id="list_reservations",
    summary="Reservations, newest first",
)
def list_reservations(
    context: CurrentContext, _: Reader, budget_id: str, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[ReservationBody]:
    """Open and resolved ones."""
    after = decode_cursor(cursor, int)
    with context.database.read() as session:
        service.get_budget(session, budget_id)
        found = repository.page_of_reservations(session, budget_id, None if after is None else after[0], limit + 1)
        rows, next_cursor = cut_page(found, limit, lambda row: (row.sequence,))
        return Page(items=[reservation_body(session, row) for row in rows], next_cursor=next_cursor)


@router.get("/reservations/{reservation_id}", operation_id="get_reservation", summary="One reservation")
def get_reservation(context: CurrentContext, _: Reader, reservation_id: str) -> ReservationBody:
    """Its state, what it holds or has spent, and what its budget still admits."""
    with context.database.read() as session:
        return reservation_body(session, service.get_reservation(session, reservation_id))


@router.post(
    "/reservations/{reservation_id}/start",
    operation_id="start_reservation",
    summary="Noise is about to be drawn",
    response_model=ReservationBody,
)
def start_reservation(
    context: CurrentContext,
    principal: Spender,
    key: IdempotencyKey,
    reservation_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """Once this has answered 200, noise may be drawn, and only a commit is left. Too late: 409 `expired`."""

    def command(session: Session) -> Answer:
        service.start(session, context, reservation_id, principal_id=principal.id, by_run=False)
        return _resolved(session, reservation_id)

    release = partial(service.expire_if_due, context, reservation_id)
    fingerprint = request_fingerprint(f"start {reservation_id}")
    return to_response(run_once(context, principal.id, key, fingerprint, command, prepare=release))


@router.post(
    "/reservations/{reservation_id}/commit",
    operation_id="commit_reservation",
    summary="The events have happened",
    response_model=ReservationBody,
)
def commit_reservation(
    context: CurrentContext,
    principal: Spender,
    key: IdempotencyKey,
    reservation_id: str,
    request: Annotated[CommitRequest | None, Body(openapi_examples=COMMIT_EXAMPLES)] = None,
) -> JSONResponse:
    """Without a body, everything reserved is spent. With `events`, the part of them that happened is, and the rest is
    released.
    """
    given = None if request is None else request.events
    events = None if given is None else to_events(given)

    def command(session: Session) -> Answer:
        service.commit(session, context, reservation_id, events, principal_id=principal.id, by_run=False)
        return _resolved(session, reservation_id)

    prepare = partial(service.prepare_commit, context, reservation_id, events)
    fingerprint = request_fingerprint(f"commit {reservation_id}", request)
    return to_response(run_once(context, principal.id, key, fingerprint, command, prepare=prepare))


@router.post(
    "/reservations/{reservation_id}/void",
    operation_id="void_reservation",
    summary="Nothing has happened and nothing will",
    response_model=ReservationBody,
)
def void_reservation(
    context: CurrentContext,
    principal: Spender,
    key: IdempotencyKey,
    reservation_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """Releases the hold; refused once started (409 `already_started`)."""

    def command(session: Session) -> Answer:
        service.void(session, context, reservation_id, principal_id=principal.id, by_run=False)
        return _resolved(session, reservation_id)

    fingerprint = request_fingerprint(f"void {reservation_id}")
    return to_response(run_once(context, principal.id, key, fingerprint, command))


def _resolved(session: Session, reservation_id: str) -> Answer:
    row = service.get_reservation(session, reservation_id)
    return Answer(200, reservation_body(session, row).model_dump(mode="json"))
