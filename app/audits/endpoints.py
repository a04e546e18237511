"""`/v1/audits`: attacks by canaries, stored with the claims that they test."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.audits import service
from app.audits.examples import AUDIT_EXAMPLES
from app.audits.schemas import AuditBody, AuditRequest
from app.auth import reach
from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.idempotency.once import run_once
from app.idempotency.records import Answer
from app.idempotency.requests import IdempotencyKey, keyed_request, to_response
from app.kit.fields import Identifier
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page
from app.kit.query_parameters import KnownParametersOnly

router = APIRouter(prefix="/v1/audits", tags=["Audits"], dependencies=[KnownParametersOnly])

Analyst = Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER, Scope.AUDITOR)]


@router.post(
    "",
    operation_id="create_audit",
    summary="Attack a plan with canaries, and compare the result with its claim",
    status_code=201,
    response_model=AuditBody,
)
def create_audit(
    context: CurrentContext,
    principal: Analyst,
    key: IdempotencyKey,
    request: Annotated[AuditRequest, Body(openapi_examples=AUDIT_EXAMPLES)],
) -> JSONResponse:
    """The real trainer carries out the plan on canaries: made-up records whose presence is as easy to detect as
    possible. No row of any data set is used, so an audit costs no budget.

    An audit may take about 100 seconds. A lower bound above the claim shows that the trainer loses more privacy than
    was charged.
    """
    done: list[service.Audited] = []

    def command(session: Session) -> Answer:
        stored = service.store(session, context, principal.id, request, done[0])
        body = service.audit_body(stored).model_dump(mode="json")
        return Answer(201, body, {"Location": f"/v1/audits/{stored.id}"})

    keyed = keyed_request(context, principal.id, key, "create_audit", request)

    def prepare() -> None:
        done.append(service.carry_out(context, request, principal))

    return to_response(run_once(context, keyed, command, prepare))


@router.get("", operation_id="list_audits", summary="List audits, newest first")
def list_audits(
    context: CurrentContext,
    principal: Analyst,
    run_id: Annotated[Identifier | None, Query(description="List only the audits of this run.")] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[AuditBody]:
    """Lists all audits with their findings."""
    with context.database.read() as session:
        found, next_cursor = service.list_page(session, cursor, limit, run_id, reach.audits(principal))
        return Page[AuditBody](items=[service.audit_body(stored) for stored in found], next_cursor=next_cursor)


@router.get("/{audit_id}", operation_id="get_audit", summary="Show an audit")
def get_audit(context: CurrentContext, _: Analyst, audit_id: str) -> AuditBody:
    """Returns an audit: the claim, the bound and the verdict."""
    with context.database.read() as session:
        return service.audit_body(service.get(session, audit_id))
