"""A database server that is silent. One that is killed: `tests/crash`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.crash.cluster import Cluster, running_cluster
from tests.crash.connection import Address, Answer, Connection
from tests.crash.server_process import running_server

BUDGET = {"name": "a", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
#: More than there are connections to the database, and threads that could wait for one.
WAITING = 60


@contextmanager
def silent(cluster: Cluster) -> Iterator[None]:
    """Every process of the database server stands still: connections stay, and nothing is answered."""
    backends = cluster.backends()
    postmaster: Any = psutil.Process(backends[0].ppid())
    for process in (postmaster, *backends):
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in (*backends, postmaster):
            process.send_signal(signal.SIGCONT)


def create_budget(address: Address, key: str) -> Answer:
    with Connection(address) as connection:
        return connection.send("POST", "/v1/budgets", BUDGET, key)


def test_a_silent_database_makes_requests_wait_and_nobody_take_the_server_for_dead(tmp_path: Path) -> None:
    with running_cluster() as cluster, running_server(cluster.url, tmp_path) as server:
        with ThreadPoolExecutor(WAITING) as pool:
            with silent(cluster):
                answers = [pool.submit(create_budget, server.address, str(number)) for number in range(WAITING)]
                with Connection(server.address) as connection:
                    # All of them are in the server's hands, as it reads its connections in turn.
                    while len(psutil.Process(server.pid).net_connections("tcp")) < WAITING:
                        assert connection.get("/health/live").status_code == 200
                    assert connection.get("/health/live").status_code == 200
                assert not any(answer.done() for answer in answers)
            assert {answer.result(60).status_code for answer in answers} == {201}
        with Connection(server.address) as connection:
            assert len(connection.get("/v1/budgets?limit=200").json()["items"]) == WAITING
            for number in range(3):
                assert connection.send("POST", "/v1/budgets", BUDGET, str(number)).is_replayed
