"""How many runs a Dask cluster carries out, with one worker and with two: the same 64 short runs on each.

The runs wait in the queue; then a worker process with more slots than there are cluster workers sends their steps. The
time is from the first run that is claimed to the last that has ended, with all that the service does about each of
them: claim, charge, checkpoint, model, end. Each cluster worker has one thread, and so have its matrix products.

On two cores the service and the scheduler share the cores of the cluster's workers, as they would not where there are
machines for each. A run of a second is about the shortest that anybody trains, and lets the workers' part show.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from app.db.database import Database
from app.settings import Settings, environment_of
from app.tables.runs import Run
from app.tables.states import IN_PROGRESS, RunState
from benchmarks import report
from benchmarks.http_servers import HOST, client, migrated, service
from benchmarks.runs.work import BUDGET, run_request

SLOTS = 6
#: About a second of steps for each run.
ITERATIONS = 1000
LOOK_S = 0.02
CONFIGURATION = report.ROOT / "app" / "runs" / "executors" / "cluster.yaml"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Medians over the rounds, in seconds.

    Attributes:
        one, two: All runs on a cluster of one worker, and of two.
        ratio: Of the two.
        ratios: In each round, whose parts follow each other at once.
        runs: How many.
        slots: Runs that the service had under way at once.
    """

    one: float
    two: float
    ratio: float
    ratios: tuple[float, ...]
    runs: int
    slots: int


def sharing(folder: Path, runs: int, rounds: int) -> Sharing:
    """Measure ``rounds`` times with one worker and with two, in turns."""
    ones, twos = [], []
    for _ in range(rounds):
        ones.append(_all_of(folder, runs, workers=1))
        twos.append(_all_of(folder, runs, workers=2))
    ratios = tuple(one / two for one, two in zip(ones, twos, strict=True))
    return Sharing(
        one=statistics.median(ones),
        two=statistics.median(twos),
        ratio=statistics.median(ratios),
        ratios=ratios,
        runs=runs,
        slots=SLOTS,
    )


def _all_of(folder: Path, runs: int, workers: int) -> float:
    """Seconds that the cluster takes for all runs."""
    data_dir = folder / os.urandom(4).hex()
    data_dir.mkdir()
    url = migrated(f"sqlite:///{data_dir / 'runs.sqlite3'}")
    with service(url, data_dir) as server, client(server) as http:
        budget = http.post("/v1/budgets", BUDGET, 201)["id"]
        for seed in range(runs):
            http.post("/v1/runs", run_request(budget, "ds_digits", "softmax_regression", ITERATIONS, seed=seed), 202)
    database = Database(url)
    try:
        with cluster(data_dir, workers) as address:
            settings = Settings(data_dir=data_dir, database_url=url, dask_scheduler=address, log_level="warning")
            with _started(["-m", "app", "worker", "--count", str(SLOTS)], environment_of(settings)):
                _until(lambda: _count(database, RunState.QUEUED) < runs)
                began = time.perf_counter()
                _until(lambda: _count(database, RunState.QUEUED, *IN_PROGRESS) == 0)
                elapsed = time.perf_counter() - began
        if _count(database, RunState.SUCCEEDED) != runs:
            raise RuntimeError("a run has failed")
    finally:
        database.dispose()
    return elapsed


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """A scheduler and its workers, as docs/operating/dask.md starts them; yields the scheduler's address."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = str(probe.getsockname()[1])
    address = f"tcp://{HOST}:{port}"
    environment = {
        "PYTHONPATH": str(report.ROOT),
        "DASK_CONFIG": str(CONFIGURATION),
        "DASK_TEMPORARY_DIRECTORY": str(folder),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    dask = ["-m", "distributed.cli.dask_scheduler", "--host", HOST, "--port", port, "--dashboard-address", f"{HOST}:0"]
    worker = ["-m", "distributed.cli.dask_worker", address, "--host", HOST, "--nthreads", "1", "--no-nanny"]
    with ExitStack() as processes:
        processes.enter_context(_started(dask, environment))
        for _ in range(workers):
            processes.enter_context(_started([*worker, "--no-dashboard"], environment))
        _until_there_are(address, workers)
        yield address


def _until_there_are(address: str, workers: int) -> None:
    from distributed import Client  # noqa: PLC0415  # of an optional group

    with Client(address, timeout=60, set_as_default=False) as asking:
        asking.wait_for_workers(workers, timeout=60)


@contextmanager
def _started(arguments: list[str], environment: Mapping[str, str]) -> Iterator[None]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EPSILOND_", "DASK_"))}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=report.ROOT,
        env={**inherited, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _count(database: Database, *states: RunState) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Run).where(Run.state.in_(states))) or 0


def _until(condition: Any) -> None:
    while not condition():
        time.sleep(LOOK_S)
