"""The outermost layer of a request: its id, its log line and metrics, the headers of every answer, and the answer to
unexpected errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.kit.web_addresses import Network
from app.observability.metrics import NO_ROUTE, Metrics, method_of
from app.observability.request_id import HEADER, REQUEST_ID, choose_request_id
from app.observability.stack import stack_lines
from app.observability.tracing import describe, request_span
from app.problems import Problem

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = structlog.get_logger("epsilond.http")
_NOT_TEXT = re.compile("[\0\ufffd\ud800-\udfff]")

_ID = HEADER.lower().encode()
#: Browsers must not guess the type of an answer, show it in a frame, send its address onwards, or let another site read
#: it.
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
#: The content security policy of every answer that is not a page; pages have their own.
_NO_PAGE = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
#: Answers that may contain data about budgets are not cached. The documentation and style sheets are the same for
#: everybody, and may be cached.
_NO_STORE = (b"cache-control", b"no-store")
_SAME_FOR_ALL = ("/docs", "/openapi.json", "/dashboard/assets/")
_REPLAYED = (b"idempotency-replayed", b"true")


class AnswerInterrupted(Exception):
    """An answer broke off after its first byte, so the connection is closed. The exception does not show the cause,
    which might quote data."""


class RequestBoundary:
    """ASGI middleware. No exception that leaves it quotes data, and every request gets an answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics, believed: tuple[Network, ...] = ()) -> None:
        self.app = app
        self.metrics = metrics
        self._believed = believed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with request_span(scope, self._believed) as span:
            await self._answer(scope, receive, send, span)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, span: Span | None) -> None:
        request_id = choose_request_id(scope)
        status = 0
        began = time.perf_counter()
        self.metrics.request_begun()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = _with_headers(message.get("headers", ()), scope["path"], request_id)
                message["headers"] = headers
                if _REPLAYED in headers:
                    self.metrics.replayed()
            await send(message)

        token = REQUEST_ID.set(request_id)
        try:
            await self._check_target(scope, receive, send_with_headers)
        except Exception as error:
            log.error("request_failed", error_type=type(error).__name__, raised_at=stack_lines(error))
            if status:
                raise AnswerInterrupted from None
            problem = Problem(500, "internal_error", "The service failed. Its log has the cause under request_id.")
            await problem.response(request_id)(scope, receive, send_with_headers)
        finally:
            self._tell(scope, status, time.perf_counter() - began, span)
            REQUEST_ID.reset(token)

    def _tell(self, scope: Scope, status: int, seconds: float, span: Span | None) -> None:
        """Write one log line, update the metrics, and name the span."""
        method, route = method_of(scope["method"]), _route_of(scope)
        if span is not None:
            describe(span, method, route, status)
        self.metrics.request_ended(method, route, status, seconds)
        log.info(
            "request",
            method=method,
            route=route,
            status=status,
            milliseconds=round(1000 * seconds, 1),
            principal=_principal_of(scope),
        )

    async def _check_target(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _is_text(scope["path"]) and b"%00" not in scope["query_string"]:
            await self.app(scope, receive, send)
            return
        problem = Problem(400, "malformed_url", "The address holds NUL or is not UTF-8.")
        await problem.response(scope["state"]["request_id"])(scope, receive, send)


def _is_text(path: str) -> bool:
    # Where the bytes of a path are not UTF-8, servers decode them with replacement characters or surrogates.
    return _NOT_TEXT.search(path) is None


def _with_headers(given: Iterable[tuple[bytes, bytes]], path: str, request_id: str) -> list[tuple[bytes, bytes]]:
    headers = [*given, (_ID, request_id.encode()), *SECURITY_HEADERS]
    names = {name for name, _ in headers}  # ASGI requires lower case
    if _NO_PAGE[0] not in names:
        headers.append(_NO_PAGE)
    if _NO_STORE[0] not in names and not path.startswith(_SAME_FOR_ALL):
        headers.append(_NO_STORE)
    return headers


def _route_of(scope: MutableMapping[str, Any]) -> str:
    """Return the route's template. The path itself is the client's text, and must not appear in logs and metrics."""
    found = getattr(scope.get("route"), "path", None)
    return str(found or scope["state"].get("route", NO_ROUTE))


def _principal_of(scope: MutableMapping[str, Any]) -> str | None:
    """Return the id of the key; None if there is none, or the request was refused before the key was read."""
    # The id is returned for every kind of principal. Other layers decide who may ask.
    return getattr(scope["state"].get("principal"), "id", None)
