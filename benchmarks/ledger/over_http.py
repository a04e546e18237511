"""This module compares reserving and committing over HTTP with a bare FastAPI endpoint, with the same server settings,
load and connections."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import http_servers
from benchmarks.http_load import CONNECTIONS, Load, load
from benchmarks.ledger import work
from benchmarks.ledger.http_load import bare_turn, ledger_turn
from benchmarks.ledger.processes import at_once
from benchmarks.ledger.throughput import BUDGETS, LIMIT, spread

#: The bare endpoint with which the goal compares the ledger. It is the fastest kind of endpoint in FastAPI.
HEADLINE = "async def"


@dataclass(frozen=True, slots=True)
class Contender:
    """One side of the comparison: its name, its port, and the turn that a load process takes."""

    name: str
    port: int
    make_turn: Callable[..., Any]
    argument: Any

    def measure(self, seconds: float) -> Load:
        """Run one load process for the given seconds, and return its results."""
        arguments = (self.port, self.make_turn, self.argument, seconds, random.randrange(2**32))
        return at_once(load, [arguments])[0]


def beside_bare_endpoint(url: str, data_dir: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the requests per second of both sides, each measured for ``seconds`` in every round.

    Args:
        url: The URL of a migrated database for the service.
        data_dir: The service's folder.
        rounds: The number of rounds; every other round has the reverse order.
        seconds: The time that one measurement takes.
    """
    with http_servers.bare() as bare, http_servers.service(url, data_dir) as server:
        theirs = [
            Contender(HEADLINE, bare.port, bare_turn, "/async"),
            Contender("def, in a thread", bare.port, bare_turn, "/sync"),
        ]
        ours = [Contender(kind, server.port, ledger_turn, _open_budgets(server, kind)) for kind in work.FILTERS]
        measured: dict[str, list[Load]] = {contender.name: [] for contender in [*theirs, *ours]}
        for turn in range(rounds):
            for contender in [*theirs, *ours][:: 1 if turn % 2 == 0 else -1]:
                measured[contender.name].append(contender.measure(seconds))
    return figures(
        {one.name: measured[one.name] for one in theirs}, {one.name: measured[one.name] for one in ours}, seconds
    )


def figures(bare: Mapping[str, Sequence[Load]], ours: Mapping[str, Sequence[Load]], seconds: float) -> dict[str, Any]:
    """Return the median rates of both sides, and the ratios of our rate to that of each bare endpoint."""
    rows = []
    for kind, loads in ours.items():
        ratios = {
            name: spread([one.rate / other.rate for one, other in zip(loads, others, strict=True)])
            for name, others in bare.items()
        }
        rows.append({"filter": kind} | _row(loads) | {"over_bare": ratios})
    return {
        "seconds": seconds,
        "connections": CONNECTIONS,
        "budgets": BUDGETS,
        "headline": HEADLINE,
        "bare": [{"endpoint": name} | _row(loads) for name, loads in bare.items()],
        "ours": rows,
    }


def _row(loads: Sequence[Load]) -> dict[str, Any]:
    each_round = [one.rate for one in loads]
    return {
        "requests_per_second": statistics.median(each_round),
        "each_round": each_round,
        "load_process_busy": max(one.busy for one in loads),
    }


def _open_budgets(server: http_servers.Server, kind: str) -> list[str]:
    with http_servers.client(server) as client:
        request = work.budget_request(kind, LIMIT)
        return [str(client.post("/v1/budgets", request, 201)["id"]) for _ in range(BUDGETS)]
