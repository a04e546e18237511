"""`/v1/budgets/{id}/limit-requests` and `/v1/limit-requests`: an analyst asks for another limit, owners decide."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel
from sqlalchemy import ColumnElement
from starlette.responses import JSONResponse

from app.auth import reach
from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.budgets import service as budgets
from app.context import Context, CurrentContext
from app.idempotency.records import Answer
from app.idempotency.requests import IdempotencyKey, keyed_request, to_response
from app.kit.fields import EmptyRequest
from app.kit.ids import new_id
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.ledger import repository as ledger
from app.ledger.commands import ApproveLimit, AskLimit, LimitDecision, RefuseLimit, WithdrawLimit
from app.ledger.executor import execute
from app.ledger.journal import Instruction
from app.ledger.rows import limit_request_state
from app.ledger.transitions import Transition
from app.limit_requests import repository
from app.limit_requests.bodies import limit_request_body, with_names
from app.limit_requests.examples import APPROVE_EXAMPLES, ASK_EXAMPLES, REFUSE_EXAMPLES
from app.limit_requests.schemas import AskRequest, DecisionRequest, LimitRequestBody
from app.tables.ledger import LimitRequest
from app.tables.states import LimitRequestStatus

router = APIRouter(prefix="/v1", tags=["Budgets"], dependencies=[KnownParametersOnly])

Asker = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST)]
Owner = Annotated[Principal, requires(Scope.OWNER)]
Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]
State = Annotated[LimitRequestStatus | None, Query(description="List only those in this state.")]


@router.post(
    "/budgets/{budget_id}/limit-requests",
    operation_id="create_limit_request",
    summary="Ask for another limit of a budget",
    status_code=201,
    response_model=LimitRequestBody,
)
def create_limit_request(
    context: CurrentContext,
    principal: Asker,
    key: IdempotencyKey,
    budget_id: str,
    request: Annotated[AskRequest, Body(openapi_examples=ASK_EXAMPLES)],
) -> JSONResponse:
    """The request is entered in the budget's chain, charges nothing, and waits for owners. One key may have at most
    five open requests for one budget.
    """
    with context.database.read() as session:
        budget = ledger.get_budget(session, budget_id)

    def instruct() -> Instruction:
        wanted = budgets.changed_filter(budget, request.filter)
        command = AskLimit(new_id("lim"), wanted, request.reason, context.settings.approvals)
        return Instruction(command, principal.id, budget_id)

    keyed = keyed_request(context, principal.id, key, f"create_limit_request {budget_id}", request)
    return _with_names(context, execute(context, keyed, instruct, lambda transition: _answer(transition, 201)))


@router.get(
    "/budgets/{budget_id}/limit-requests",
    operation_id="list_limit_requests_of_budget",
    summary="List requests for another limit of a budget, newest first",
    response_model=Page[LimitRequestBody],
)
def list_limit_requests_of_budget(
    context: CurrentContext,
    _: Reader,
    budget_id: str,
    state: State = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> JSONResponse:
    """Lists the open and the decided requests about a budget."""
    with context.database.read() as session:
        ledger.get_budget(session, budget_id)
    return _page(context, LimitRequest.budget_id == budget_id, state, cursor, limit)


@router.get(
    "/limit-requests",
    operation_id="list_limit_requests",
    summary="List requests for another limit, newest first",
    response_model=Page[LimitRequestBody],
)
def list_limit_requests(
    context: CurrentContext,
    principal: Reader,
    state: State = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> JSONResponse:
    """Lists the requests about all budgets that the key reaches; `state=open` lists those that wait for a decision."""
    return _page(context, reach.limit_requests(principal), state, cursor, limit)


@router.get(
    "/limit-requests/{limit_request_id}",
    operation_id="get_limit_request",
    summary="Show a request for another limit",
    response_model=LimitRequestBody,
)
def get_limit_request(context: CurrentContext, _: Reader, limit_request_id: str) -> JSONResponse:
    """Returns one request: the wanted limit, and the decision."""
    with context.database.read() as session:
        body = limit_request_body(limit_request_state(repository.get(session, limit_request_id)))
        return JSONResponse(with_names(session, body))


@router.post(
    "/limit-requests/{limit_request_id}/approve",
    operation_id="approve_limit_request",
    summary="Approve a request for another limit",
    response_model=LimitRequestBody,
)
def approve_limit_request(
    context: CurrentContext,
    principal: Owner,
    key: IdempotencyKey,
    limit_request_id: str,
    request: Annotated[DecisionRequest, Body(openapi_examples=APPROVE_EXAMPLES)],
) -> JSONResponse:
    """The last approval that is needed sets the limit, in the same transaction. Nobody may approve their own request
    (403 `own_request`), or approve twice. The approval is refused if the limit has changed meanwhile, if the new one
    would be below what is used, or if it is more than a budget above admits.
    """
    command = ApproveLimit(request.reason, context.settings.approvals)
    return _decide(context, principal, key, limit_request_id, "approve_limit_request", command, request)


@router.post(
    "/limit-requests/{limit_request_id}/refuse",
    operation_id="refuse_limit_request",
    summary="Refuse a request for another limit",
    response_model=LimitRequestBody,
)
def refuse_limit_request(
    context: CurrentContext,
    principal: Owner,
    key: IdempotencyKey,
    limit_request_id: str,
    request: Annotated[DecisionRequest, Body(openapi_examples=REFUSE_EXAMPLES)],
) -> JSONResponse:
    """One owner can refuse it, even if others have approved it."""
    command = RefuseLimit(request.reason)
    return _decide(context, principal, key, limit_request_id, "refuse_limit_request", command, request)


@router.post(
    "/limit-requests/{limit_request_id}/withdraw",
    operation_id="withdraw_limit_request",
    summary="Withdraw a request for another limit",
    response_model=LimitRequestBody,
)
def withdraw_limit_request(
    context: CurrentContext,
    principal: Asker,
    key: IdempotencyKey,
    limit_request_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """The key that asked may withdraw its request; owners refuse other requests."""
    return _decide(context, principal, key, limit_request_id, "withdraw_limit_request", WithdrawLimit())


def _decide(
    context: Context,
    principal: Principal,
    key: str,
    limit_request_id: str,
    operation: str,
    command: LimitDecision,
    request: BaseModel | None = None,
) -> JSONResponse:
    keyed = keyed_request(context, principal.id, key, f"{operation} {limit_request_id}", request)
    instruction = Instruction(command, principal.id, limit_request_id)
    return _with_names(
        context, execute(context, keyed, lambda: instruction, lambda transition: _answer(transition, 200))
    )


def _with_names(context: Context, answer: Answer) -> JSONResponse:
    with context.database.read() as session:
        return to_response(replace(answer, body=with_names(session, answer.body)))


def _answer(transition: Transition, status: int) -> Answer:
    assert transition.limit_request is not None, "it is about a request"
    body = limit_request_body(transition.limit_request)
    headers = {"Location": f"/v1/limit-requests/{body['id']}"} if status == 201 else {}
    return Answer(status, body, headers)


def _page(
    context: Context, within: ColumnElement[bool], state: LimitRequestStatus | None, cursor: str | None, limit: int
) -> JSONResponse:
    after = decode_cursor(cursor, datetime, str)
    with context.database.read() as session:
        found = repository.page(session, after, limit + 1, within=within, state=state)
        rows, next_cursor = cut_page(found, limit, lambda row: (row.created_at, row.id))
        items = [with_names(session, limit_request_body(limit_request_state(row))) for row in rows]
    return JSONResponse({"items": items, "next_cursor": next_cursor})
