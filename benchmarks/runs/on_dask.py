"""`python -m benchmarks.runs.on_dask`: compare the times of the same short runs on Dask clusters of one and of two
workers.

The command writes benchmarks/results/sharing.json. ``--quick`` measures less, and writes elsewhere.

All runs wait in the queue until a worker process of the service starts and sends their steps to the cluster. This
process has more slots than there are cluster workers. The measured time runs from the first claim to the end of the
last run. It includes all that the service does for each run: claim, charge, checkpoint, model and end. Each cluster
worker has one thread, also for matrix products, and is pinned to a core of its own from its start.

On a machine with two cores, the service and the scheduler share the cores of the cluster's workers, unlike on separate
machines. Each run takes about a second, which is about the shortest training in practice, and long enough to show the
share of the workers. Their CPU times hardly depend on other load, and show how the work was divided.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import func, select

from app.db.database import Database
from app.settings import Settings, environment_of
from app.tables.runs import Run
from app.tables.states import IN_PROGRESS, RunState
from benchmarks import report
from benchmarks.http_servers import HOST, client, cpu_seconds, migrated, service
from benchmarks.runs.work import BUDGET, run_request

SLOTS = 6
#: The number of steps of each run, which take about a second.
ITERATIONS = 2000
LOOK_S = 0.1
GOAL = 1.7
#: The numbers of runs in a round and of rounds. The median of several rounds tolerates other load on the machine.
RUNS, ROUNDS = 16, 5
#: The first part of the keys of rows in the cluster.
ROWS = "rows-"
DISTRIBUTIONS = ("numpy", "scipy", "randomgen", "sqlalchemy", "distributed")
CONFIGURATION = report.ROOT / "app" / "runs" / "executors" / "cluster.yaml"


class Part(NamedTuple):
    """The figures of all runs of a round on one cluster.

    Attributes:
        seconds: The time from the first claim to the last end.
        cpu_seconds: The CPU time of each cluster worker.
        arrivals: The number of times that each cluster worker got the rows of a data set.
        load_average: The load average at the end.
    """

    seconds: float
    cpu_seconds: tuple[float, ...]
    arrivals: tuple[int, ...]
    load_average: float


def in_turns(folder: Path, runs: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Measure with one worker and with two, in turns. After each round, yield the medians over the rounds so far, and
    the figures of each round."""
    ones: list[Part] = []
    twos: list[Part] = []
    for _ in range(rounds):
        ones.append(_all_of(folder, runs, 1))
        twos.append(_all_of(folder, runs, 2))
        yield sharing(runs, ones, twos)


def sharing(runs: int, ones: Sequence[Part], twos: Sequence[Part]) -> dict[str, Any]:
    """Return the medians over the rounds, and the figures of each round."""
    pairs, parts = list(zip(ones, twos, strict=True)), [*ones, *twos]
    ratios = [one.seconds / two.seconds for one, two in pairs]
    return {
        "runs": runs,
        "rounds": len(pairs),
        "slots": SLOTS,
        "one": statistics.median(one.seconds for one in ones),
        "two": statistics.median(two.seconds for two in twos),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "divided": statistics.median(one.cpu_seconds[0] / max(two.cpu_seconds) for one, two in pairs),
        "most_arrivals": max(max(part.arrivals) for part in parts),
        "load_average": statistics.median(part.load_average for part in parts),
        "each_round": [{"one": one._asdict(), "two": two._asdict()} for one, two in pairs],
    }


