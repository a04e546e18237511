"""A replica takes the place of a database server that is gone: what it lacks is noticed, and what it has is served."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.crash.cluster import Cluster, running_cluster
from tests.crash.connection import Address, Answer, Connection, NoReply
from tests.crash.server_process import ServerProcess, running_server

PATIENCE_S = 60
BUDGET = {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 100}}
HELD = {"events": [{"mechanism": {"kind": "zcdp", "rho": 0.01}}], "purpose": "failover"}


@pytest.fixture
def primary() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def replica(primary: Cluster) -> Iterator[Cluster]:
    cluster = primary.replica()
    try:
        yield cluster
    finally:
        cluster.close()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def send(address: Address, method: str, path: str, body: object = None, key: str | None = None) -> Answer:
    with Connection(address) as connection:
        return connection.send(method, path, body, key)


@dataclass
class Client:
    """Somebody who holds parts of a budget, one after the other, and remembers what was acknowledged.

    Attributes:
        acknowledged: The ids of reservations, by their idempotency keys.
        statuses: Of all answers.
    """

    server: ServerProcess
    budget_id: str
    acknowledged: dict[str, str] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)

    def hold(self, key: str) -> Answer | None:
        """The answer to one command; None where none came."""
        try:
            answer = send(self.server.address, "POST", f"/v1/budgets/{self.budget_id}/reservations", HELD, key)
        except (NoReply, OSError):
            return None
        self.statuses.append(answer.status_code)
        if answer.is_success:
            self.acknowledged[key] = answer.body["id"]
        return answer

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold on and on, beside the block."""
        is_over = threading.Event()

        def work() -> None:
            number = 0
            while not is_over.is_set():
                self.hold(f"hold-{number}")
                number += 1

        worker = threading.Thread(target=work)
        worker.start()
        try:
            yield
        finally:
            is_over.set()
            worker.join()


def client_of(server: ServerProcess) -> Client:
    answer = send(server.address, "POST", "/v1/budgets", BUDGET, "budget")
    assert answer.is_success, answer.body
    return Client(server, answer.body["id"])


@pytest.mark.thorough  # tests/app/fence has the shorter ones
def test_a_replica_that_lags_serves_nothing_once_it_is_promoted(
    primary: Cluster, replica: Cluster, tmp_path: Path
) -> None:
    """Neither to a server that runs, nor to one that is started; what it lacks is counted."""
    with running_server(primary.url_with(replica), tmp_path) as server:
        client = client_of(server)
        for number in range(3):
            client.hold(f"before-{number}")
        written = primary.run("SELECT pg_current_wal_lsn()")
        until(lambda: replica.run(f"SELECT pg_last_wal_replay_lsn() >= '{written}'"))
        # The network between the two is gone.
        replica.run("ALTER SYSTEM SET primary_conninfo = ''")
        replica.run("SELECT pg_reload_conf()")
        until(lambda: primary.run("SELECT count(*) FROM pg_stat_replication") == 0)
        for number in range(4):
            client.hold(f"lost-{number}")
        assert client.statuses == [201] * 7

        client.statuses.clear()
        primary.kill(primary.backends())
        with client.at_work():
            assert replica.run("SELECT pg_promote()") is True
            until(lambda: send(server.address, "GET", "/v1/budgets").code == "database_behind_fence")
            time.sleep(1)
        assert set(client.statuses) <= {503}, "nothing is granted by a copy that has forgotten"
        assert len(client.acknowledged) == 7
        for _ in ("running", "started again"):
            refused = send(server.address, "GET", f"/v1/budgets/{client.budget_id}")
            assert (refused.status_code, refused.code) == (503, "database_behind_fence")
            assert (refused.body["missing_entries"], refused.body["acknowledged_entries"]) == (4, 8)
            assert send(server.address, "GET", "/health/ready").body["checks"]["fence"] == "failing"
            server.stop()
            with suppress(AssertionError):
                # It is started and listens, and is not ready: that is what this waits for.
                server.start()


@pytest.mark.thorough
def test_a_replica_that_has_everything_goes_on_where_the_primary_was(
    primary: Cluster, replica: Cluster, tmp_path: Path
) -> None:
    """The server runs on, and nothing that was acknowledged under the kill is lost or done twice."""
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.run("SELECT pg_reload_conf()")
    until(lambda: primary.run("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1)
    with running_server(primary.url_with(replica), tmp_path) as server:
        client = client_of(server)
        with client.at_work():
            until(lambda: len(client.acknowledged) >= 20)
            primary.kill(primary.backends())
            assert replica.run("SELECT pg_promote()") is True
            known = len(client.acknowledged)
            until(lambda: len(client.acknowledged) >= known + 5)
        assert set(client.statuses) <= {201, 503}
        for key, reservation_id in list(client.acknowledged.items()):
            again = client.hold(key)
            assert again is not None
            assert (again.body["id"], again.is_replayed) == (reservation_id, True)
        server.stop()
        server.start()
        verdict = send(server.address, "POST", "/v1/ledger/verify", {})
        assert verdict.body["valid"], verdict.body
        held = send(server.address, "GET", f"/v1/budgets/{client.budget_id}").body["amounts"]["reserved"]["rho"]
        assert round(float(held) / 0.01) >= len(client.acknowledged)
