"""`/v1/budgets/{id}/deployment`: the operator answers once for each budget, for all of its privacy cards."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse

from app.auth.names import names_of
from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.deployments import repository
from app.deployments.examples import DEPLOYMENT_EXAMPLES
from app.deployments.schemas import DeploymentAnswers, DeploymentBody
from app.idempotency.once import run_once
from app.idempotency.records import Answer
from app.idempotency.requests import IdempotencyKey, keyed_request, to_response
from app.kit.query_parameters import KnownParametersOnly
from app.ledger import repository as ledger
from app.problems import Problem

router = APIRouter(prefix="/v1/budgets", tags=["Budgets"], dependencies=[KnownParametersOnly])


@router.post(
    "/{budget_id}/deployment",
    operation_id="state_deployment",
    summary="Answer what only the operator knows",
    response_model=DeploymentBody,
)
def state_deployment(
    context: CurrentContext,
    principal: Annotated[Principal, requires(Scope.OWNER)],
    key: IdempotencyKey,
    budget_id: str,
    request: Annotated[DeploymentAnswers, Body(openapi_examples=DEPLOYMENT_EXAMPLES)],
) -> JSONResponse:
    """The answers replace earlier ones, and the open points on the privacy cards of all runs that are charged to this
    budget or to one below it. Nobody checks them, and they are not in the ledger.
    """

    def command(session: Session) -> Answer:
        ledger.get_budget(session, budget_id)
        answers = request.model_dump(exclude_none=True)
        said = repository.store(
            session, budget_id, answers, principal_id=principal.id, stated_at=context.clock().replace(microsecond=0)
        )
        return Answer(200, DeploymentBody.of(said, budget_id, principal.name).model_dump(mode="json"))

    return to_response(
        run_once(context, keyed_request(context, principal.id, key, f"state_deployment {budget_id}", request), command)
    )


@router.get("/{budget_id}/deployment", operation_id="get_deployment", summary="Show the operator's answers")
def get_deployment(
    context: CurrentContext,
    _: Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)],
    budget_id: str,
) -> DeploymentBody:
    """Answers for this budget, or for the nearest budget above it that has any; 404 if there are none yet."""
    with context.database.read() as session:
        ledger.get_budget(session, budget_id)
        said = repository.nearest(session, budget_id)
        if said is None:
            detail = "Nobody has answered for this budget or one above it yet. POST the answers to this path."
            raise Problem(404, "not_found", detail)
        return DeploymentBody.of(said, budget_id, names_of(session, [said.principal_id]).get(said.principal_id))
