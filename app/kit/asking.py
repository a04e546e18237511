"""One request to another server. It follows no redirect, and the size of the answer and the time are bounded."""

from __future__ import annotations

import io
import socket
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError

#: The seconds for the whole answer. Until the answer begins, each step may take half of them.
DEADLINE_S = 8.0
_MOST_BYTES = 512 * 1024
_AT_ONCE = 64 * 1024


class NoAnswer(Exception):
    """The server gave no answer, or the answer was too late or too long. The message is for the log."""


@dataclass(frozen=True)
class Reply:
    """An answer with any status."""

    status: int
    body: bytes


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Timed(io.RawIOBase):
    """Reads from a socket up to a deadline. A socket's own timeout starts again with every byte."""

    def __init__(self, received: io.RawIOBase, connection: socket.socket, until: float) -> None:
        self._received, self._connection, self._until = received, connection, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


class _Answer(HTTPResponse):
    """An answer that is cut off at the deadline, its status and headers included."""

    def __init__(self, connection: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(connection, *args, **kwargs)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), connection, time.monotonic() + DEADLINE_S))


class _Connection(HTTPConnection):
    response_class = _Answer


class _SecureConnection(HTTPSConnection):
    response_class = _Answer


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Connection, request)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_SecureConnection, request)


def _opener() -> urllib.request.OpenerDirector:
    """Return the opener of addresses. It uses HTTPS_PROXY, since the other server may be outside a company's network.

    It does not use HTTP_PROXY, since requests over http stay on this machine or in its network.
    """
    proxies = {scheme: proxy for scheme, proxy in urllib.request.getproxies().items() if scheme == "https"}
    return urllib.request.build_opener(_NoRedirect, _Http, _Https, urllib.request.ProxyHandler(proxies))


def ask(address: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    """Get the content of an address that an operator has named, or post a body to it.

    Raises:
        NoAnswer: there is no answer.
    """
    sent = {"User-Agent": "epsilond", **(headers or {})}
    request = urllib.request.Request(address, data=body, headers=sent)  # noqa: S310  # callers check the scheme
    try:
        try:
            with _opener().open(request, timeout=DEADLINE_S / 2) as answer:
                return Reply(answer.status, _read(answer))
        except HTTPError as error:
            with error:
                return Reply(error.code, _read(error))
    except (OSError, HTTPException, ValueError) as error:
        # Only the class of the error is given, since its message may quote what was sent.
        raise NoAnswer(type(error).__name__) from None


def _read(answer: HTTPResponse | HTTPError) -> bytes:
    read = bytearray()
    while part := answer.read1(_AT_ONCE):
        read += part
        if len(read) > _MOST_BYTES:
            raise ValueError("the answer is too long")
    return bytes(read)
