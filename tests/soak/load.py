"""Mixed load from a process of its own: requests come when they come, whether or not the ones before are answered.

A client that waits for its answers asks least when the server is slowest, and then sees little of it. Here the moments
are drawn beforehand, and each answer is timed from the moment at which its request was due.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.http import work
from benchmarks.http_load import Connection, percentile
from benchmarks.ledger.processes import Gate

#: A connection that nothing is asked on is closed by the server after `app.connections.KEEP_ALIVE_S`; sooner here.
KEPT_S = 30.0
#: Of what is asked.
SHARES = {"calibrate": 0.4, "account": 0.4, "ledger": 0.2}
ACCOUNT: dict[str, Any] = {
    "events": [
        {
            "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
            "sampling": {"kind": "poisson", "sampling_probability": 0.01},
            "count": 1000,
        }
    ],
    "neighboring_relation": "add_or_remove_one",
    "delta": 1e-5,
}
RESERVE = {"events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 500.0}}], "purpose": "load"}


@dataclass
class Outcome:
    """What the load's process saw.

    Attributes:
        milliseconds: By what was asked: from the moment at which a request was due to the end of its answer.
        errors: Every answer that is no success, with its status, and every connection that broke.
        latest_start: Of a request behind its moment, in milliseconds: what the load's process itself adds.
        busy: Share of one core that the load's process took.
        most_at_once: Requests that were under way.
    """

    seconds: float = 0.0
    milliseconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in SHARES})
    errors: Counter[str] = field(default_factory=Counter)
    latest_start: float = 0.0
    busy: float = 0.0
    most_at_once: int = 0

    @property
    def answered(self) -> int:
        return sum(map(len, self.milliseconds.values()))

    @property
    def all_milliseconds(self) -> list[float]:
        return [one for each in self.milliseconds.values() for one in each]

    def figures(self) -> dict[str, Any]:
        """As the report has them."""
        of_kind = {
            kind: {"answered": len(each), "p50_ms": percentile(each, 50), "p99_ms": percentile(each, 99)}
            for kind, each in self.milliseconds.items()
        }
        everything = self.all_milliseconds
        return {
            "answered": self.answered,
            "answered_per_second": self.answered / self.seconds,
            "errors": dict(self.errors),
            "p50_ms": percentile(everything, 50),
            "p99_ms": percentile(everything, 99),
            "largest_ms": max(everything),
            "by_kind": of_kind,
            "most_at_once": self.most_at_once,
            "latest_start_ms": self.latest_start,
            "load_process_busy": self.busy,
        }


class Clients:
    """Whoever asks: any number of connections, kept open; what is to be committed; what came of it."""

    def __init__(self, port: int, budget_ids: Sequence[str], seed: int) -> None:
        self.outcome = Outcome()
        self.draw = random.Random(seed)
        self._port = port
        self._budget_ids = budget_ids
        # The one that was used last comes first, each with the moment until which the server keeps it for certain.
        self._idle: list[tuple[float, Connection]] = []
        self._held: deque[str] = deque()
        self._under_way = 0

    async def ask(self, due: float) -> None:
        """One request, which was due at this moment of `time.perf_counter`."""
        outcome = self.outcome
        [kind] = self.draw.choices(list(SHARES), list(SHARES.values()))
        outcome.latest_start = max(outcome.latest_start, 1e3 * (time.perf_counter() - due))
        self._under_way += 1
        outcome.most_at_once = max(outcome.most_at_once, self._under_way)
        connection = None
        try:
            connection = await self._connection()
            await self._send(connection, kind)
        except (RuntimeError, OSError) as error:
            # What a server says of its refusal, up to the code, and nothing that differs from one to the next.
            outcome.errors[f"{kind}: {str(error)[:160]}"] += 1
            if connection is not None:
                connection.close()
        else:
            outcome.milliseconds[kind].append(1e3 * (time.perf_counter() - due))
            self._idle.append((time.perf_counter() + KEPT_S, connection))
        finally:
            self._under_way -= 1

    async def _connection(self) -> Connection:
        """One that is kept, or a new one."""
        while self._idle:
            until, connection = self._idle.pop()
            if time.perf_counter() < until:
                return connection
            connection.close()
        return await Connection.open(self._port)

    def close(self) -> None:
        for _, connection in self._idle:
            connection.close()

    async def _send(self, connection: Connection, kind: str) -> None:
        if kind == "calibrate":
            request = work.with_another_target(work.request(self.draw.choice(list(work.KINDS))), self.draw)
            await connection.post(work.CALIBRATE, json.dumps(request).encode(), None, 200)
        elif kind == "account":
            delta = ACCOUNT["delta"] * (1.0 + work.SPREAD * self.draw.random())
            await connection.post("/v1/account", json.dumps(ACCOUNT | {"delta": delta}).encode(), None, 200)
        elif self._held and self.draw.random() < 0.5:
            path = f"/v1/reservations/{self._held.popleft()}/commit"
            await connection.post(path, b"{}", self._new_key(), 200)
        else:
            path = f"/v1/budgets/{self.draw.choice(self._budget_ids)}/reservations"
            answer = await connection.post(path, json.dumps(RESERVE).encode(), self._new_key(), 201)
            self._held.append(json.loads(answer)["id"])

    def _new_key(self) -> str:
        return f"{self.draw.getrandbits(96):x}"


def arrivals(gate: Gate, port: int, budget_ids: Sequence[str], rate: float, seconds: float, seed: int) -> Outcome:
    """Ask at random moments, ``rate`` of them a second on the average, for so long; wait for what is under way."""
    return asyncio.run(_arrivals(gate, Clients(port, budget_ids, seed), rate, seconds))


def at_capacity(gate: Gate, port: int, budget_ids: Sequence[str], callers: int, seconds: float, seed: int) -> Outcome:
    """So many callers, each asking as soon as it is answered: what the server gets done when it is never idle."""
    return asyncio.run(_at_capacity(gate, Clients(port, budget_ids, seed), callers, seconds))


async def _arrivals(gate: Gate, clients: Clients, rate: float, seconds: float) -> Outcome:
    gate()
    began, busy = time.perf_counter(), _busy_seconds()
    due = began + clients.draw.expovariate(rate)
    async with asyncio.TaskGroup() as group:
        while due < began + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(clients.ask(due))
            due += clients.draw.expovariate(rate)
    return _ended(clients, began, busy)


async def _at_capacity(gate: Gate, clients: Clients, callers: int, seconds: float) -> Outcome:
    gate()
    began, busy = time.perf_counter(), _busy_seconds()

    async def ask_on() -> None:
        while (now := time.perf_counter()) < began + seconds:
            await clients.ask(now)

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(ask_on())
    return _ended(clients, began, busy)


def _ended(clients: Clients, began: float, busy_before: float) -> Outcome:
    clients.close()
    outcome = clients.outcome
    outcome.seconds = time.perf_counter() - began
    outcome.busy = (_busy_seconds() - busy_before) / outcome.seconds
    return outcome


def _busy_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
