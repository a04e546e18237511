"""Requests of pages to the service: a page shows the answers of the same paths that other clients use.

So a page has no rights, limits or rules of its own: its reader sees exactly what the reader's key may see.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

import anyio
from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Scope

from app.observability.request_id import HEADER, request_id_of

#: The headers that describe a document.
_RELAYED = ("content-type", "content-disposition", "content-security-policy")
_JSON = (b"content-type", b"application/json")
#: The seconds that a request waits for an equal one that is under way, and the seconds between two attempts.
_PATIENCE_S = 10.0
_PAUSE_S = 0.05
_OF_THE_CONNECTION = ("type", "asgi", "http_version", "scheme", "client", "server")


@dataclass(frozen=True)
class Answer:
    """An answer of the service.

    Attributes:
        status: The HTTP status.
        body: The JSON document: the result, or a problem.
    """

    status: int
    body: dict[str, Any]

    @property
    def is_good(self) -> bool:
        """Return whether the request succeeded."""
        return self.status < 400

    @property
    def was_given_up(self) -> bool:
        """Return whether the service ran out of time. Then no field is wrong, and the same request may succeed
        later."""
        return self.body.get("code") == "too_much_work"

    @property
    def refusal(self) -> str:
        """Return a problem as a sentence. If it has several faults, the sentence only refers to the marked fields."""
        many = len(self.body.get("errors") or []) > 1
        return "The fields that are marked need another value." if many else str(self.body["detail"])

    def faults(self, *pointers: str) -> list[str]:
        """Return a problem's faults at these fields of the request, given as JSON pointers, and below them."""
        found = self.body.get("errors") or []
        return [fault["detail"] for fault in found if any(is_within(fault["pointer"], each) for each in pointers)]


async def ask(
    request: Request,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
    key: str | None = None,
    token: str | None = None,
) -> Answer:
    """Send a request to one of the service's own paths, with the rights of the page's reader.

    Args:
        request: The request for the page.
        method, path, query, body: The parts of the request to the service; the body becomes JSON.
        key: The Idempotency-Key of a command. If a form is sent twice at once, for example by a double click, the
            second request waits for the answer to the first.
        token: An API key to use instead of the reader's. It is checked like any other client's key.
    """
    headers = [(b"accept", b"application/json"), *_headers(request)]
    content = b"" if body is None else json.dumps(body).encode()
    if content:
        # The length is given, so that cached answers are found.
        headers += [_JSON, (b"content-length", str(len(content)).encode())]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode("latin-1", "replace")))
    if key is not None:
        headers.append((b"idempotency-key", key.encode()))
    # The guard has admitted the reader of the page, and accepts the same principal for this request.
    state = {} if token is not None else {"principal": request.scope["state"]["principal"]}

    async def answer() -> Answer:
        answered = _Answered(content)
        scope = _scope(request, method, path, query, headers, dict(state))
        await request.app(scope, answered.receive, answered.send)
        return Answer(answered.status, cast(dict[str, Any], json.loads(answered.content or b"{}")))

    found, deadline = await answer(), time.monotonic() + _PATIENCE_S
    while found.body.get("code") == "request_in_progress" and time.monotonic() < deadline:
        await anyio.sleep(_PAUSE_S)
        found = await answer()
    return found


async def relay(request: Request, path: str, query: Mapping[str, str]) -> Response:
    """Return a document of the service unchanged, such as a privacy card, with the rights of the page's reader."""
    answered = _Answered(b"")
    state = {"principal": request.scope["state"]["principal"]}
    headers = _headers(request)
    await request.app(_scope(request, "GET", path, query, headers, state), answered.receive, answered.send)
    said = Headers(raw=answered.headers)
    kept = {name: said[name] for name in _RELAYED if name in said}
    return Response(answered.content, answered.status, kept)


async def pass_on(request: Request, path: str, key: str) -> Answer:
    """Post the body of the page's own request to a path of the service as it comes, so that no file is held in memory.

    Args:
        request: The request for the page, whose body has not been read yet.
        path: A path of the service.
        key: The Idempotency-Key of the command.
    """
    answered = _Answered(b"")
    state = {"principal": request.scope["state"]["principal"]}
    headers = [*_headers(request, b"content-type", b"content-length"), (b"idempotency-key", key.encode())]
    await request.app(_scope(request, "POST", path, None, headers, state), request.receive, answered.send)
    return Answer(answered.status, cast(dict[str, Any], json.loads(answered.content or b"{}")))


class _Answered:
    """A request within this process and its answer, in place of a network connection."""

    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.content = b""
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is None:
            await anyio.sleep_forever()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
        else:
            self.content += message.get("body", b"")


def _headers(request: Request, *names: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers that are copied from the page's request: its id, the host, and the headers with these
    names."""
    kept = [(name, value) for name, value in request.scope["headers"] if name in (b"host", *names)]
    return [(HEADER.lower().encode(), request_id_of(request.scope).encode()), *kept]


def _scope(
    request: Request,
    method: str,
    path: str,
    query: Mapping[str, str] | None,
    headers: list[tuple[bytes, bytes]],
    state: dict[str, Any],
) -> Scope:
    page = request.scope
    return {
        **{name: page[name] for name in _OF_THE_CONNECTION if name in page},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(query or {}).encode(),
        "headers": headers,
        "state": state,
    }


def is_within(pointer: str, whole: str) -> bool:
    """Return whether a JSON pointer leads to this place or to something inside it.

    >>> is_within("/columns/3/upper", "/columns"), is_within("/columns2", "/columns")
    (True, False)
    """
    return pointer == whole or pointer.startswith(f"{whole}/")
