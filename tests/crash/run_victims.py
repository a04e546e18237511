"""What is killed while runs are carried out, and how it comes back."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, Protocol

import psutil

from tests.app.runs.executors.clusters import ClusterProcesses
from tests.crash.cluster import Cluster
from tests.crash.server_process import ServerProcess


class RunVictim(Protocol):
    """One thing that can be killed; nothing else of the service is touched."""

    name: str

    def kill(self) -> None: ...

    def recover(self) -> None:
        """Start again what does not come back by itself."""


class ServerAndWorkers:
    """All at once, as with the machine."""

    name = "server_and_workers"

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def kill(self) -> None:
        self._server.kill()

    def recover(self) -> None:
        self._server.start()


class ServerAlone:
    """The server's process; its workers notice that they are orphans, while its successor starts its own."""

    name = "server"

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def kill(self) -> None:
        self._server.kill_alone()

    def recover(self) -> None:
        self._server.start()


class StoppedServer:
    """The server, told to stop, which tells its workers: nothing is lost, and nothing counts as lost."""

    name = "stopped_server"

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def kill(self) -> None:
        self._server.stop()

    def recover(self) -> None:
        self._server.start()


class OneWorker:
    """One worker process of the server, which starts another."""

    name = "worker"

    def __init__(self, server: ServerProcess, random_numbers: random.Random) -> None:
        self._server, self._random = server, random_numbers

    def kill(self) -> None:
        if workers := self._server.workers():
            with suppress(psutil.NoSuchProcess):
                self._random.choice(workers).kill()

    def recover(self) -> None:
        pass


class DatabaseServer:
    """The database server with all its processes; server and workers stay up, and find it again."""

    name = "database"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def kill(self) -> None:
        backends: list[Any] = self._cluster.backends()
        self._cluster.kill(backends)

    def recover(self) -> None:
        self._cluster.start()


class DaskScheduler:
    """The scheduler of the cluster that carries out the steps; its workers end with it, and are started again, too."""

    name = "dask_scheduler"

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster

    def kill(self) -> None:
        self._cluster.kill_scheduler()

    def recover(self) -> None:
        self._cluster.restart()


class DaskWorker:
    """One machine of the cluster."""

    name = "dask_worker"

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster

    def kill(self) -> None:
        # The older one: the other may have nothing to do yet.
        self._cluster.kill_worker(self._cluster.workers[0])

    def recover(self) -> None:
        self._cluster.start_worker()
