"""What is killed, and how the service comes back."""

from __future__ import annotations

import time
from typing import Any, Protocol

from tests.app.problem_assertions import assert_problem
from tests.crash.cluster import Cluster
from tests.crash.connection import Connection
from tests.crash.history import Command, History, Kind
from tests.crash.server_process import ServerProcess
from tests.crash.traffic import Traffic

RECOVERY_TIMEOUT_S = 60
# Commands that the clients get decided once the database is back.
AFTERWARDS = 10


class Victim(Protocol):
    server: ServerProcess

    def take_aim(self) -> None:
        """What takes time and can be done before the kill."""

    def kill(self) -> None: ...

    def recover(self, traffic: Traffic, name: str, history: History) -> None:
        """Bring the service back while the clients are still there."""


class ServerVictim:
    """The server's process group; a new server takes over its database."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server

    def take_aim(self) -> None:
        pass

    def kill(self) -> None:
        self.server.kill()

    def recover(self, traffic: Traffic, name: str, history: History) -> None:
        self.server.start()


class DatabaseVictim:
    """The database server with all its processes; the service stays up, says what is wrong, and recovers by itself."""

    def __init__(self, server: ServerProcess, cluster: Cluster) -> None:
        self.server = server
        self._cluster = cluster
        self._backends: list[Any] = []

    def take_aim(self) -> None:
        self._backends = self._cluster.backends()

    def kill(self) -> None:
        self._cluster.kill(self._backends)

    def recover(self, traffic: Traffic, name: str, history: History) -> None:
        with Connection(self.server.address) as connection:
            refused = history.exchange(connection, Command(f"{name} outage", Kind.CREATE, units=1)).answer
            assert refused is not None
            for answer in (refused, connection.get("/v1/budgets"), connection.get("/health/ready")):
                assert_problem(answer, 503, "database_unavailable")
                assert int(answer.headers["retry-after"]) > 0
            assert connection.get("/health/live").status_code == 200
            self._cluster.start()
            deadline = time.monotonic() + RECOVERY_TIMEOUT_S
            while connection.get("/health/ready").status_code != 200:
                assert time.monotonic() < deadline, "the service does not find its database again"
                time.sleep(0.02)
        traffic.wait_for_decisions(AFTERWARDS)
        assert self.server.is_running
