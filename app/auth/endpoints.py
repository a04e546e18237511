"""`/v1/keys`: who may ask what, and until when."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Body
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse

from app.auth import local_token, repository, service
from app.auth.examples import KEY_EXAMPLES, ROTATE_EXAMPLES
from app.auth.principal import Principal, Scope
from app.auth.rights import CurrentPrincipal, requires
from app.auth.schemas import KeyBody, KeyRequest, KeyWithToken, OwnKeyBody, QuotaBody, RotateRequest
from app.auth.throttle import limits_of
from app.context import Context, CurrentContext
from app.idempotency.once import run_once
from app.idempotency.records import Answer
from app.idempotency.requests import IdempotencyKey, keyed_request, to_response
from app.kit.fields import EmptyRequest
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.tables.access import ApiKey

router = APIRouter(prefix="/v1/keys", tags=["Keys"], dependencies=[KnownParametersOnly])

Admin = Annotated[Principal, requires(Scope.ADMIN)]


@router.post("", operation_id="create_key", summary="Make a key", status_code=201, response_model=KeyWithToken)
def create_key(
    context: CurrentContext,
    principal: Admin,
    key: IdempotencyKey,
    request: Annotated[KeyRequest, Body(openapi_examples=KEY_EXAMPLES)],
) -> JSONResponse:
    """The token of the key is in this answer only. The first key of a server ends its local token, and from then on
    requests without a key are refused."""

    def command(session: Session) -> Answer:
        row, token = service.add_key(session, context, request.terms(context.clock()), principal.id)
        return _with_token(context, row, token, 201, {"Location": f"/v1/keys/{row.id}"})

    keyed = keyed_request(context, principal.id, key, "create_key", request)
    answer = run_once(context, keyed, command)
    service.tell_of_change(context)
    local_token.remove(context)
    return to_response(answer)


@router.get("", operation_id="list_keys", summary="List keys, newest first")
def list_keys(context: CurrentContext, _: Admin, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT) -> Page[KeyBody]:
    """Lists all keys, including ended ones, without their tokens."""
    before = decode_cursor(cursor, datetime, str)
    with context.database.read() as session:
        found = repository.page(session, before, limit + 1)
    rows, next_cursor = cut_page(found, limit, lambda row: (row.created_at, row.id))
    return Page(items=[KeyBody.of(row, context.clock()) for row in rows], next_cursor=next_cursor)


@router.get("/self", operation_id="get_own_key", summary="Say what the key of this request may do, and until when")
def get_own_key(context: CurrentContext, principal: CurrentPrincipal) -> OwnKeyBody:
    """Every key may ask this, whatever its scopes."""
    limits = limits_of(principal, context.settings.requests_per_second, context.settings.concurrent_requests)
    reached = service.budget_ids(principal.budgets)
    with context.database.read() as session:
        quotas = service.quotas_of(session, context, principal)
    return OwnKeyBody(
        id=principal.id,
        name=principal.name,
        scopes=sorted(principal.scopes),
        budgets=None if reached is None else list(reached),
        valid_until=principal.valid_until,
        requests_per_second=limits.requests_per_second,
        concurrent_requests=limits.concurrent_requests,
        quotas=[QuotaBody(quota=quota, used=used, limit=limit) for quota, used, limit in quotas],
    )


@router.get("/{key_id}", operation_id="get_key", summary="Show a key")
def get_key(context: CurrentContext, _: Admin, key_id: str) -> KeyBody:
    """Returns one key: its rights, its end, and its last use."""
    with context.database.read() as session:
        return KeyBody.of(service.get_key(session, key_id), context.clock())


@router.post(
    "/{key_id}/rotate", operation_id="rotate_key", summary="Give a key a new token", response_model=KeyWithToken
)
def rotate_key(
    context: CurrentContext,
    principal: Admin,
    key: IdempotencyKey,
    key_id: str,
    request: Annotated[RotateRequest | None, Body(openapi_examples=ROTATE_EXAMPLES)] = None,
) -> JSONResponse:
    """The key keeps its id and its rights. The old token stays valid for `overlap_s` seconds, so that its holder can
    change over. Until then the key cannot be rotated again, except with `overlap_s` 0.
    """
    asked = request or RotateRequest()

    def command(session: Session) -> Answer:
        row, token = service.rotate_key(session, context, key_id, timedelta(seconds=asked.overlap_s), principal.id)
        return _with_token(context, row, token, 200, {})

    keyed = keyed_request(context, principal.id, key, f"rotate_key {key_id}", asked)
    answer = run_once(context, keyed, command)
    service.tell_of_change(context)
    return to_response(answer)


@router.post("/{key_id}/revoke", operation_id="revoke_key", summary="End a key for ever", response_model=KeyBody)
def revoke_key(
    context: CurrentContext, principal: Admin, key: IdempotencyKey, key_id: str, _request: EmptyRequest | None = None
) -> JSONResponse:
    """Its tokens are refused from now on, by other server processes after at most a second. The last key with the scope
    `admin` cannot be revoked here (409 `last_admin_key`), only on the command line.
    """

    def command(session: Session) -> Answer:
        row = service.revoke_unless_last(session, context, key_id, principal.id)
        return Answer(200, KeyBody.of(row, context.clock()).model_dump(mode="json"))

    keyed = keyed_request(context, principal.id, key, f"revoke_key {key_id}")
    answer = run_once(context, keyed, command)
    service.tell_of_change(context)
    return to_response(answer)


def _with_token(context: Context, row: ApiKey, token: str, status: int, headers: dict[str, str]) -> Answer:
    """Return the answer with the token, which no stored answer has."""
    body = {**KeyBody.of(row, context.clock()).model_dump(mode="json"), "token": None}
    return Answer(status, body, headers, shown_once={"token": token})
