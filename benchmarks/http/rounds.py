"""This module compares contenders in turns, and measures the CPU time of the server. The processes of the server share
one core, and the load runs on another."""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import http_servers
from benchmarks.http import bare, work
from benchmarks.http.in_process import calibrate_for
from benchmarks.http_load import Load, load
from benchmarks.ledger.processes import at_once

#: The number of connections, each with one request under way. With more requests, the server would answer 429.
CONNECTIONS = 8
#: The bare endpoint to compare with.
HEADLINE = "/bytes"
BARE = (HEADLINE, "/json")
#: The request that is repeated.
REMEMBERED = "Poisson batches"

Measured = Mapping[str, Sequence[Load]]


def cores() -> tuple[int, int]:
    """Return the core of the server and the core of the load. They are the same if the machine has only one."""
    available = sorted(os.sched_getaffinity(0))
    return available[0], available[-1]


def measure(url: str, data_dir: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure each contender for ``seconds`` in every round, in the reverse order in every other round.

    Args:
        url: The URL of a migrated database for the service.
        data_dir: The service's folder.
        rounds: The number of rounds.
        seconds: The time for each contender.
    """
    server_core, load_core = cores()
    with ExitStack() as stack:
        server = stack.enter_context(http_servers.service(url, data_dir, core=server_core))
        size = _size_of_answer(server)
        bare_server = stack.enter_context(http_servers.bare(bare.__name__, server_core, **{bare.SIZE: str(size)}))

        def over_http(at: http_servers.Server, make_turn: Any, argument: Any) -> Load:
            return at_once(load, [(at.port, make_turn, argument, seconds, _seed(), CONNECTIONS, load_core)])[0]

        def in_process(kind: str) -> Load:
            return at_once(calibrate_for, [(kind, seconds, _seed(), server_core)])[0]

        asks_again = partial(over_http, make_turn=work.same_each_time)
        contenders: dict[str, Callable[[], Load]] = {
            **{f"engine, {kind}": partial(in_process, kind) for kind in work.KINDS},
            **{f"new, {kind}": partial(over_http, server, work.new_each_time, kind) for kind in work.KINDS},
            "remembered": partial(asks_again, server, argument=(work.CALIBRATE, REMEMBERED)),
            **{path: partial(asks_again, bare_server, argument=(path, REMEMBERED)) for path in BARE},
        }
        measured: dict[str, list[Load]] = {name: [] for name in contenders}
        own: dict[str, list[float]] = {kind: [] for kind in work.KINDS}
        for turn in range(rounds):
            for name in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
                measured[name].append(contenders[name]())
            for kind in work.KINDS:
                own[kind].append(cpu_milliseconds(server, kind, seconds))
    return figures(measured, own, size, seconds)


def cpu_milliseconds(server: http_servers.Server, kind: str, seconds: float) -> float:
    """Return the milliseconds of CPU time that the server, with its processes, takes for a new calibration. The
    requests follow each other on one connection."""
    body, draw = work.request(kind), random.Random(_seed())
    with http_servers.client(server) as client:
        client.post(work.CALIBRATE, work.with_another_target(body, draw), 200)
        asked, before, until = 0, server.cpu_seconds(), time.monotonic() + seconds
        while time.monotonic() < until:
            client.post(work.CALIBRATE, work.with_another_target(body, draw), 200)
            asked += 1
        return 1e3 * (server.cpu_seconds() - before) / asked


def figures(measured: Measured, own: Mapping[str, Sequence[float]], size: int, seconds: float) -> dict[str, Any]:
    """Return medians over the rounds, and the ratios of each round.

    Args:
        own: The `cpu_milliseconds` of each kind, round by round.
    """
    return {
        "seconds": seconds,
        "rounds": len(measured[HEADLINE]),
        "connections": CONNECTIONS,
        "answer_bytes": size,
        "headline": HEADLINE,
        "new": [
            {"kind": kind, "over_engine": _over(measured[f"new, {kind}"], measured[f"engine, {kind}"])}
            | {"http": _row(measured[f"new, {kind}"]), "engine": _row(measured[f"engine, {kind}"])}
            | {"cpu_milliseconds": statistics.median(own[kind]), "cpu_milliseconds_each_round": own[kind]}
            for kind in work.KINDS
        ],
        "remembered": {
            "kind": REMEMBERED,
            "http": _row(measured["remembered"]),
            "bare": {path: _row(measured[path]) for path in BARE},
            "over_bare": {path: _over(measured["remembered"], measured[path]) for path in BARE},
        },
        "load_process_busy": max(
            load.busy for name, loads in measured.items() if not name.startswith("engine") for load in loads
        ),
    }


def _row(loads: Sequence[Load]) -> dict[str, Any]:
    return {
        "per_second": statistics.median(load.rate for load in loads),
        "each_round": [load.rate for load in loads],
        "p50_milliseconds": statistics.median(load.percentile(50) for load in loads),
        "p99_milliseconds": statistics.median(load.percentile(99) for load in loads),
    }


def _over(ours: Sequence[Load], theirs: Sequence[Load]) -> dict[str, Any]:
    ratios = [one.rate / other.rate for one, other in zip(ours, theirs, strict=True)]
    return {"ratio": statistics.median(ratios), "smallest_ratio": min(ratios), "largest_ratio": max(ratios)}


def _seed() -> int:
    return random.randrange(2**32)


def _size_of_answer(server: http_servers.Server) -> int:
    """Return the size of the answer to the repeated request. The first request also starts the processes that the
    service starts on demand."""
    with http_servers.client(server) as client:
        client.connection.request(
            "POST", work.CALIBRATE, json.dumps(work.request(REMEMBERED)), {"Content-Type": "application/json"}
        )
        answer = client.connection.getresponse()
        content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status} {content.decode()}")
    return len(content)
