"""One attempt to send a message: one connection to a checked address, one request, and the status of the answer.

It follows no redirect, uses no proxy, and reads no body. Everything together must end within a few seconds.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.kit.web_addresses import Address, Forbidden, Ip, Resolve, checked_ips

#: The seconds for everything after the host name is resolved: connection, TLS, request, first line of the answer.
DEADLINE_S = 10.0
#: The most bytes of an answer that are read; the first line is shorter.
_MOST_BYTES = 4096
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [^\r\n]*)?\r?\n")


@dataclass(frozen=True)
class Outcome:
    """The result of an attempt.

    Attributes:
        error: The class of the failure; None if the receiver has taken the message.
        status: The status of the answer; None if there was none.
    """

    error: str | None
    status: int | None = None


def send(
    address: Address,
    networks: Iterable[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    deadline_s: float = DEADLINE_S,
    resolve: Resolve = socket.getaddrinfo,
    tls: ssl.SSLContext | None = None,
) -> Outcome:
    """Post a message.

    Args:
        address: The address of the webhook.
        networks: Networks of special addresses that are allowed nevertheless.
        headers: Headers in addition to those of every request.
        body: The body, as JSON.
        deadline_s: The seconds for the whole attempt.
        resolve: Finds the addresses of the host. It is called once, and the connection goes to one of the checked
            addresses.
        tls: How certificates are verified; None for the system's authorities.
    """
    try:
        ips = checked_ips(address, networks, resolve)
    except Forbidden:
        return Outcome("address_forbidden")
    except (OSError, UnicodeError):
        return Outcome("name_not_found")
    until = time.monotonic() + deadline_s
    try:
        with _connected(address, ips, until, tls) as connection:
            connection.settimeout(_left(until))
            connection.sendall(_request(address, headers, body))
            return _judged(_status(connection, until))
    except TimeoutError:
        return Outcome("timeout")
    except ssl.SSLError:
        return Outcome("tls_failed")
    except OSError:
        return Outcome("connection_failed")


def _connected(address: Address, ips: Iterable[Ip], until: float, tls: ssl.SSLContext | None) -> socket.socket:
    """Connect to the first of the addresses that accepts a connection."""
    failure: OSError = ConnectionRefusedError("the host has no address")
    for ip in ips:
        try:
            plain = socket.create_connection((str(ip), address.port), timeout=_left(until))
        except OSError as error:
            failure = error
            continue
        if address.scheme == "http":
            return plain
        try:
            plain.settimeout(_left(until))
            return (tls or ssl.create_default_context()).wrap_socket(plain, server_hostname=address.host)
        except BaseException:
            plain.close()
            raise
    raise failure


def _request(address: Address, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [
        f"POST {address.target} HTTP/1.1",
        f"Host: {address.authority}",
        "User-Agent: epsilond",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _status(connection: socket.socket, until: float) -> int | None:
    """Return the status of the answer; None if the reply is not an HTTP answer."""
    read = b""
    while b"\n" not in read and len(read) < _MOST_BYTES:
        connection.settimeout(_left(until))
        more = connection.recv(_MOST_BYTES - len(read))
        if not more:
            break
        read += more
    found = _STATUS_LINE.match(read)
    return None if found is None else int(found[1])


def _judged(status: int | None) -> Outcome:
    if status is None:
        return Outcome("no_answer")
    if 200 <= status < 300:
        return Outcome(None, status)
    return Outcome("redirect_not_followed" if 300 <= status < 400 else "refused", status)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
