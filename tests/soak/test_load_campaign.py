"""Ten minutes of mixed load at four fifths of what the server can do: no error, memory that stays, no long tail."""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks.http import work
from benchmarks.http_servers import AUTHORIZATION
from benchmarks.ledger.processes import at_once
from tests.crash.connection import Connection
from tests.crash.server_process import ServerProcess, running_server
from tests.databases import DatabaseFactory
from tests.local_access import authorization
from tests.soak.load import SHARES, arrivals, at_capacity
from tests.soak.memory import slope, watched
from tests.soak.report import write_report

BUDGETS = 16
#: Under way at once where the server is never to be idle: for each core one that is at work, and some that wait.
CALLERS = 6
ROUNDS, ROUND_S = 5, 8.0
SHARE_OF_CAPACITY = 0.8
SECONDS = float(os.environ.get("LOAD_CAMPAIGN_SECONDS", "600"))
#: Answers that the server remembers: so few that all places are taken after the warm-up, however slow the machine is.
REMEMBERED = "256"
#: Caches fill, pools start, allocators find their size.
WARM_UP = 0.25
MOST_MEGABYTES_A_MINUTE = 1.0
MOST_P99_OVER_P50 = 10.0


def prepare(server: ServerProcess) -> list[str]:
    """Budgets that no load fills; and what the server starts when it is first needed."""
    request = {"neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1000}}
    with Connection(server.address) as connection:
        answers = [
            connection.send("POST", "/v1/budgets", request | {"name": f"load {number}"}, f"budget {number}")
            for number in range(BUDGETS)
        ]
        for kind in work.KINDS:
            assert connection.send("POST", work.CALIBRATE, work.request(kind)).status_code == 200
    return [answer.json()["id"] for answer in answers]


def capacity(port: int, budget_ids: list[str]) -> tuple[float, list[float]]:
    """Requests a second: what each of some rounds has reached, and each of them; one more goes before."""
    rates = []
    for number in range(ROUNDS + 1):
        [outcome] = at_once(at_capacity, [(port, budget_ids, CALLERS, ROUND_S, number)])
        assert not outcome.errors, outcome.errors
        rates.append(outcome.answered / outcome.seconds)
    return min(rates[1:]), rates[1:]


@pytest.mark.soak
def test_ten_minutes_of_mixed_load(
    sqlite_databases: DatabaseFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sqlite_databases.migrated()
    load_before = os.getloadavg()[0]
    settings = {"EPSILOND_WORKERS": "1", "EPSILOND_LOG_LEVEL": "warning", "EPSILOND_CACHE_ENTRIES": REMEMBERED}
    with running_server(url, tmp_path, **settings) as server:
        budget_ids, port = prepare(server), server.address[1]
        monkeypatch.setenv(AUTHORIZATION, f"Authorization: {authorization(port)['Authorization']}")
        reached, each_round = capacity(port, budget_ids)
        rate = SHARE_OF_CAPACITY * reached
        with watched(server.pid) as looks:
            [outcome] = at_once(
                arrivals, [(port, budget_ids, rate, SECONDS, random.randrange(2**32))], limit_s=2 * SECONDS + 60
            )
        with Connection(server.address) as connection:
            verdict = connection.send("POST", "/v1/ledger/verify", {}).json()
    slopes = {name: slope(each, WARM_UP * SECONDS) for name, each in looks.items()}
    figures: dict[str, Any] = {
        "seconds": SECONDS,
        "cores": os.cpu_count(),
        "load_average_before": load_before,
        "capacity_per_second": reached,
        "capacity_each_round": each_round,
        "asked_per_second": rate,
        "shares": SHARES,
        **outcome.figures(),
        "p99_over_p50": outcome.figures()["p99_ms"] / outcome.figures()["p50_ms"],
        "megabytes_a_minute": slopes,
        "megabytes_at_the_end": {name: each[-1][1] for name, each in looks.items()},
        "ledger_valid": verdict["valid"],
        "entries": verdict["entries"],
    }
    write_report("load", "make soak", figures)
    assert not outcome.errors, outcome.errors
    assert verdict["valid"]
    assert all(each is None or each < MOST_MEGABYTES_A_MINUTE for each in slopes.values()), slopes
    assert figures["p99_over_p50"] < MOST_P99_OVER_P50


@pytest.mark.thorough
def test_some_seconds_of_it(sqlite_databases: DatabaseFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machinery of the campaign; nothing is said of speed."""
    with running_server(sqlite_databases.migrated(), tmp_path) as server:
        budget_ids, port = prepare(server), server.address[1]
        monkeypatch.setenv(AUTHORIZATION, f"Authorization: {authorization(port)['Authorization']}")
        with watched(server.pid) as looks:
            [outcome] = at_once(arrivals, [(port, budget_ids, 10.0, 5.0, 1)])
        with Connection(server.address) as connection:
            verdict = connection.send("POST", "/v1/ledger/verify", {}).json()
    assert not outcome.errors
    assert all(outcome.milliseconds.values()), "each kind was asked"
    assert verdict["valid"]
    assert verdict["entries"] == BUDGETS + len(outcome.milliseconds["ledger"])
    assert looks["sum"][-1][1] > max(each[-1][1] for name, each in looks.items() if name != "sum")


def test_requests_come_whether_or_not_the_ones_before_are_answered() -> None:
    """A server that answers nobody until twenty have asked: each has waited since the moment at which it was due."""
    asked, enough = itertools.count(1), threading.Event()

    def serve(listening: socket.socket) -> None:
        while True:
            threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    def answer(connected: socket.socket) -> None:
        with connected:
            while request := connected.recv(65536):
                if next(asked) >= 20:
                    enough.set()
                enough.wait()
                status = 201 if b"/reservations " in request else 200
                connected.sendall(b'HTTP/1.1 %d OK\r\nContent-Length: 15\r\n\r\n{"id": "res_1"}' % status)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        [outcome] = at_once(arrivals, [(listening.getsockname()[1], ["bud_1"], 100.0, 0.5, 1)])
    assert not outcome.errors
    assert outcome.most_at_once >= 20
    # Twenty at a hundred a second: the first has waited for about two tenths of a second, the last for nothing.
    assert max(outcome.all_milliseconds) > 100
