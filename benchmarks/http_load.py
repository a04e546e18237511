"""This module loads a server with HTTP/1.1 requests over plain sockets that are kept open. The load takes little time
itself, so that the measured time is that of the server."""

from __future__ import annotations

import asyncio
import math
import os
import random
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from benchmarks.http_servers import AUTHORIZATION, HOST
from benchmarks.ledger.processes import Gate

CONNECTIONS = 16
WARM_UP_S = 0.5

_CHUNK = 65536
_CONTENT_LENGTH = b"\r\ncontent-length: "


@dataclass(frozen=True, slots=True)
class Load:
    """The results of a load process.

    Attributes:
        requests: The number of requests that were answered in the measured time, all with the expected status.
        seconds: The measured time.
        busy: The share of one core that the load process itself took.
        milliseconds: The time of each request, from sending it to the end of the answer, in no particular order.
    """

    requests: int
    seconds: float
    busy: float
    milliseconds: list[float] = field(default_factory=list, repr=False)

    @property
    def rate(self) -> float:
        """The number of requests per second."""
        return self.requests / self.seconds

    def percentile(self, percent: float) -> float:
        """Return the least latency in milliseconds that the given percentage of the answers did not exceed.

        >>> Load(4, 1.0, 0.1, [3.0, 1.0, 2.0, 4.0]).percentile(50)
        2.0
        """
        return percentile(self.milliseconds, percent)


def percentile(values: Collection[float], percent: float) -> float:
    """Return the least of the values that the given percentage of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


class Connection:
    """A connection that is kept open and carries one request at a time.

    Attributes:
        milliseconds: The time of each request so far, from sending it to the end of the answer.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.milliseconds: list[float] = []
        self._socket = connected
        line = os.environ.get(AUTHORIZATION, "")
        self._head = f"Host: {HOST}\r\n" + (f"{line}\r\n" if line else "")
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to the server on this machine."""
        connecting = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connecting, (HOST, port))
        return cls(connecting)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    async def post(self, path: str, body: bytes, key: str | None, status: int) -> bytes:
        """Send a POST and return the body of the answer.

        Raises:
            RuntimeError: If the status is not the expected one, or the server closed the connection.
        """
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: application/json\r\n"
        if key is not None:
            head += f"Idempotency-Key: {key}\r\n"
        return await self._ask(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, f"POST {path}", status)

    async def get(self, path: str, status: int) -> bytes:
        """Send a GET and return the body of the answer."""
        return await self._ask(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode(), f"GET {path}", status)

    async def _ask(self, request: bytes, name: str, status: int) -> bytes:
        began = time.perf_counter()
        await self._loop.sock_sendall(self._socket, request)
        answered, content = await self._answer()
        self.milliseconds.append(1e3 * (time.perf_counter() - began))
        if answered != status:
            raise RuntimeError(f"{name}: {answered} {content.decode()}")
        return content

    async def _answer(self) -> tuple[int, bytes]:
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += await self._receive()
        head = received[:end].lower() + b"\r\n"
        at = head.find(_CONTENT_LENGTH)
        if at < 0:
            raise RuntimeError(f"an answer has no Content-Length: {head.decode()}")
        start = at + len(_CONTENT_LENGTH)
        whole = end + 4 + int(head[start : head.index(b"\r\n", start)])
        while len(received) < whole:
            received += await self._receive()
        return int(received[9:12]), received[end + 4 : whole]

    async def _receive(self) -> bytes:
        chunk = await self._loop.sock_recv(self._socket, _CHUNK)
        if not chunk:
            raise RuntimeError("the server hung up")
        return chunk


#: A function that makes one or more requests on a connection and returns their number. It also takes a random generator
#: and a prefix for idempotency keys.
Turn = Callable[[Connection, random.Random, str], Awaitable[int]]


def load(
    gate: Gate,
    port: int,
    make_turn: Callable[..., Turn],
    argument: Any,
    seconds: float,
    seed: int,
    connections: int = CONNECTIONS,
    core: int | None = None,
) -> Load:
    """Load the server over several connections at once for the given time. Each connection sends its next request as
    soon as it has an answer. If a core is given, the load runs on it."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    return asyncio.run(_load(gate, port, make_turn(argument), seconds, seed, connections))


async def _load(gate: Gate, port: int, turn: Turn, seconds: float, seed: int, number_of_connections: int) -> Load:
    connections = [await Connection.open(port) for _ in range(number_of_connections)]

    async def take_turns(number: int, own_seed: int, until: float) -> int:
        draw, answered = random.Random(own_seed), 0
        while time.monotonic() < until:
            answered += await turn(connections[number], draw, f"{draw.getrandbits(96):x}")
        return answered

    async def all_take_turns(first_seed: int, for_seconds: float) -> tuple[int, float]:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(take_turns(number, first_seed + number, began + for_seconds))
                for number in range(number_of_connections)
            ]
        return sum(task.result() for task in tasks), time.monotonic() - began

    try:
        await all_take_turns(seed, WARM_UP_S)
        for connection in connections:
            connection.milliseconds.clear()
        gate()
        busy_before = _busy_seconds()
        answered, took = await all_take_turns(seed + number_of_connections, seconds)
        milliseconds = [one for connection in connections for one in connection.milliseconds]
        return Load(answered, took, (_busy_seconds() - busy_before) / took, milliseconds)
    finally:
        for connection in connections:
            connection.close()


def _busy_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