def _all_of(folder: Path, runs: int, workers: int) -> Part:
    """Let a cluster with the given number of workers carry out all runs, and return the figures."""
    data_dir = folder / os.urandom(4).hex()
    data_dir.mkdir()
    url = migrated(f"sqlite:///{data_dir / 'runs.sqlite3'}")
    with service(url, data_dir) as server, client(server) as http:
        budget = http.post("/v1/budgets", BUDGET, 201)["id"]
        for seed in range(runs):
            http.post("/v1/runs", run_request(budget, "ds_digits", "softmax_regression", ITERATIONS, seed=seed), 202)
    database = Database(url)
    try:
        with cluster(data_dir, workers) as (address, processes):
            settings = Settings(data_dir=data_dir, database_url=url, dask_scheduler=address, log_level="warning")
            with _started(["-m", "app", "worker", "--count", str(SLOTS)], environment_of(settings)):
                _until(lambda: _count(database, RunState.QUEUED) < runs)
                began, before = time.perf_counter(), list(map(cpu_seconds, processes))
                _until(lambda: _count(database, RunState.QUEUED, *IN_PROGRESS) == 0)
                seconds = time.perf_counter() - began
                taken = tuple(after - start for after, start in zip(map(cpu_seconds, processes), before, strict=True))
                part = Part(seconds, taken, _arrivals(address), os.getloadavg()[0])
        if _count(database, RunState.SUCCEEDED) != runs:
            raise RuntimeError("a run has failed")
    finally:
        database.dispose()
    return part


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[tuple[str, list[int]]]:
    """Start a scheduler and workers as in docs/operating/dask.md. Yield the address of the scheduler and the process
    ids of the workers."""
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
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as processes:
        processes.enter_context(_started(dask, environment))
        ids = [
            processes.enter_context(_started([*worker, "--no-dashboard"], environment, cores[number % len(cores)]))
            for number in range(workers)
        ]
        _until_there_are(address, workers)
        yield address, ids


def _until_there_are(address: str, workers: int) -> None:
    from distributed import Client  # noqa: PLC0415  # of an optional group

    with Client(address, timeout=60, set_as_default=False) as asking:
        asking.wait_for_workers(workers, timeout=60)


def _arrivals(address: str) -> tuple[int, ...]:
    """Return how often each worker received rows, from the service or from another worker."""
    from distributed import Client  # noqa: PLC0415  # of an optional group

    with Client(address, timeout=60, set_as_default=False) as asking:
        return tuple(asking.run(_arrived).values())


def _arrived(dask_worker: Any) -> int:
    held = len([key for key in dask_worker.data if key.startswith(ROWS)])
    moved = [key for transfer in dask_worker.transfer_incoming_log for key in transfer["keys"] if key.startswith(ROWS)]
    return max(held, len(moved))


@contextmanager
def _started(arguments: list[str], environment: Mapping[str, str], core: int | None = None) -> Iterator[int]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EPSILOND_", "DASK_"))}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=report.ROOT,
        env={**inherited, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if core is not None:
        # The core is set before the worker starts threads, which inherit it.
        os.sched_setaffinity(process.pid, {core})
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _count(database: Database, *states: RunState) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Run).where(Run.state.in_(states))) or 0


def _until(condition: Any) -> None:
    while not condition():
        time.sleep(LOOK_S)


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for the times, and for how often rows are sent."""
    runs = figures["runs"]
    return [
        {
            "what": f"time of {runs} short runs on one Dask worker over the time on two, with a core pinned to each",
            "goal": f"at least {GOAL:g} times as long",
            "measured": f"{figures['ratio']:.2f} ({figures['one']:.1f} s and {figures['two']:.1f} s)",
            "met": figures["ratio"] >= GOAL,
        },
        {
            "what": f"how often a worker received the rows on which {runs} runs trained",
            "goal": "once",
            "measured": f"{figures['most_arrivals']} at most",
            "met": figures["most_arrivals"] == 1,
        },
    ]


def sharing_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the section: what else the machine did, and the goals."""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    each = ", ".join(f"{ratio:.2f}" for ratio in figures["ratios"])
    return [
        f"`make bench-runs`, {figures['date']}, {report.commit_of(figures)}; {versions}.",
        f"Service, scheduler and workers share {figures['machine']['cores']} cores. Times are medians over the rounds,",
        f"in which the ratios were {each}. The load average was {figures['load_average']:.1f}, which includes the "
        "benchmark. If it is above the number of cores, CPU times say more than elapsed times:",
        f"the single worker took {figures['divided']:.2f} times as much CPU time as the busier of the two.",
        "All figures are in [sharing.json](../benchmarks/results/sharing.json).",
        "",
        *report.goals_table(figures["goals"]),
    ]


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("sharing", __doc__)
    started = time.perf_counter()
    sources = ["app", "trainer", "calibrators", "accounting"]
    figures = report.header("sharing", "make bench-runs", is_quick, DISTRIBUTIONS, sources)
    runs, rounds = (4, 1) if is_quick else (RUNS, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as temporary:
        for found in in_turns(Path(temporary), runs, rounds):
            done = report.plain({**figures, **found})
            report.conclude(output, done, goals(done), time.perf_counter() - started)


if __name__ == "__main__":
    main()
