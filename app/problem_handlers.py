"""Turns every exception that a route can raise into an answer in problem+json."""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from accounting.errors import AccountingError
from app.db.failures import is_disk_full
from app.kit.validation import from_validation
from app.observability.request_id import request_id_of
from app.observability.stack import stack_lines
from app.problems import Problem, database_unavailable, disk_full, from_accounting

log = structlog.get_logger("epsilond.http")

#: The framework's own errors, by status, as codes of the contract.
_FRAMEWORK = {
    400: ("malformed_request", "The request could not be read."),
    404: ("not_found", "There is nothing at this path."),
    405: ("method_not_allowed", "This path does not take this method; the header Allow lists those it takes."),
    413: ("body_too_large", "The body is too large."),
    415: ("unsupported_media_type", "The content type is not one that this call takes."),
}

#: The errors of the system for a full disk, an exhausted quota, or a file of the largest size.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

#: The status in logs and metrics if a client left before its request was complete; it is never sent.
CLIENT_GONE = 499


def add_problem_handlers(app: FastAPI) -> None:
    """Answer problem+json to every kind of exception. The request boundary answers all others with 500."""

    @app.exception_handler(Problem)
    async def _problem(request: Request, error: Problem) -> Response:
        if error.code == "quota_exceeded":
            request.app.state.context.metrics.refused_by_quota(str(error.members["quota"]))
        return error.response(request_id_of(request.scope))

    @app.exception_handler(AccountingError)
    async def _accounting(request: Request, error: AccountingError) -> Response:
        return from_accounting(error).response(request_id_of(request.scope))

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> Response:
        problem = from_validation(error.errors(), error.body, _type_of_body(request))
        return problem.response(request_id_of(request.scope))

    @app.exception_handler(HTTPException)
    async def _framework(request: Request, error: HTTPException) -> Response:
        # The detail of the error is not used, since it may quote the request.
        phrase = HTTPStatus(error.status_code).phrase
        code, detail = _FRAMEWORK.get(error.status_code, (phrase.lower().replace(" ", "_"), f"{phrase}."))
        headers = (
            {"Allow": _methods_of(request)} if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else error.headers
        )
        problem = Problem(error.status_code, code, detail, headers=headers)
        return problem.response(request_id_of(request.scope))

    @app.exception_handler(DBAPIError)
    async def _database(request: Request, error: DBAPIError) -> Response:
        # A lost connection, or a lock that was not obtained in time. Any other SQL error is the service's fault: 500.
        if is_disk_full(error):
            log.error("disk_full", raised_at=stack_lines(error))
            return disk_full().response(request_id_of(request.scope))
        if not isinstance(error, OperationalError) and not error.connection_invalidated:
            raise error
        log.error("database_unavailable", error_type=type(error).__name__, raised_at=stack_lines(error))
        return database_unavailable().response(request_id_of(request.scope))

    @app.exception_handler(OSError)
    async def _file(request: Request, error: OSError) -> Response:
        if error.errno not in _NO_ROOM:
            raise error
        log.error("disk_full", raised_at=stack_lines(error))
        return disk_full().response(request_id_of(request.scope))

    @app.exception_handler(ClientDisconnect)
    async def _gone(_: Request, __: ClientDisconnect) -> Response:
        # The client is gone, so nobody reads this answer, and the log records no failure of the service.
        return Response(status_code=CLIENT_GONE)

    @app.exception_handler(PoolTimeout)
    async def _pool(request: Request, error: PoolTimeout) -> Response:
        log.error("database_unavailable", error_type=type(error).__name__, raised_at=stack_lines(error))
        return database_unavailable().response(request_id_of(request.scope))


def _methods_of(request: Request) -> str:
    """Return the methods that a request's path allows. The framework itself names only those of the first route."""
    routes, scope = request.app.router.routes, request.scope
    taken = (
        method
        for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    )
    return ", ".join(taken)


def _type_of_body(request: Request) -> Any:
    """Return the type that a request's body is read as; None if the call takes no body or reads it without a type."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return None if field is None else field.field_info.annotation
