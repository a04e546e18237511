"""`/v1/run-sweeps`: a grid of private runs as one resource, and one charge."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Header, Query
from fastapi.responses import HTMLResponse, JSONResponse, Response
from sqlalchemy.orm import Session

from app.auth import reach
from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.idempotency.once import run_once
from app.idempotency.records import Answer
from app.idempotency.requests import (
    IdempotencyKey,
    OptionalIdempotencyKey,
    keyed_request,
    missing_key,
    to_response,
)
from app.kit.fields import EmptyRequest
from app.kit.negotiation import preferred
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page
from app.kit.query_parameters import KnownParametersOnly
from app.reservations.commands import dry_run as dry_run_reservation
from app.reservations.commands import make_room
from app.run_sweeps import heat_map, preparation, service
from app.run_sweeps.examples import RUN_SWEEP_EXAMPLES
from app.run_sweeps.report import quote_body, summary, sweep_body
from app.run_sweeps.schemas import RunSweepBody, RunSweepQuote, RunSweepRequest, RunSweepSummary
from app.runs import doorbell
from app.runs import service as runs
from app.runs import sweep_progression as progression
from app.runs.checkpoint_files import sweep_checkpoints
from app.tables.states import Select
from app.web import pages

router = APIRouter(prefix="/v1/run-sweeps", tags=["Runs"], dependencies=[KnownParametersOnly])

Analyst = Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER)]
Reader = Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER, Scope.AUDITOR)]

HEAT_MAP_TYPES = {"image/svg+xml": "svg", "text/html": "html"}


@router.post(
    "",
    operation_id="create_run_sweep",
    summary="Calibrate, charge and queue a grid of private runs",
    status_code=202,
    response_model=RunSweepBody,
    responses={
        200: {"model": RunSweepQuote, "description": "With `dry_run`: what it would cost. Nothing was written."},
        429: {"description": "Too many runs of this key wait for a worker."},
    },
)
def create_run_sweep(
    context: CurrentContext,
    principal: Analyst,
    key: OptionalIdempotencyKey,
    request: Annotated[RunSweepRequest, Body(openapi_examples=RUN_SWEEP_EXAMPLES)],
    dry_run: Annotated[bool, Query(description="Answer what it would cost, and write nothing.")] = False,
) -> JSONResponse:
    """Takes a run request in which one or two fields are lists. `select: all` runs and charges every cell. `select:
    best` makes a secret number of trials of cells drawn at random, and releases only the best one, for less.

    One charge pays for the whole sweep. No answer ever tells how many trials a sweep for the best run made.
    """
    if dry_run:
        prepared = preparation.prepare(context, request, principal)
        return JSONResponse(quote_body(prepared, _cost(context, principal, prepared)).model_dump(mode="json"), 200)
    if key is None:
        raise missing_key()
    ready: list[preparation.Prepared] = []

    def command(session: Session) -> Answer:
        sweep = service.create(session, context, principal.id, ready[0])
        body = sweep_body(session, sweep).model_dump(mode="json")
        return Answer(202, body, {"Location": f"/v1/run-sweeps/{sweep.id}"})

    def prepare() -> None:
        if ready:
            return
        runs.check_queue(context, principal.id)
        prepared = preparation.prepare(context, request, principal)
        if prepared.sweep.select == Select.ALL:
            runs.check_queue(context, principal.id, len(prepared.grid.cells))
        ready.append(prepared)

    keyed = keyed_request(context, principal.id, key, "create_run_sweep", request)
    answer = make_room(context, principal, keyed, lambda: run_once(context, keyed, command, prepare))
    doorbell.ring(context.settings.data_dir)
    return to_response(answer)


def _cost(context: CurrentContext, principal: Principal, prepared: preparation.Prepared) -> dict[str, Any] | None:
    """Return the cost that the ledger would state if the sweep were reserved."""
    if prepared.price is None:
        return None
    with context.database.read() as session:
        service.charged_data(session, prepared)
    return dry_run_reservation(context, principal, prepared.price.asked())


@router.get("", operation_id="list_run_sweeps", summary="List sweeps of runs, newest first")
def list_run_sweeps(
    context: CurrentContext, principal: Reader, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[RunSweepSummary]:
    """Lists all sweeps of runs, without their cells."""
    with context.database.read() as session:
        sweeps, next_cursor = service.list_page(session, cursor, limit, reach.run_sweeps(principal))
        return Page[RunSweepSummary](items=[summary(session, sweep) for sweep in sweeps], next_cursor=next_cursor)


@router.get("/{sweep_id}", operation_id="get_run_sweep", summary="Show a sweep: its table of cells")
def get_run_sweep(context: CurrentContext, _: Reader, sweep_id: str) -> RunSweepBody:
    """A sweep with `select: all` shows each run with its scores; one with `select: best` shows one run, at the end."""
    with context.database.read() as session:
        return sweep_body(session, service.get(session, sweep_id))


@router.post(
    "/{sweep_id}/cancel",
    operation_id="cancel_run_sweep",
    summary="Cancel the runs of a sweep",
    response_model=RunSweepBody,
)
def cancel_run_sweep(
    context: CurrentContext,
    principal: Analyst,
    key: IdempotencyKey,
    sweep_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """A sweep that has started no run gives back its hold. Otherwise the started runs stop soon, and their cost is
    charged. A sweep for the best run is charged in full, and ends when its result would have been shown.
    """

    def command(session: Session) -> Answer:
        sweep = service.cancel(session, context, sweep_id, principal)
        return Answer(200, sweep_body(session, sweep).model_dump(mode="json"))

    keyed = keyed_request(context, principal.id, key, f"cancel_run_sweep {sweep_id}")
    answer = run_once(context, keyed, command)
    progression.advance(context, {sweep_id})
    sweep_checkpoints(context)
    return to_response(answer)


@router.get(
    "/{sweep_id}/heat-map",
    operation_id="get_run_sweep_heat_map",
    summary="Draw the scores of a sweep as a heat map",
    response_class=Response,
    responses={
        200: {"content": {media_type: {"schema": {"type": "string"}} for media_type in HEAT_MAP_TYPES}},
        409: {"description": "The sweep's results are withheld, or none has a score."},
    },
)
def get_run_sweep_heat_map(
    context: CurrentContext,
    _: Reader,
    sweep_id: str,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    format: Annotated[
        Literal["svg", "html"] | None,
        Query(
            description="If left out, the header Accept decides. `svg`: A picture. `html`: A page with the table "
            "beside it."
        ),
    ] = None,
) -> Response:
    """The accuracy, or the mean absolute error, of each cell's model on public rows. The colours go from light to dark,
    so that colour-blind people can tell their order. Every cell shows its number.
    """
    with context.database.read() as session:
        body = sweep_body(session, service.get(session, sweep_id))
    drawn = heat_map.heat_map_of(body)
    if (format or HEAT_MAP_TYPES[preferred(accept, list(HEAT_MAP_TYPES))]) == "html":
        headers = {"Vary": "Accept", "Content-Security-Policy": pages.policy(heat_map.PAGE_STYLES)}
        return HTMLResponse(heat_map.to_html(body, drawn), headers=headers)
    headers = {"Vary": "Accept", "Content-Security-Policy": pages.policy(heat_map.PICTURE_STYLES)}
    return Response(heat_map.to_svg(drawn), media_type="image/svg+xml", headers=headers)
