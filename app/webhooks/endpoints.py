"""`/v1/budgets/{id}/webhooks` and `/v1/webhooks`: who is told what happens to a budget."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse

from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import Context, CurrentContext
from app.entries import registering
from app.idempotency.once import run_once
from app.idempotency.records import Answer
from app.idempotency.requests import IdempotencyKey, keyed_request, to_response
from app.kit.fields import EmptyRequest
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.ledger.repository import get_budget
from app.tables.states import WebhookState
from app.tables.webhooks import Webhook
from app.webhooks import repository, service
from app.webhooks.examples import WEBHOOK_EXAMPLES
from app.webhooks.schemas import DeliveryBody, WebhookBody, WebhookRequest, WebhookWithSecret
from app.webhooks.signatures import secret_of

router = APIRouter(prefix="/v1", tags=["Webhooks"], dependencies=[KnownParametersOnly])

Owner = Annotated[Principal, requires(Scope.OWNER)]


@router.post(
    "/budgets/{budget_id}/webhooks",
    operation_id="create_webhook",
    summary="Tell an address what happens to a budget",
    status_code=201,
    response_model=WebhookWithSecret,
)
def create_webhook(
    context: CurrentContext,
    principal: Owner,
    key: IdempotencyKey,
    budget_id: str,
    request: Annotated[WebhookRequest, Body(openapi_examples=WEBHOOK_EXAMPLES)],
) -> JSONResponse:
    """The secret that verifies its messages is in this answer only. Messages say nothing that a reader of the budget
    could not see.
    """
    service.check_address(context, request.url)

    def command(session: Session) -> Answer:
        webhook = service.register(session, context, get_budget(session, budget_id), request, principal.id)
        return _with_secret(context, webhook, 0, 201, {"Location": f"/v1/webhooks/{webhook.id}"})

    keyed = keyed_request(context, principal.id, key, f"create_webhook {budget_id}", request)
    return to_response(run_once(context, keyed, command))


@router.get("/budgets/{budget_id}/webhooks", operation_id="list_webhooks", summary="List webhooks of a budget")
def list_webhooks(context: CurrentContext, _: Owner, budget_id: str) -> Page[WebhookBody]:
    """Lists the webhooks of a budget. There are at most ten, so one page has all of them."""
    with context.database.read() as session:
        get_budget(session, budget_id)
        rows = repository.of_budget(session, budget_id)
        waiting = repository.waiting(session, [row.id for row in rows])
    return Page(items=[WebhookBody.of(row, waiting.get(row.id, 0)) for row in rows], next_cursor=None)


@router.get("/webhooks/{webhook_id}", operation_id="get_webhook", summary="Show a webhook")
def get_webhook(context: CurrentContext, _: Owner, webhook_id: str) -> WebhookBody:
    """Returns one webhook, with its events and the number of messages that wait."""
    with context.database.read() as session:
        row = repository.get(session, webhook_id)
        return WebhookBody.of(row, repository.waiting(session, [row.id]).get(row.id, 0))


@router.get("/webhooks/{webhook_id}/deliveries", operation_id="list_deliveries", summary="List messages, newest first")
def list_deliveries(
    context: CurrentContext, _: Owner, webhook_id: str, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[DeliveryBody]:
    """Lists the messages that wait, and those of the last thirty days that were delivered or given up."""
    before = decode_cursor(cursor, datetime, str)
    with context.database.read() as session:
        repository.get(session, webhook_id)
        found = repository.page(session, webhook_id, before, limit + 1)
    rows, next_cursor = cut_page(found, limit, lambda row: (row.created_at, row.id))
    return Page(items=[DeliveryBody.of(row) for row in rows], next_cursor=next_cursor)


@router.post(
    "/webhooks/{webhook_id}/disable",
    operation_id="disable_webhook",
    summary="Stop a webhook",
    response_model=WebhookBody,
)
def disable_webhook(
    context: CurrentContext,
    principal: Owner,
    key: IdempotencyKey,
    webhook_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """No message is written or sent from now on. Messages that wait are kept."""
    return _set_state(context, principal, key, "disable_webhook", webhook_id, WebhookState.DISABLED)


@router.post(
    "/webhooks/{webhook_id}/enable",
    operation_id="enable_webhook",
    summary="Start a stopped webhook again",
    response_model=WebhookBody,
)
def enable_webhook(
    context: CurrentContext,
    principal: Owner,
    key: IdempotencyKey,
    webhook_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """The webhook is told about events again from now on, but not about earlier ones."""
    return _set_state(context, principal, key, "enable_webhook", webhook_id, WebhookState.ACTIVE)


@router.post(
    "/webhooks/{webhook_id}/rotate",
    operation_id="rotate_webhook_secret",
    summary="Give a webhook a new secret",
    response_model=WebhookWithSecret,
)
def rotate_webhook_secret(
    context: CurrentContext,
    principal: Owner,
    key: IdempotencyKey,
    webhook_id: str,
    _request: EmptyRequest | None = None,
) -> JSONResponse:
    """The new secret is in this answer only. From now on it signs messages, including those that wait."""

    def command(session: Session) -> Answer:
        registering.lock(session)
        version = repository.get(session, webhook_id).secret_version + 1
        webhook = service.change(session, context, webhook_id, principal.id, secret_version=version)
        waiting = repository.waiting(session, [webhook_id]).get(webhook_id, 0)
        return _with_secret(context, webhook, waiting, 200, {})

    keyed = keyed_request(context, principal.id, key, f"rotate_webhook_secret {webhook_id}")
    return to_response(run_once(context, keyed, command))


@router.delete(
    "/webhooks/{webhook_id}",
    operation_id="delete_webhook",
    summary="Delete a webhook and its messages",
    status_code=204,
)
def delete_webhook(context: CurrentContext, principal: Owner, webhook_id: str) -> None:
    """Messages that wait are not sent. A message that is being sent may still arrive."""
    with context.database.write() as session:
        service.remove(session, context, webhook_id, principal.id)


def _set_state(
    context: Context, principal: Principal, key: str, operation: str, webhook_id: str, state: WebhookState
) -> JSONResponse:
    def command(session: Session) -> Answer:
        webhook = service.change(session, context, webhook_id, principal.id, state=str(state))
        waiting = repository.waiting(session, [webhook_id]).get(webhook_id, 0)
        return Answer(200, WebhookBody.of(webhook, waiting).model_dump(mode="json"))

    keyed = keyed_request(context, principal.id, key, f"{operation} {webhook_id}")
    return to_response(run_once(context, keyed, command))


def _with_secret(context: Context, webhook: Webhook, waiting: int, status: int, headers: dict[str, str]) -> Answer:
    body = WebhookWithSecret.without_secret(webhook, waiting).model_dump(mode="json")
    secret = secret_of(context, webhook.id, webhook.secret_version)
    return Answer(status, body, headers, shown_once={"secret": secret})
