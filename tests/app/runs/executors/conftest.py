"""The service of the runs' tests with either executor, and one cluster for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.runs import resumption, score_keys
from app.runs.executors.dask import DaskExecutor
from app.runs.executors.interface import Executor
from app.runs.executors.local import LOCAL
from tests.app.runs.conftest import Service
from tests.app.runs.executors.clusters import ClusterProcesses, until

#: A cluster takes seconds of work to start, and each of its runs more than one in a process of ours.
EXECUTORS = ("local", pytest.param("dask", marks=pytest.mark.thorough))


#: The seed of a private run's training, and the key of its evaluation, where a test knows them.
SEED, SCORE_KEY = 7, 5


@pytest.fixture
def known_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Private runs begin with keys that the test knows: no request can ask for them."""
    begin = resumption.first_checkpoint
    monkeypatch.setattr(resumption, "first_checkpoint", lambda binding, _seed: begin(binding, SEED))
    known = SimpleNamespace(token_bytes=SCORE_KEY.to_bytes)
    monkeypatch.setattr(score_keys, "secrets", known)


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    processes = ClusterProcesses(tmp_path_factory.mktemp("cluster"))
    processes.start_scheduler()
    processes.start_worker()
    processes.start_worker()
    yield processes
    processes.stop()


@pytest.fixture(scope="session")
def connected(processes: ClusterProcesses) -> Iterator[DaskExecutor]:
    with DaskExecutor(processes.address) as executor:
        yield executor


@pytest.fixture
def dask_executor(processes: ClusterProcesses, connected: DaskExecutor) -> DaskExecutor:
    """On the cluster, when its machines are there; one at least, as earlier tests may have killed some."""
    if not processes.workers:
        processes.start_worker()
    until(lambda: connected.is_ready() and len(connected._cluster._inspected) == len(processes.workers))
    return connected


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Executor:
    """A test that uses it runs once in its own process and once on the cluster."""
    if request.param == "local":
        return LOCAL
    executor: DaskExecutor = request.getfixturevalue("dask_executor")
    return executor


@pytest.fixture
def databases(sqlite_databases):
    """Where the steps are taken concerns no database: one engine will do."""
    return sqlite_databases


@pytest.fixture
def service(client: TestClient, context: Context, executor: Executor) -> Service:
    return Service(client, context, executor)


@pytest.fixture
def on_dask(client: TestClient, context: Context, dask_executor: DaskExecutor) -> Service:
    return Service(client, context, dask_executor)
