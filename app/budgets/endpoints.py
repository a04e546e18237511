"""`/v1/budgets`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse

from app.auth import reach
from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.budgets import report as reports
from app.budgets import repository, service
from app.budgets.bodies import budget_bodies, budget_body
from app.budgets.examples import BUDGET_EXAMPLES, CORRECTION_EXAMPLES, LIMIT_EXAMPLES
from app.budgets.schemas import BudgetBody, BudgetRequest, LimitRequest
from app.context import CurrentContext
from app.idempotency.once import run_once
from app.idempotency.records import Answer
from app.idempotency.requests import IdempotencyKey, keyed_request, to_response
from app.kit.ids import new_id
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.ledger import repository as ledger
from app.ledger.commands import ChangeLimit, Charge
from app.ledger.executor import execute
from app.ledger.journal import Instruction, path_of
from app.ledger.transitions import Transition
from app.problems import unprocessable
from app.reservations import quotes
from app.reservations import service as reservations
from app.reservations.bodies import reservation_body
from app.reservations.schemas import CorrectionRequest, ReservationBody
from app.wire.events import to_events

router = APIRouter(prefix="/v1/budgets", tags=["Budgets"], dependencies=[KnownParametersOnly])

Owner = Annotated[Principal, requires(Scope.OWNER)]
LimitChanger = Annotated[Principal, requires(Scope.LIMITS)]
Corrector = Annotated[Principal, requires(Scope.OWNER, Scope.CORRECTIONS)]
Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]
Delta = Annotated[
    float | None, Query(gt=0, le=0.5, description="The delta of the report; if left out, the budget's own.")
]


@router.post("", operation_id="create_budget", summary="Open a budget", status_code=201, response_model=BudgetBody)
def create_budget(
    context: CurrentContext,
    principal: Owner,
    key: IdempotencyKey,
    request: Annotated[BudgetRequest, Body(openapi_examples=BUDGET_EXAMPLES)],
) -> JSONResponse:
    """Opens a limit on privacy loss under one neighbouring relation, in the currency of one filter. Relation and
    currency never change. With a `parent_id`, every charge is charged to the parent, too, and must fit both.
    """

    def command(session: Session) -> Answer:
        service.check_place(session, principal, request.parent_id)
        budget = service.create_budget(session, context, request, principal.id)
        (body,) = budget_bodies(session, [budget], context.clock(), principal)
        return Answer(201, body.model_dump(mode="json"), {"Location": f"/v1/budgets/{budget.id}"})

    keyed = keyed_request(context, principal.id, key, "create_budget", request)
    return to_response(run_once(context, keyed, command))


@router.get("", operation_id="list_budgets", summary="List budgets, newest first")
def list_budgets(
    context: CurrentContext,
    principal: Reader,
    parent_id: Annotated[str | None, Query(max_length=64, description="List only the children of this budget.")] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[BudgetBody]:
    """All budgets with their limits and what is used of them, without reports."""
    after = decode_cursor(cursor, datetime, str)
    with context.database.read() as session:
        if parent_id is not None and not reach.is_reached(session, principal, "budget_id", parent_id):
            return Page(items=[], next_cursor=None)
        found = repository.page(session, after, limit + 1, parent_id=parent_id, within=reach.budgets(principal))
        rows, next_cursor = cut_page(found, limit, lambda budget: (budget.created_at, budget.id))
        return Page(items=budget_bodies(session, rows, context.clock(), principal), next_cursor=next_cursor)


@router.get("/{budget_id}", operation_id="get_budget", summary="Show a budget: limit, spent, reserved, left, report")
def get_budget(context: CurrentContext, principal: Reader, budget_id: str, delta: Delta = None) -> BudgetBody:
    """`spent` is committed, `reserved` is held by pending and started reservations, and `left` is the rest of the
    limit.

    The report is stated at `delta`, else at the budget's `report_delta`, else at the delta of its filter.
    """
    with context.database.read() as session:
        budget = ledger.get_budget(session, budget_id)
        (body,) = budget_bodies(session, [budget], context.clock(), principal)
        at = delta or body.report_delta or body.filter.get("delta")
        if at is None:
            return body
        steps, path = reports.exposed_steps(session, budget), path_of(session, budget_id)
    assert path is not None, "it was found"
    return body.model_copy(update={"report": reports.report(context, path, steps, at)})


@router.post(
    "/{budget_id}/limit",
    operation_id="change_limit",
    summary="Change a budget's limit (scope limits)",
    response_model=BudgetBody,
)
def change_limit(
    context: CurrentContext,
    principal: LimitChanger,
    key: IdempotencyKey,
    budget_id: str,
    request: Annotated[LimitRequest, Body(openapi_examples=LIMIT_EXAMPLES)],
) -> JSONResponse:
    """The new limit must not be below what is used (409 `limit_below_use`). If a limit is raised after outputs were
    seen, the guarantee is that of the largest limit that could have been granted.
    """
    with context.database.read() as session:
        budget = ledger.get_budget(session, budget_id)
        overdue = repository.overdue_counts(session, [budget_id], context.clock()).get(budget_id, 0)

    def answer(transition: Transition) -> Answer:
        return Answer(200, budget_body(budget, transition.path, overdue, principal).model_dump(mode="json"))

    def instruct() -> Instruction:
        command = ChangeLimit(service.changed_filter(budget, request.filter), request.reason)
        return Instruction(command, principal.id, budget_id)

    keyed = keyed_request(context, principal.id, key, f"change_limit {budget_id}", request)
    return to_response(execute(context, keyed, instruct, answer))


@router.post(
    "/{budget_id}/corrections",
    operation_id="correct_charge",
    summary="Correct a charge, or charge what no reservation held",
    status_code=201,
    response_model=ReservationBody,
)
def correct_charge(
    context: CurrentContext,
    principal: Corrector,
    key: IdempotencyKey,
    budget_id: str,
    request: Annotated[CorrectionRequest, Body(openapi_examples=CORRECTION_EXAMPLES)],
) -> JSONResponse:
    """Raises a charge, even beyond the limit, because the truth is never refused; such a budget admits nothing until it
    has room again. Lowering a charge needs the scope `corrections`.
    """
    # An empty list is accepted here only: it says that nothing happened.
    events = to_events(request.events) if request.events else None if request.events is None else ()
    charge_delta = None if request.charge is None else request.charge.delta

    def instruct() -> Instruction:
        if request.reservation_id is not None:
            with context.database.read() as session:
                ledger.get_budget(session, budget_id)
                reach.check(session, principal, "reservation_id", request.reservation_id)
                if reservations.get_reservation(session, request.reservation_id).budget_id != budget_id:
                    detail = "the reservation belongs to another budget; correct it there"
                    raise unprocessable("other_budget", detail, "reservation_id")
            command = service.correction(
                context,
                request.reservation_id,
                events=events,
                charge_delta=charge_delta,
                reason=request.reason,
                may_lower=principal.may(Scope.CORRECTIONS),
            )
            return Instruction(command, principal.id, request.reservation_id)
        if not events:
            raise unprocessable("missing", "without reservation_id, events must say what was released", "events")
        quote = quotes.quote(context, budget_id, events, charge_delta=charge_delta)
        return Instruction(Charge(new_id("res"), events, quote, request.reason, charge_delta), principal.id, budget_id)

    def answer(transition: Transition) -> Answer:
        assert transition.reservation is not None, "it is about a reservation"
        return Answer(201, reservation_body(transition.reservation, transition.path, context.clock()))

    keyed = keyed_request(context, principal.id, key, f"correct {budget_id}", request)
    return to_response(execute(context, keyed, instruct, answer))
