"""The outermost layer of a request: its id, its log line, and the answer when nothing else gave one."""

from __future__ import annotations

import re
import time
from collections.abc import MutableMapping
from typing import Any

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.observability.request_id import HEADER, choose_request_id
from app.observability.stack import stack_lines
from app.problems import Problem

log = structlog.get_logger("epsilond.http")
_NOT_TEXT = re.compile("[\0\ufffd\ud800-\udfff]")


class AnswerInterrupted(Exception):
    """An answer broke after its first byte: the connection is given up. Carries nothing of the cause."""


class RequestBoundary:
    """ASGI middleware. No exception leaves it with a value in it, and no request leaves without an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = choose_request_id(scope)
        status = 0
        began = time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(message, scope, request_id)
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._check_target(scope, receive, send_with_headers)
            except Exception as error:
                log.error("request_failed", error_type=type(error).__name__, raised_at=stack_lines(error))
                if status:
                    raise AnswerInterrupted from None
                problem = Problem(500, "internal_error", "The service failed. Its log has the cause under request_id.")
                await problem.response(request_id)(scope, receive, send_with_headers)
            finally:
                log.info(
                    "request",
                    method=scope["method"],
                    route=_route_of(scope),
                    status=status,
                    milliseconds=round(1000 * (time.perf_counter() - began), 1),
                )

    async def _check_target(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _is_text(scope["path"]) and b"%00" not in scope["query_string"]:
            await self.app(scope, receive, send)
            return
        problem = Problem(400, "malformed_url", "The address holds NUL or is not UTF-8.")
        await problem.response(scope["state"]["request_id"])(scope, receive, send)


def _is_text(path: str) -> bool:
    # Servers decode the path's bytes with replacement characters or surrogates where they are not UTF-8.
    return _NOT_TEXT.search(path) is None


def _add_headers(message: Message, scope: Scope, request_id: str) -> None:
    headers = MutableHeaders(scope=message)
    headers[HEADER] = request_id
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "no-referrer"
    if scope["path"].startswith("/v1"):
        headers["Cache-Control"] = "no-store"


def _route_of(scope: MutableMapping[str, Any]) -> str:
    """The route's template. The path itself is the client's text and stays out of the log."""
    return str(getattr(scope.get("route"), "path", "-"))
