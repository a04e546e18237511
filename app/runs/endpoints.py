"""`/v1/runs`: private training as a resource."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query
from fastapi.responses import JSONResponse, Response
from sqlalchemy.orm import Session

from app.auth.principal import Principal, Scope, requires
from app.kit.context import CurrentContext
from app.kit.idempotency import Answer, IdempotencyKey, request_fingerprint, run_once, to_response
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page
from app.kit.query_parameters import KnownParametersOnly
from app.problems import Problem
from app.reservations.schemas import EmptyRequest
from app.runs import artifacts, service
from app.runs.examples import RUN_EXAMPLES
from app.runs.models import RunState
from app.runs.report import privacy_report, run_body
from app.runs.schemas import ModelBody, PrivacyReport, RunBody, RunRequest

router = APIRouter(prefix="/v1/runs", tags=["Runs"], dependencies=[KnownParametersOnly])

Analyst = Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER)]
Reader = Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER, Scope.AUDITOR)]


@router.post(
    "",
    operation_id="create_run",
    summary="Calibrate, charge and queue a private run",
    status_code=202,
    response_model=RunBody,
)
def create_run(
    context: CurrentContext,
    principal: Analyst,
    key: IdempotencyKey,
    request: Annotated[RunRequest, Body(openapi_examples=RUN_EXAMPLES)],
) -> JSONResponse:
    """The plan is made from public sizes, its cost is reserved, and a worker process executes it.

    The charge is what the plan's events cost, whatever becomes of the run once its worker has started.
    """
    ready: list[service.Preparation] = []

    def command(session: Session) -> Answer:
        run = service.create(session, context, principal.id, request, ready[0])
        body = run_body(session, run).model_dump(mode="json")
        return Answer(202, body, {"Location": f"/v1/runs/{run.id}"})

    answer = run_once(
        context,
        principal.id,
        key,
        request_fingerprint("create_run", request),
        command,
        prepare=lambda: ready.append(service.prepare(context, request)),
    )
    return to_response(answer)


@router.get("", operation_id="list_runs", summary="Runs, newest first")
def list_runs(context: CurrentContext, _: Reader, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT) -> Page[RunBody]:
    """All runs with their state and progress."""
    with context.database.read() as session:
        runs, next_cursor = service.list_page(session, cursor, limit)
        return Page[RunBody](items=[run_body(session, run) for run in runs], next_cursor=next_cursor)


@router.get("/{run_id}", operation_id="get_run", summary="One run: state, progress, result")
def get_run(context: CurrentContext, _: Reader, run_id: str) -> RunBody:
    """Progress is a count of steps; nothing in this answer depends on a private record."""
    with context.database.read() as session:
        return run_body(session, service.get(session, run_id))


@router.post("/{run_id}/cancel", operation_id="cancel_run", summary="Cancel a run", response_model=RunBody)
def cancel_run(
    context: CurrentContext, principal: Analyst, key: IdempotencyKey, run_id: str, _request: EmptyRequest | None = None
) -> JSONResponse:
    """A queued run gives its hold back. A running one stops soon and stays charged in full: noise was drawn."""

    def command(session: Session) -> Answer:
        return Answer(200, run_body(session, service.cancel(session, context, run_id)).model_dump(mode="json"))

    answer = run_once(context, principal.id, key, request_fingerprint(f"cancel_run {run_id}"), command)
    return to_response(answer)


@router.get("/{run_id}/report", operation_id="get_run_report", summary="The privacy report of a run")
def get_run_report(context: CurrentContext, _: Reader, run_id: str) -> PrivacyReport:
    """Guarantee with its convention, plan, noise, theorem, charge and versions."""
    with context.database.read() as session:
        return privacy_report(session, service.get(session, run_id))


@router.get(
    "/{run_id}/model",
    operation_id="get_run_model",
    summary="The released model",
    response_model=ModelBody,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def get_run_model(
    context: CurrentContext,
    _: Reader,
    run_id: str,
    format: Annotated[Literal["json", "npz"], Query(description="JSON, or NumPy's NPZ with the same arrays.")] = "json",
) -> Response:
    """What the run released: parameters, the declared features they belong to, and the classes."""
    with context.database.read() as session:
        run = service.get(session, run_id)
        if run.state != RunState.SUCCEEDED:
            raise Problem(
                409, "model_not_released", f"The run has not succeeded (it is {run.state}): there is no model."
            )
        if format == "npz":
            # Bytes, not a file answer: its validators would tell the moment the file was written.
            disposition = {"Content-Disposition": f'attachment; filename="{run_id}.npz"'}
            content = artifacts.model_path(context, run).read_bytes()
            return Response(content, media_type="application/octet-stream", headers=disposition)
        return JSONResponse(service.model_body(context, run).model_dump(mode="json"))
