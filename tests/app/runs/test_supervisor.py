"""Real worker processes: killed, stopped, cancelled, orphaned. What was started goes on, or its charge stands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from app.kit.process_pool import PROJECT_ROOT
from app.runs import lifecycle, liveness
from app.runs import supervisor as supervision
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.supervisor import Supervisor
from app.settings import environment_of
from app.tables.runs import Run
from tests.app.runs.conftest import Service
from tests.databases import on_one_engine

TIMEOUT_S = 60

#: Long enough that no test outlasts it.
ENDLESS = {"iterations": 10**8}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


@pytest.fixture
def supervisor(context) -> Iterator[Supervisor]:
    supervisor = Supervisor(context, count=1)
    supervisor.start()
    yield supervisor
    supervisor.stop()


def state_of(service: Service, run: dict) -> str:
    return service.get(f"/v1/runs/{run['id']}")["state"]


def running(service: Service) -> dict:
    """An endless private run that a worker is at."""
    _, run = service.private(**ENDLESS)
    until(lambda: service.get(f"/v1/runs/{run['id']}")["progress"]["done"] > 0)
    return run


def reservation_state(service: Service, run: dict) -> str:
    return service.get(f"/v1/reservations/{run['reservation_id']}")["state"]


@on_one_engine
def test_a_worker_has_the_threads_that_its_setting_says(context, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    assert context.settings.worker_threads == 1
    supervisor = Supervisor(context, count=1)
    supervisor.start()
    try:
        until(lambda: len(supervisor._processes) == 1)
        (process,) = supervisor._processes.values()
        environment = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
    finally:
        supervisor.stop()
    found = {line for line in environment if "_NUM_THREADS" in line}
    assert found == {f"{library}_NUM_THREADS=1" for library in ("OMP", "OPENBLAS", "MKL")}


def test_a_killed_workers_run_goes_on_under_another_worker(service, supervisor):
    run = running(service)
    [process] = supervisor._processes.values()
    process.kill()
    until(lambda: service.stored(run).epoch == 2)
    until(lambda: service.get(f"/v1/runs/{run['id']}")["progress"]["done"] > 0)
    assert state_of(service, run) == "running"
    assert reservation_state(service, run) == "started"


@pytest.mark.thorough  # tests/app/runs/executors/test_executors.py has the shorter one
@on_one_engine
def test_a_running_run_can_be_cancelled_and_is_charged_in_full(service, supervisor):
    run = running(service)
    assert service.post(f"/v1/runs/{run['id']}/cancel").json()["state"] == "cancelling"
    until(lambda: state_of(service, run) == "cancelled")
    assert reservation_state(service, run) == "committed"


@on_one_engine
@pytest.mark.thorough
def test_a_stop_leaves_the_run_in_progress_to_the_next_start(service, context):
    supervisor = Supervisor(context, count=1)
    supervisor.start()
    try:
        run = running(service)
        waiting = service.queued(dataset_id="ds_breast_cancer")
    finally:
        supervisor.stop()
    left = service.stored(run)
    assert (left.state, left.workers_lost) == ("queued", 0)
    assert reservation_state(service, run) == "started"
    assert CheckpointFiles(context).exist(run["id"], left.stream_id)
    assert state_of(service, waiting) == "queued", "what nobody started waits for the next worker"


@pytest.mark.thorough
@on_one_engine
def test_a_worker_whose_parent_is_gone_ends_and_hands_its_run_back(service, context):
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys, time;"
            "subprocess.Popen([sys.executable, '-m', 'app.runs', 'wrk_orphan', str(os.getpid())]); time.sleep(600)",
        ],
        cwd=PROJECT_ROOT,
        env=os.environ | environment_of(context.settings),
    )
    try:
        run = running(service)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: state_of(service, run) == "queued")
    assert reservation_state(service, run) == "started"


def claim_and_start(service: Service, worker_id: str) -> dict:
    [run] = [service.queued(dataset_id="ds_breast_cancer")]
    assert lifecycle.claim(service.context, worker_id)
    return run


def test_a_sweep_settles_what_dead_workers_of_this_folder_left_and_nothing_else(service, context):
    folder = context.settings.data_dir
    dead, living, elsewhere = (claim_and_start(service, f"wrk_{name}") for name in ("dead", "alive", "elsewhere"))
    with pytest.raises(RuntimeError, match="power cut"), liveness.alive(folder, "wrk_dead"):
        raise RuntimeError("power cut")
    with liveness.alive(folder, "wrk_alive"):
        supervisor = Supervisor(context, count=0)
        supervisor.start()
        supervisor.stop()
        assert state_of(service, dead) == "queued"
        assert state_of(service, living) == "running"
        assert state_of(service, elsewhere) == "running", "no file of it here: another folder's supervisor settles it"


@on_one_engine
@pytest.mark.thorough
def test_a_worker_that_was_killed_has_died_even_while_its_process_is_a_zombie(context):
    folder = context.settings.data_dir
    process = subprocess.Popen(
        [sys.executable, "-m", "app.runs", "wrk_zombie", str(os.getpid())],
        cwd=PROJECT_ROOT,
        env=os.environ | environment_of(context.settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "worker_started" in process.stdout.readline()
        assert not liveness.has_died(folder, "wrk_zombie")
        process.kill()
        until(lambda: liveness.has_died(folder, "wrk_zombie"))
    finally:
        process.kill()
        process.communicate()


def test_a_supervisor_without_workers_takes_runs_over_from_hosts_that_are_silent(service, context, monkeypatch):
    monkeypatch.setattr(supervision, "WATCH_INTERVAL_S", 0.05)
    _, run = service.private()
    assert lifecycle.claim(context, "wrk_elsewhere")
    supervisor = Supervisor(context, count=0, lease_s=0.5)
    supervisor.start()
    try:
        until(lambda: state_of(service, run) == "queued")
    finally:
        supervisor.stop()
    assert reservation_state(service, run) == "pending"


@on_one_engine
@pytest.mark.thorough
def test_a_worker_that_is_silent_is_killed_and_makes_room_for_another(service, context, monkeypatch):
    monkeypatch.setattr(supervision, "WATCH_INTERVAL_S", 0.05)
    # The worker tells that it lives every five seconds: to a supervisor as impatient as this it is silent.
    supervisor = Supervisor(context, count=1, lease_s=0.5)
    supervisor.start()
    try:
        [process] = supervisor._processes.values()
        _, run = service.private(**ENDLESS)
        until(lambda: process.poll() == -signal.SIGKILL)
        until(lambda: service.stored(run).workers_lost > 0)
        until(lambda: process not in supervisor._processes.values())
    finally:
        supervisor.stop()
    assert reservation_state(service, run) in ("pending", "started")


@pytest.mark.thorough
def test_two_workers_never_take_the_same_run(service, context):
    for _ in range(6):
        service.queued(dataset_id="ds_breast_cancer")
    supervisor = Supervisor(context, count=2)
    supervisor.start()
    try:
        until(lambda: {run["state"] for run in service.get("/v1/runs")["items"]} == {"succeeded"})
    finally:
        supervisor.stop()
    with context.database.read() as session:
        assert list(session.scalars(select(Run.epoch))) == [1] * 6, "a run that is taken again has a higher epoch"


@on_one_engine
@pytest.mark.thorough
def test_control_c_is_left_to_the_parent(context):
    process = subprocess.Popen(
        [sys.executable, "-m", "app.runs", "wrk_token", str(os.getpid())],
        cwd=PROJECT_ROOT,
        env=os.environ | environment_of(context.settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert "worker_started" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
