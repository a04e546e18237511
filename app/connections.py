"""Limits how long the server waits for a client, and answers input that is not a request.

uvicorn itself sets no limit: it waits for ever for the first byte of a request, for the rest of the request, and for
the client to read an answer. It cannot tell a client that has vanished from a slow one.
"""

from __future__ import annotations

import json
import math
import resource
import secrets
import socket
import time
from collections.abc import Iterable
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.observability.request_id import HEADER
from app.observability.requests import SECURITY_HEADERS
from app.problems import MEDIA_TYPE, Problem

log = structlog.get_logger("epsilond.connections")

#: The seconds for the head of a request, from the start of the connection or, for later requests, from the first byte.
HEAD_S = 20.0
#: The seconds for a body: `BODY_S`, and one more second for every `BODY_BYTES_PER_S` bytes that have arrived.
BODY_S, BODY_BYTES_PER_S = 30.0, 500
#: The longest time, in seconds, that a client may pause while it reads an answer.
UNREAD_S = 60.0
#: After a refusal, data that still arrive are dropped for this many seconds. If the connection were closed at once,
#: the answer could be lost before the client reads it.
LINGER_S = 2.0
#: The seconds that a connection may be idle between two requests. Proxies close idle connections after a
#: minute. This time is longer, so that the proxy closes first.
KEEP_ALIVE_S = 75
#: The largest head of a request: all lines before its body.
HEAD_BYTES = 16 * 2**10

#: The number of files that a process may have open, unless the system allows fewer.
FILES = 8192
#: The number of open files kept for uses other than clients' connections: the database, uploads, workers.
OTHER_FILES = 256
#: The system asks whether the other end is still there after this many seconds without a packet, again after this many
#: seconds, and this many times.
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 60, 10, 3


def allow_many_files() -> None:
    """Raise this process's limit of open files, since each connection is one. On many systems, the limit is only
    1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """Return how many connections of clients may be open at one time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (FILES if soft == resource.RLIM_INFINITY else soft) - OTHER_FILES


def notice_who_vanishes(listening: socket.socket) -> None:
    """Let the operating system check whether the clients of silent connections still exist.

    New connections inherit this setting."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", PROBE_AFTER_S),
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_KEEPCNT", PROBES),
    ):
        if hasattr(socket, option):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Owes(Enum):
    """The step that the server waits for a client to take."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    READING = auto()


class Connection(H11Protocol):
    """A connection of uvicorn. `end_overdue` checks every second or so whether the client is late."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = self._messages = _Messages(h11.SERVER, HEAD_BYTES)
        self._received = 0
        self._is_refused = False
        # At the last check: what the client owed, since when, and how many bytes had arrived or were unread.
        self._owed: tuple[Owes, int] = (Owes.NOTHING, 0)
        self._since, self._received_before = 0.0, 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            log.warning("too_many_connections")
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if not self._is_refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse input that is not HTTP. uvicorn calls this method while it handles the error of its parser."""
        if self._messages.fault == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            detail = f"The lines before the body are longer than {HEAD_BYTES} bytes."
            self._refuse(Problem(431, "head_too_large", detail))
        else:
            detail = "This is not a request of HTTP/1.1, or it states the length of its body in two ways."
            self._refuse(Problem(400, "malformed_request", detail))

    def end_if_overdue(self, now: float) -> None:
        """Close the connection if the client's time is over. If a request is overdue, answer before closing."""
        owes, since = self._looked_at(now)
        received = self._received - self._received_before
        patience = {
            Owes.NOTHING: math.inf,
            Owes.HEAD: HEAD_S,
            Owes.BODY: BODY_S + received / BODY_BYTES_PER_S,
            Owes.READING: UNREAD_S,
        }
        if now - since > patience[owes]:
            self._hang_up(owes)

    def _looked_at(self, now: float) -> tuple[Owes, float]:
        """Return what the server is waiting for from the client, and since when."""
        owes = self._owes()
        # While an answer is sent, each byte that the client takes restarts the time; while the client sends, each new
        # request does.
        stage = self.transport.get_write_buffer_size() if owes is Owes.READING else id(self.cycle)
        if (owes, stage) != self._owed:
            self._owed, self._since, self._received_before = (owes, stage), now, self._received
        return owes, self._since

    def _owes(self) -> Owes:
        if self.flow.write_paused or self.transport.is_closing():
            return Owes.READING
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            # A client that has had an answer and sends no further request is limited elsewhere.
            return Owes.HEAD if self.timeout_keep_alive_task is None else Owes.NOTHING
        if self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused:
            return Owes.NOTHING if self.cycle.waiting_for_100_continue else Owes.BODY
        return Owes.NOTHING

    def _hang_up(self, owes: Owes) -> None:
        log.info("slow_client", owes=owes.name.lower())
        if owes is Owes.READING or self._received == 0:
            self.transport.abort()
        else:
            detail = f"The request did not arrive in time. The head has {HEAD_S:g} s, and a body {BODY_S:g} s or more."
            self._refuse(Problem(408, "request_timeout", detail))

    def _refuse(self, problem: Problem) -> None:
        """Answer instead of the application, and close the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        if self.cycle is not None:
            # The application is told that the client is gone, and whatever it still sends is dropped.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        request_id = f"req_{secrets.token_hex(8)}"
        body = json.dumps(problem.body(request_id)).encode()
        headers = [
            *SECURITY_HEADERS,
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
            (HEADER.encode(), request_id.encode()),
        ]
        log.info("refused", request_id=request_id, status=problem.status, code=problem.code)
        head = h11.Response(status_code=problem.status, headers=headers)
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self._is_refused = True
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


class _Messages(h11.Connection):
    """Requests of HTTP/1.1. Input that two servers could read differently is refused (RFC 9112, section 6.3).

    Attributes:
        fault: The HTTP status of the fault.
    """

    fault: int = HTTPStatus.BAD_REQUEST

    def next_event(self) -> Any:
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check_length(event)
        except h11.RemoteProtocolError as error:
            self.fault = error.error_status_hint
            raise
        return event


def _check_length(request: h11.Request) -> None:
    lengths = {name for name, _ in request.headers if name in (b"content-length", b"transfer-encoding")}
    if len(lengths) > 1 or (b"transfer-encoding" in lengths and request.http_version < b"1.1"):
        raise h11.RemoteProtocolError("the request gives two lengths for its body")


def end_overdue(connections: Iterable[object], now: float | None = None) -> None:
    """Close the connection to every client whose time is over."""
    now = time.monotonic() if now is None else now
    for connection in list(connections):
        if isinstance(connection, Connection):
            connection.end_if_overdue(now)
