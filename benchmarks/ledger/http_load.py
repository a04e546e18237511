"""A lean HTTP/1.1 load: kept connections on plain sockets, so that what is measured is the server."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.http_servers import HOST
from benchmarks.ledger import work
from benchmarks.ledger.processes import Gate

CONNECTIONS = 16
WARM_UP_S = 0.5

_CHUNK = 65536
_CONTENT_LENGTH = b"\r\ncontent-length: "


@dataclass(frozen=True, slots=True)
class Load:
    """What a load process saw.

    Attributes:
        requests: Answered while the clock ran, all with the expected status.
        seconds: How long it ran.
        busy: Share of one core that the load process itself took.
    """

    requests: int
    seconds: float
    busy: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


class Connection:
    """One kept connection; one request at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
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
        """Hang up."""
        self._socket.close()

    async def post(self, path: str, body: bytes, key: str, status: int) -> bytes:
        """The answer's body.

        Raises:
            RuntimeError: the status is another, or the server hung up.
        """
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
            f"Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        await self._loop.sock_sendall(self._socket, head.encode() + body)
        answered, content = await self._answer()
        if answered != status:
            raise RuntimeError(f"POST {path}: {answered} {content.decode()}")
        return content

    async def _answer(self) -> tuple[int, bytes]:
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += await self._receive()
        head = received[:end].lower() + b"\r\n"
        at = head.find(_CONTENT_LENGTH)
        if at < 0:
            raise RuntimeError(f"an answer without a length: {head.decode()}")
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


#: One turn on a connection, with a random generator of its own and a prefix for keys: how many requests it made.
Turn = Callable[[Connection, random.Random, str], Awaitable[int]]


def bare_turn(path: str) -> Turn:
    """One request to a bare endpoint."""

    async def turn(connection: Connection, draw: random.Random, key: str) -> int:
        body = json.dumps({"purpose": "bench", "count": draw.randint(1, work.COUNTS)}).encode()
        await connection.post(path, body, key, 201)
        return 1

    return turn


def ledger_turn(budget_ids: Sequence[str]) -> Turn:
    """A reservation in a random budget, and its commit: two requests."""

    async def turn(connection: Connection, draw: random.Random, key: str) -> int:
        events = [work.event_json(draw.randint(1, work.COUNTS))]
        body = json.dumps({"events": events, "purpose": "bench"}).encode()
        path = f"/v1/budgets/{draw.choice(budget_ids)}/reservations"
        reservation_id = json.loads(await connection.post(path, body, f"{key}-reserve", 201))["id"]
        await connection.post(f"/v1/reservations/{reservation_id}/commit", b"{}", f"{key}-commit", 200)
        return 2

    return turn


def load(gate: Gate, port: int, make_turn: Callable[..., Turn], argument: Any, seconds: float, seed: int) -> Load:
    """Take turns on `CONNECTIONS` connections at once, each as soon as it has its answer."""
    return asyncio.run(_load(gate, port, make_turn(argument), seconds, seed))


async def _load(gate: Gate, port: int, turn: Turn, seconds: float, seed: int) -> Load:
    connections = [await Connection.open(port) for _ in range(CONNECTIONS)]

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
                for number in range(CONNECTIONS)
            ]
        return sum(task.result() for task in tasks), time.monotonic() - began

    try:
        await all_take_turns(seed, WARM_UP_S)
        gate()
        busy_before = _busy_seconds()
        answered, took = await all_take_turns(seed + CONNECTIONS, seconds)
        return Load(answered, took, (_busy_seconds() - busy_before) / took)
    finally:
        for connection in connections:
            connection.close()


def _busy_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
