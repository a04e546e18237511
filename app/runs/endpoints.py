"""`/v1/runs`: private training as a resource."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Header, Query
from fastapi.responses import HTMLResponse, JSONResponse, Response
from sqlalchemy.orm import Session

from app.auth import reach
from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.idempotency.once import run_once
from app.idempotency.records import Answer
from app.idempotency.requests import IdempotencyKey, keyed_request, to_response
from app.kit.fields import EmptyRequest
from app.kit.negotiation import preferred
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page
from app.kit.query_parameters import KnownParametersOnly
from app.ledger import proving
from app.ledger.transparency_schemas import InclusionBody
from app.problems import Problem
from app.reservations.commands import make_room
from app.runs import doorbell, predictions, preparation, service
from app.runs.card import card_of
from app.runs.card_rendering import PAGE_STYLES, to_html, to_markdown
from app.runs.checkpoint_files import sweep_checkpoints
from app.runs.examples import PREDICTION_EXAMPLES, RUN_EXAMPLES
from app.runs.model_schemas import ModelBody
from app.runs.report import privacy_report
from app.runs.report_schemas import PrivacyReport
from app.runs.schemas import PredictionRequest, PredictionsBody, RunBody, RunRequest
from app.runs.stored import run_body
from app.web import pages

router = APIRouter(prefix="/v1/runs", tags=["Runs"], dependencies=[KnownParametersOnly])

Analyst = Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER)]
Reader = Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER, Scope.AUDITOR)]

#: The media types of the privacy card; the first one is the default.
CARD_TYPES = {"application/json": "json", "text/markdown": "markdown", "text/html": "html"}


@router.post(
    "",
    operation_id="create_run",
    summary="Calibrate, charge and queue a private run",
    status_code=202,
    response_model=RunBody,
    responses={429: {"description": "Too many runs of this key wait for a worker."}},
)
def create_run(
    context: CurrentContext,
    principal: Analyst,
    key: IdempotencyKey,
    request: Annotated[RunRequest, Body(openapi_examples=RUN_EXAMPLES)],
) -> JSONResponse:
    """The plan is made from public sizes, its cost is reserved, and a worker process executes it.

    Once its worker has started, the run is charged what the plan's events cost, however it ends.
    """
    ready: list[preparation.Preparation] = []

    def command(session: Session) -> Answer:
        run = service.create(session, context, principal.id, request, ready[0])
        body = run_body(session, run).model_copy(update={"price": ready[0].explanation})
        return Answer(202, body.model_dump(mode="json"), {"Location": f"/v1/runs/{run.id}"})

    def prepare() -> None:
        if ready:
            return
        service.check_queue(context, principal.id)
        ready.append(preparation.prepare(context, request, principal))

    keyed = keyed_request(context, principal.id, key, "create_run", request)
    answer = make_room(context, principal, keyed, lambda: run_once(context, keyed, command, prepare))
    doorbell.ring(context.settings.data_dir)
    return to_response(answer)


@router.get("", operation_id="list_runs", summary="List runs, newest first")
def list_runs(
    context: CurrentContext, principal: Reader, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[RunBody]:
    """Lists all runs with their state and progress."""
    with context.database.read() as session:
        runs, next_cursor = service.list_page(session, cursor, limit, reach.runs(principal))
        return Page[RunBody](items=[run_body(session, run) for run in runs], next_cursor=next_cursor)


@router.get("/{run_id}", operation_id="get_run", summary="Show a run: state, progress, result")
def get_run(context: CurrentContext, _: Reader, run_id: str) -> RunBody:
    """Progress is a count of steps; nothing in this answer depends on a private record."""
    with context.database.read() as session:
        body = run_body(session, service.get(session, run_id))
    return body.model_copy(update={"price": service.price_of(context, run_id)})


@router.post("/{run_id}/cancel", operation_id="cancel_run", summary="Cancel a run", response_model=RunBody)
def cancel_run(
    context: CurrentContext, principal: Analyst, key: IdempotencyKey, run_id: str, _request: EmptyRequest | None = None
) -> JSONResponse:
    """A run that was never started gives its hold back. Other runs stop soon and are charged in full, since they may
    have drawn noise.

    The charge of a sweep is settled when all its runs have ended. Runs that were never started lower it if the budget's
    filter allows that.
    """

    def command(session: Session) -> Answer:
        run = service.cancel(session, context, run_id, principal)
        return Answer(200, run_body(session, run).model_dump(mode="json"))

    keyed = keyed_request(context, principal.id, key, f"cancel_run {run_id}")
    answer = run_once(context, keyed, command)
    service.go_on_with_sweep(context, run_id)
    sweep_checkpoints(context)
    return to_response(answer)


@router.get(
    "/{run_id}/report",
    operation_id="get_run_report",
    summary="Show the privacy card of a run",
    response_model=PrivacyReport,
    responses={200: {"content": {media_type: {"schema": {"type": "string"}} for media_type in list(CARD_TYPES)[1:]}}},
)
def get_run_report(
    context: CurrentContext,
    _: Reader,
    run_id: str,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    format: Annotated[
        Literal["json", "markdown", "html"] | None,
        Query(
            description="Format of the card; without it the header Accept decides. `json`: For programs. `markdown`: "
            "For a repository. `html`: A page that holds all it needs."
        ),
    ] = None,
) -> Response:
    """The card has the guarantee with its convention, unit of privacy, sampler, mechanism, parameters with their
    theorems, charge with its entries in the ledger, audits, versions and caveats. It answers NIST SP 800-226 point by
    point, and has an entry for the registry of deployments. Fields that only the operator can fill stay open.

    The page holds all that it needs, so that it can be kept, sent and printed.
    """
    with context.database.read() as session:
        report = privacy_report(session, service.get(session, run_id))
    report = _with_proof(context, report)
    headers = {"Vary": "Accept"}
    match format or CARD_TYPES[preferred(accept, list(CARD_TYPES))]:
        case "markdown":
            return Response(to_markdown(card_of(report)), media_type="text/markdown", headers=headers)
        case "html":
            headers["Content-Security-Policy"] = pages.policy(PAGE_STYLES)
            return HTMLResponse(to_html(card_of(report)), headers=headers)
    return JSONResponse(report.model_dump(mode="json"), headers=headers)


def _with_proof(context: CurrentContext, report: PrivacyReport) -> PrivacyReport:
    """Return the report with a proof that the last entry about the charge is in the tree of all entries."""
    if report.ledger is None:
        return report
    try:
        proof = InclusionBody.of(proving.inclusion(context, report.ledger.entries[-1].id))
    except Problem as problem:
        if problem.code != "ledger_not_consistent":
            raise
        return report
    return report.model_copy(update={"ledger": report.ledger.model_copy(update={"proof": proof})})


@router.get(
    "/{run_id}/model",
    operation_id="get_run_model",
    summary="Fetch the released model",
    response_model=ModelBody,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def get_run_model(
    context: CurrentContext,
    _: Reader,
    run_id: str,
    format: Annotated[
        Literal["json", "npz"],
        Query(
            description="`json`: Arrays as lists of numbers. `npz`: An archive of NumPy with the same arrays, and the "
            "rest as JSON in the array `document`."
        ),
    ] = "json",
) -> Response:
    """The released model with all that predictions need. `epsilond_client.load` makes predictions offline."""
    with context.database.read() as session:
        run = service.released(session, context, run_id)
        if format == "npz":
            # The file's bytes are sent directly: the headers of a `FileResponse` would reveal when the file was
            # written.
            disposition = {"Content-Disposition": f'attachment; filename="{run_id}.npz"'}
            content = service.model_file(session, context, run)
            return Response(content, media_type="application/octet-stream", headers=disposition)
        return JSONResponse(service.model_body(session, context, run).model_dump(mode="json"))


@router.post(
    "/{run_id}/predictions",
    operation_id="predict",
    summary="Predict rows with the released model",
)
def predict(
    context: CurrentContext,
    _: Reader,
    run_id: str,
    request: Annotated[PredictionRequest, Body(openapi_examples=PREDICTION_EXAMPLES)],
) -> PredictionsBody:
    """A prediction costs no privacy, writes nothing and takes no Idempotency-Key. This is for small batches:
    `epsilond_client.load` predicts any number of rows, offline."""
    with context.database.read() as session:
        run = service.released(session, context, run_id)
    return predictions.predict(context, run, request)
