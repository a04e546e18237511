"""Machines, schedulers and connections that are lost while they are at runs: the same model, one charge."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.kit.process_pool import PROJECT_ROOT
from app.runs import execution, failures, lifecycle, worker
from app.runs.executors import cluster, dask
from app.runs.executors.cluster import ClusterAway
from app.runs.executors.dask import DaskExecutor
from app.runs.executors.local import LOCAL
from app.runs.executors.slices import Slice
from app.settings import Settings
from tests.app.runs.conftest import Service
from tests.app.runs.executors.clusters import TIMEOUT_S, ClusterProcesses, until
from tests.app.runs.executors.sabotage import slow
from tests.app.runs.interrupted import files, kinds

STEPS = 60


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A checkpoint is due whenever somebody looks."""
    return settings.model_copy(update={"checkpoint_interval_s": 1e-9})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "PROGRESS_INTERVAL_S", 0.0)
    monkeypatch.setattr(dask, "SHORTEST_SLICE_S", 0.1)
    monkeypatch.setattr(dask, "LONGEST_SLICE_S", 0.1)
    monkeypatch.setattr(dask, "LONGEST_PAUSE_S", 0.5)
    monkeypatch.setattr(cluster, "LOOK_INTERVAL_S", 0.0)


@pytest.fixture(scope="module")
def expected(quick: Service) -> Any:
    """The model of an undisturbed run."""
    return quick.model(quick.trained(dataset_id="ds_breast_cancer", seed=7, iterations=STEPS))["parameters"]


@contextmanager
def under_way(
    service: Service, count: int = 1, told_to_stop: threading.Event | None = None
) -> Iterator[list[tuple[dict[str, Any], Future[bool]]]]:
    """Slow runs that the cluster is at, each in a slot of its own; the last slot can be told to stop."""
    given_up = threading.Event()
    with ThreadPoolExecutor(count) as pool, slow(service.executor):
        working = []
        try:
            for number in range(1, count + 1):
                _, run = service.charged(seed=7, iterations=STEPS)
                stop = told_to_stop if told_to_stop is not None and number == count else given_up
                slot = pool.submit(worker.work_once, service.context, "wrk_slot", stop.is_set, service.executor)
                working.append((run, slot))
                until(lambda run=run: service.stored(run).steps_done > 0)
            yield working
        finally:
            given_up.set()


def check_ended_well(service: Service, run: dict[str, Any], expected: Any, claims: int = 1) -> None:
    row = service.stored(run)
    assert (row.state, row.epoch, row.workers_lost) == ("succeeded", claims, 0)
    assert service.model(run)["parameters"] == expected
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert files(service) == []


def check_failed_with_its_charge(service: Service, run: dict[str, Any]) -> None:
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]) == ("failed", failures.WORKER_LOST)
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert files(service) == []


def kill_the_machine_at_work(processes: ClusterProcesses, executor: DaskExecutor) -> None:
    """SIGKILL, to the machine that has a slice just then."""
    client = executor._cluster._client
    pids = client.run(os.getpid)
    at_work: list[str] = []
    until(lambda: at_work.extend(address for address, keys in client.processing().items() if keys) or at_work)
    [process] = [each for each in processes.workers if each.pid == pids[at_work[0]]]
    processes.kill_worker(process)


@pytest.mark.thorough
def test_a_machine_that_is_killed_costs_a_run_nothing(on_dask, processes, dask_executor, expected):
    with under_way(on_dask) as [(run, working)]:
        kill_the_machine_at_work(processes, dask_executor)
        if not processes.workers:
            processes.start_worker()
        assert working.result(TIMEOUT_S)
    check_ended_well(on_dask, run, expected)


@pytest.mark.thorough
def test_a_run_that_kills_machine_after_machine_fails_with_its_charge(on_dask, processes, dask_executor):
    allowed = dask_executor._cluster._client.run_on_scheduler(_allow_failures, 0)
    try:
        with under_way(on_dask) as [(run, working)]:
            kill_the_machine_at_work(processes, dask_executor)
            assert working.result(TIMEOUT_S)
    finally:
        dask_executor._cluster._client.run_on_scheduler(_allow_failures, allowed)
    check_failed_with_its_charge(on_dask, run)


@pytest.mark.thorough
def test_a_run_whose_machines_die_with_the_only_copy_of_its_rows_fails_likewise(
    on_dask, processes, dask_executor, monkeypatch
):
    """The scheduler forgets such a slice instead of counting."""
    monkeypatch.setattr(dask, "MAX_MACHINES_LOST", 1)
    dask_executor._cluster._rows.clear()
    with under_way(on_dask) as [(run, working)]:
        kill_the_machine_at_work(processes, dask_executor)
        assert working.result(TIMEOUT_S)
    check_failed_with_its_charge(on_dask, run)


def _allow_failures(number: int, dask_scheduler: Any) -> int:
    before: int = dask_scheduler.allowed_failures
    dask_scheduler.allowed_failures = number
    return before


@pytest.mark.thorough
def test_a_scheduler_that_is_killed_costs_nothing_and_holds_up_no_stop(
    on_dask, processes, dask_executor, expected, capfd
):
    told_to_stop = threading.Event()
    with under_way(on_dask, 2, told_to_stop) as [(patient, waiting), (stopped, stopping)]:
        processes.kill_scheduler()
        until(lambda: not dask_executor.is_ready())
        told_to_stop.set()
        assert stopping.result(TIMEOUT_S)
        left = on_dask.stored(stopped)
        assert (left.state, left.workers_lost) == ("queued", 0)
        assert not worker.work_once(on_dask.context, "wrk_next", executor=dask_executor), "nothing can carry it out"
        assert worker.work_once(on_dask.context, "wrk_next", executor=LOCAL)
        assert not waiting.done()
        assert on_dask.stored(patient).state == "running"
        processes.restart()
        assert waiting.result(TIMEOUT_S)
    check_ended_well(on_dask, stopped, expected, claims=2)
    check_ended_well(on_dask, patient, expected)
    assert "cluster_away" in "".join(capfd.readouterr())


@pytest.mark.thorough
def test_a_machine_of_another_version_gets_nothing(on_dask, processes, dask_executor, tmp_path, capfd):
    odd = processes.start_worker(altered_checkout(tmp_path))
    try:
        until(lambda: not dask_executor.is_ready())
        _, run = on_dask.charged()
        assert not worker.work_once(on_dask.context, "wrk_slot", executor=dask_executor)
        assert on_dask.reservation_state(run) == "pending"
        # Nor does a run get a slice that was claimed before the machine came.
        row = on_dask.stored(run)
        job = execution.load_job(on_dask.context, row, lifecycle.read_plan(row))
        dask_executor._cluster._rows.clear()
        work = Slice(row.plan, row.plan_hash, job.model, job.training.capacity, b"", "", "", 0.0)
        with pytest.raises(ClusterAway) as away:
            dask_executor._cluster.carry_out(work, job, lambda: None)
        assert away.value.why == "cluster_of_another_version"
        assert not dask_executor._cluster._rows, "no rows were sent"
    finally:
        processes.kill_worker(odd)
    assert "cluster_of_another_version" in "".join(capfd.readouterr())
    until(dask_executor.is_ready)
    on_dask.work()
    assert on_dask.stored(run).state == "succeeded"


def altered_checkout(folder: Path) -> Path:
    for package in ("accounting", "calibrators", "trainer", "app"):
        shutil.copytree(PROJECT_ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "trainer" / "run.py").open("a") as source:
        source.write("# Another version.\n")
    return folder
