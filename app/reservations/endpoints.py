"""`/v1/reservations`, and `/v1/budgets/{id}/reservations`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.idempotency.once import settled
from app.idempotency.records import in_flight
from app.idempotency.requests import (
    IdempotencyKey,
    OptionalIdempotencyKey,
    keyed_request,
    missing_key,
    to_response,
)
from app.kit.fields import PRINTABLE, EmptyRequest
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.ledger.commands import Commit, Extend, Resolution, Start, Void
from app.ledger.executor import Exceeded, decide_soon
from app.ledger.repository import get_budget
from app.problems import Problem, unprocessable
from app.reservations import commands, quotes, repository, service
from app.reservations.commands import Asked, Command
from app.reservations.examples import COMMIT_EXAMPLES, RESERVATION_EXAMPLES
from app.reservations.schemas import CommitRequest, ExtendRequest, ReservationBody, ReservationRequest
from app.tables.states import ReservationStatus
from app.wire.events import to_events

router = APIRouter(prefix="/v1", tags=["Reservations"], dependencies=[KnownParametersOnly])

Spender = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST)]
Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]
DryRun = Annotated[bool, Query(description="Answer the same and write nothing; then no Idempotency-Key is needed.")]


@router.post(
    "/budgets/{budget_id}/reservations",
    operation_id="create_reservation",
    summary="Hold budget for events that have not happened yet",
    status_code=201,
    response_model=ReservationBody,
)
async def create_reservation(
    context: CurrentContext,
    principal: Spender,
    key: OptionalIdempotencyKey,
    budget_id: str,
    request: Annotated[ReservationRequest, Body(openapi_examples=RESERVATION_EXAMPLES)],
    dry_run: DryRun = False,
) -> JSONResponse:
    """The reservation is admitted if the filters of the budget and of those above it admit the cost of these events
    together with what is spent and reserved; else 409 `budget_exceeded`. Draw no noise before `start` has answered 200.
    """
    events = to_events(request.events)
    charge_delta = None if request.charge is None else request.charge.delta
    asked = Asked(
        budget_id,
        events,
        request.purpose,
        timedelta(seconds=request.expires_in),
        charge_delta,
        certificate=request.certificate,
    )
    if dry_run:
        return JSONResponse(await run_in_threadpool(commands.dry_run, context, principal, asked), 201)
    if key is None:
        raise missing_key()
    keyed = keyed_request(context, principal.id, key, f"create_reservation {budget_id}", request)
    return await answered(commands.to_reserve(context, principal, keyed, asked))


async def answered(command: Command) -> JSONResponse:
    """Return the response to a command, without using a thread if the command needs none."""
    context, request = command.context, command.request
    if request is not None:
        with in_flight(context.database, request.keyed.key) as is_first:
            if is_first:
                with suppress(Exceeded):
                    decision = await asyncio.wrap_future(decide_soon(context, request))
                    return to_response(settled(decision, request.keyed))
    return to_response(await run_in_threadpool(command.carry_out))


@router.get(
    "/budgets/{budget_id}/reservations",
    operation_id="list_reservations",
    summary="List reservations, newest first",
    response_model=Page[ReservationBody],
)
def list_reservations(
    context: CurrentContext,
    _: Reader,
    budget_id: str,
    state: Annotated[ReservationStatus | None, Query(description="List only those in this state.")] = None,
    overdue: Annotated[bool, Query(description="List only those that were started and not committed in time.")] = False,
    purpose: Annotated[
        str | None,
        Query(max_length=200, pattern=PRINTABLE, description="List only reservations with exactly this purpose."),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> JSONResponse:
    """Lists the open and the resolved reservations of the budget."""
    after, now = decode_cursor(cursor, int), context.clock()
    with context.database.read() as session:
        get_budget(session, budget_id)
        found = repository.page(
            session,
            budget_id,
            before=None if after is None else after[0],
            limit=limit + 1,
            state=state,
            purpose=purpose,
            overdue_at=now if overdue else None,
        )
        shown, next_cursor = cut_page(found, limit, lambda row: (row.sequence,))
        items = service.bodies(session, shown, now)
    return JSONResponse({"items": items, "next_cursor": next_cursor})


@router.get(
    "/reservations/{reservation_id}",
    operation_id="get_reservation",
    summary="Show a reservation",
    response_model=ReservationBody,
)
def get_reservation(context: CurrentContext, _: Reader, reservation_id: str) -> JSONResponse:
    """Returns one reservation: its state, what it holds or has spent, and what its budget still admits."""
    with context.database.read() as session:
        row = service.get_reservation(session, reservation_id)
        (body,) = service.bodies(session, [row], context.clock())
    return JSONResponse(body)


@router.get(
    "/reservations/{reservation_id}/certificate",
    operation_id="get_certificate",
    summary="Show the certificate with which a reservation was made",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
def get_certificate(context: CurrentContext, _: Reader, reservation_id: str) -> Response:
    """The certificate as canonical JSON, for `epsilond-verify`; its SHA-256 is `certificate` of the reservation and of
    the entry that made it. It states what the events cost alone."""
    with context.database.read() as session:
        data = service.certificate_of(session, reservation_id)
    disposition = f'attachment; filename="{reservation_id}.certificate.json"'
    return Response(data, media_type="application/json", headers={"Content-Disposition": disposition})


@router.post(
    "/reservations/{reservation_id}/start",
    operation_id="start_reservation",
    summary="Start: noise is about to be drawn",
    response_model=ReservationBody,
)
async def start_reservation(
    context: CurrentContext,
    principal: Spender,
    key: IdempotencyKey,
    reservation_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """Once this has answered 200, noise may be drawn, and the reservation can only be committed. The answer is 409
    `expired` if the time to start is over."""
    keyed = keyed_request(context, principal.id, key, f"start {reservation_id}")
    return await answered(commands.to_resolve(context, principal, keyed, reservation_id, Start()))


@router.post(
    "/reservations/{reservation_id}/extend",
    operation_id="extend_reservation",
    summary="Give a reservation more time",
    response_model=ReservationBody,
)
async def extend_reservation(
    context: CurrentContext,
    principal: Spender,
    key: IdempotencyKey,
    reservation_id: str,
    request: ExtendRequest | None = None,
) -> JSONResponse:
    """Gives a pending reservation more time to start, and a started one more time until it is overdue. The time never
    becomes shorter."""
    asked = request or ExtendRequest()
    until = context.clock() + timedelta(seconds=asked.expires_in)
    keyed = keyed_request(context, principal.id, key, f"extend {reservation_id}", asked)
    return await answered(commands.to_resolve(context, principal, keyed, reservation_id, Extend(until)))


@router.post(
    "/reservations/{reservation_id}/commit",
    operation_id="commit_reservation",
    summary="Commit: the events have happened",
    response_model=ReservationBody,
)
async def commit_reservation(
    context: CurrentContext,
    principal: Spender,
    key: IdempotencyKey,
    reservation_id: str,
    request: Annotated[CommitRequest | None, Body(openapi_examples=COMMIT_EXAMPLES)] = None,
) -> JSONResponse:
    """A commit without a body spends everything that is reserved. One with `events` spends these, the part that
    happened, and releases the rest; an approximate_dp or approximate_gaussian_dp budget charges everything
    nevertheless, because a part that was chosen by looking at outputs is not worth its own price. With `give_up_tail`
    an approximate_gaussian_dp budget gives back what the rest is worth.
    """
    given = None if request is None else request.events
    events = None if given is None else to_events(given)
    gives_up = request is not None and request.give_up_tail
    if gives_up and not principal.may(Scope.REFUNDS):
        detail = "Only a key with the scope refunds may state that no noise was drawn for the rest, and give it up."
        raise Problem(403, "forbidden", detail)
    if gives_up and events is None:
        detail = "if the rest is given up, events must say which part of the reserved events happened"
        raise unprocessable("missing_events", detail, "events")
    keyed = keyed_request(context, principal.id, key, f"commit {reservation_id}", request or CommitRequest())

    def part() -> Resolution:
        assert events is not None, "asked for parts alone"
        if gives_up:
            return Commit(events, given_up=quotes.given_up(context, reservation_id, events))
        return Commit(events, quotes.quote_part(context, reservation_id, events))

    resolution = Commit() if events is None else part
    return await answered(commands.to_resolve(context, principal, keyed, reservation_id, resolution))


@router.post(
    "/reservations/{reservation_id}/void",
    operation_id="void_reservation",
    summary="Void: nothing has happened and nothing will",
    response_model=ReservationBody,
)
async def void_reservation(
    context: CurrentContext,
    principal: Spender,
    key: IdempotencyKey,
    reservation_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """Releases the hold; refused once started (409 `already_started`)."""
    keyed = keyed_request(context, principal.id, key, f"void {reservation_id}")
    return await answered(commands.to_resolve(context, principal, keyed, reservation_id, Void()))
