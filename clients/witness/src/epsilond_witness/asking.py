"""Sends one request to a server. It follows no redirect, and limits the size and the time of the answer."""

from __future__ import annotations

import io
import json
import socket
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError

from epsilond_witness.timed import Timed

DEADLINE_S = 20.0
_MOST_BYTES = 256 * 1024


class Unreachable(Exception):
    """The server gave no answer, or one that cannot be used. The message says why."""


class Refused(Exception):
    """The server answered with an error.

    Attributes:
        status: The status of the answer.
        code: The service's code of the problem; empty if the answer has none.
    """

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"the server answered {status} {code}".rstrip())
        self.status, self.code = status, code


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Answer(HTTPResponse):
    def __init__(self, connection: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(connection, *args, **kwargs)
        self.fp = io.BufferedReader(Timed(self.fp.detach(), connection, time.monotonic() + DEADLINE_S))


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


def ask(address: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Return the answer of an address to a GET or, with a body, to a POST.

    Raises:
        Refused: the status of the answer is not 2xx.
        Unreachable: there was no answer, or the answer was too long or too late.
    """
    if not address.startswith(("https://", "http://")):
        raise Unreachable("the address must begin with https:// or http://")
    sent = {"User-Agent": "epsilond-witness", **headers}
    request = urllib.request.Request(address, data=body, headers=sent)  # noqa: S310  # https or http, as seen above
    try:
        with urllib.request.build_opener(_NoRedirect, _Http, _Https).open(request, timeout=DEADLINE_S / 2) as answer:
            return _read(answer)
    except HTTPError as error:
        with error:
            raise Refused(error.code, _code(error)) from None
    except (OSError, HTTPException, ValueError) as error:
        # Only the class of the error is given, since its message may quote what was sent.
        reason = getattr(error, "reason", error)
        raise Unreachable(f"there was no answer ({type(reason).__name__})") from None


def _read(answer: Any) -> bytes:
    read = bytearray()
    while part := answer.read1(64 * 1024):
        read += part
        if len(read) > _MOST_BYTES:
            raise ValueError("the answer is too long")
    return bytes(read)


def _code(answer: Any) -> str:
    try:
        code = json.loads(_read(answer))["code"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) and code.isidentifier() and len(code) <= 60 else ""
