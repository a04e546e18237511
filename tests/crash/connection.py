"""HTTP over a raw socket: the caller knows when a request's first byte left, and whether its reply ever came whole."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import TracebackType
from typing import Any

from tests.local_access import authorization

REPLY_TIMEOUT_S = 60
Address = tuple[str, int]


class NoReply(Exception):
    """The connection ended before the reply was complete: the caller knows nothing of what its request has done."""


@dataclass(frozen=True)
class Answer:
    """A complete reply. Numbers with a decimal point are `Decimal`, so that amounts are compared exactly."""

    status_code: int
    headers: Mapping[str, str]
    body: Any

    def json(self) -> Any:
        return self.body

    @property
    def code(self) -> str | None:
        """Of a problem."""
        return self.body.get("code") if isinstance(self.body, dict) else None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    @property
    def is_replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"


class Connection:
    """One connection that stays open; a context manager."""

    def __init__(self, address: Address) -> None:
        self._host = f"{address[0]}:{address[1]}"
        self._authorization = authorization(address[1])
        self._socket = socket.create_connection(address, timeout=REPLY_TIMEOUT_S)
        # Else the rest of a request waits for the server's acknowledgement of its first byte.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def send(
        self,
        method: str,
        path: str,
        body: object | None = None,
        key: str | None = None,
        on_first_byte: Callable[[], None] = lambda: None,
    ) -> Answer:
        """The reply to one request; ``on_first_byte`` is called when its first byte is sent and the others are not.

        Raises:
            NoReply: the connection ended before.
        """
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in self._authorization.items()]
        lines += [] if body is None else ["Content-Type: application/json"]
        lines += [] if key is None else [f"Idempotency-Key: {key}"]
        request = "\r\n".join([*lines, "", ""]).encode() + content
        try:
            self._socket.sendall(request[:1])
            on_first_byte()
            self._socket.sendall(request[1:])
            return self._read_reply()
        except ConnectionError as error:
            raise NoReply from error

    def _read_reply(self) -> Answer:
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        assert "content-length" in headers, head
        length = int(headers["content-length"])
        while len(self._received) < length:
            self._receive()
        content, self._received = self._received[:length], self._received[length:]
        return Answer(int(first.split(" ")[1]), headers, json.loads(content, parse_float=Decimal))

    def _receive(self) -> None:
        more = self._socket.recv(65536)
        if not more:
            raise NoReply
        self._received += more
