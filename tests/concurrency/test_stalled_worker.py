"""Worker processes that stop in mid-run, are taken for lost and wake up: they cannot spend, nor release anything.

The processes are real and stop themselves (SIGSTOP) at the worst moments. The sweeper's clock is turned by the test, so
nobody waits for a lease.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from app.context import Context
from app.kit.process_pool import PROJECT_ROOT
from app.main import create_app
from app.runs import artifacts, leases, lifecycle, repository, worker
from app.runs.doorbell import Doorbell
from app.runs.leases import LEASE_S, LOOKS_PER_LEASE, LeaseWatch, Sweeper
from app.runs.settling import Ending
from app.settings import environment_of
from app.tables.runs import Run
from app.tables.states import RunState
from tests.app.ledger.audit import audit
from tests.app.runs.conftest import Service
from tests.app.runs.silence import Monotonic, claim, silence, start
from tests.local_access import local_client

TIMEOUT_S = 60

#: `python -m app.runs wrk_stalled`, which stops itself when it is about to do the first of {calls}, then the next.
PROGRAM = """
import os, signal, sys
from app.runs import lifecycle, process, worker

calls = {calls}

def stalling(module, name):
    what_follows = getattr(module, name)
    def stalled(*arguments, **named):
        if calls and calls[0] == name:
            del calls[0]
            # To this thread: it is the one that must not get further, and the process stops with it.
            signal.raise_signal(signal.SIGSTOP)
        return what_follows(*arguments, **named)
    setattr(module, name, stalled)

stalling(lifecycle, "start")
stalling(worker, "train")
stalling(lifecycle, "end")
sys.exit(process.main("wrk_stalled", os.getppid()))
"""


@pytest.fixture
def service(context: Context) -> Iterator[Service]:
    with local_client(create_app(context)) as client:
        yield Service(client, context)


@contextmanager
def stalling_before(context: Context, *calls: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(calls=list(calls))],
        cwd=PROJECT_ROOT,
        env=os.environ | environment_of(context.settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until_stopped(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (found := os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)) == (0, 0):
        assert time.monotonic() < deadline, "the worker does not stall"
        time.sleep(0.01)
    assert os.WIFSTOPPED(found[1]), found


def wake(process: subprocess.Popen[str]) -> None:
    """Let the worker go on until it knows that its run is gone."""
    process.send_signal(signal.SIGCONT)
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    while "run_taken_away" not in lines[-1]:
        assert lines[-1], lines
        assert "run_ended" not in lines[-1], lines
        lines.append(process.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    """Let the worker come to its regular end."""
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0


def entries_of(context: Context, budget: dict[str, Any], service: Service) -> list[str]:
    """What happened to the budget; the auditor finds nothing wrong with it."""
    with context.database.read() as session:
        audit(session, budget["id"])
    return [entry["kind"] for entry in service.get(f"/v1/budgets/{budget['id']}/entries")["items"]]


def model_files(context: Context) -> list[str]:
    return sorted(path.name for path in (context.settings.data_dir / "models").glob("*"))


@pytest.mark.thorough  # tests/app/runs/test_taken_over.py has the shorter ones
def test_a_worker_that_stalls_before_its_start_cannot_start_what_another_carried_out(service, context):
    budget, run = service.charged()
    with stalling_before(context, "start") as stalled:
        until_stopped(stalled)
        silence(context)
        assert worker.work_once(context, "wrk_other")
        done = service.get(f"/v1/runs/{run['id']}")
        released = service.get(f"/v1/runs/{run['id']}/model")
        wake(stalled)
        end(stalled)
    assert done["state"] == "succeeded"
    assert service.get(f"/v1/runs/{run['id']}") == done
    assert service.get(f"/v1/runs/{run['id']}/model") == released
    assert model_files(context) == [artifacts.model_path(context, service.stored(run)).name]
    assert entries_of(context, budget, service) == ["create", "reserve", "start", "commit"]
    assert service.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"] == done["charge"]


@pytest.mark.thorough  # tests/app/runs/test_taken_over.py has the shorter ones
def test_a_worker_that_stalls_after_its_start_is_charged_once_and_releases_nothing(service, context):
    # In the first run when the model is written, in the second when no noise is drawn.
    with stalling_before(context, "end", "train") as stalled:
        done = []
        for files in (1, 1):
            budget, run = service.charged()
            until_stopped(stalled)
            assert len(model_files(context)) == files
            silence(context)
            assert service.stored(run).state == "queued", "there is a checkpoint to go on from"
            assert worker.work_once(context, "wrk_other")
            done.append((budget, service.get(f"/v1/runs/{run['id']}"), service.model(run)))
            wake(stalled)
        end(stalled)
    assert model_files(context) == sorted(artifacts.model_path(context, service.stored(run)).name for _, run, _ in done)
    assert list((context.settings.data_dir / "checkpoints").iterdir()) == []
    for budget, run, released in done:
        assert run["state"] == "succeeded"
        assert service.get(f"/v1/runs/{run['id']}") == run
        assert service.model(run) == released
        assert entries_of(context, budget, service) == ["create", "reserve", "start", "commit"]
        assert service.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"] == run["charge"]


def test_a_long_run_is_kept_by_its_heartbeat(service, context, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_INTERVAL_S", 0.01)
    _, run = service.charged(iterations=10**8)
    monotonic, told_to_stop = Monotonic(), threading.Event()
    sweeper = Sweeper(context, LeaseWatch(clock=monotonic))
    deadline = time.monotonic() + TIMEOUT_S
    with ThreadPoolExecutor(1) as pool, Doorbell(context.settings.data_dir, "wrk_beating") as bell:
        working = pool.submit(worker.work, context, "wrk_beating", bell, told_to_stop.is_set)
        try:
            heartbeat = 0
            for _ in range(2 * LOOKS_PER_LEASE):
                while service.stored(run).heartbeat == heartbeat:
                    assert time.monotonic() < deadline, "the heart does not beat"
                    time.sleep(0.005)
                heartbeat = service.stored(run).heartbeat
                assert sweeper.sweep() == set()
                monotonic.now += LEASE_S / LOOKS_PER_LEASE
            row = service.stored(run)
        finally:
            told_to_stop.set()
        working.result(TIMEOUT_S)
    assert (row.state, row.epoch, row.worker_id) == ("running", 1, "wrk_beating")


def test_an_end_and_two_take_overs_at_once_settle_a_run_once(service, context):
    for _ in range(5):
        budget, run = service.charged()
        claimed = claim(context)
        start(context, claimed)
        with context.database.read() as session:
            [lease] = repository.leases(session)
        succeeded = Ending(RunState.SUCCEEDED, result={"parameters": {}})
        barrier = threading.Barrier(3)

        def at_once(action: Any, *arguments: Any, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait(TIMEOUT_S)
            answer: bool = action(context, *arguments)
            return answer

        with ThreadPoolExecutor(3) as pool:
            ended = pool.submit(at_once, lifecycle.end, claimed, succeeded)
            taken = [pool.submit(at_once, lifecycle.take_over, lease) for _ in range(2)]
            kept, lost = ended.result(), [answer.result() for answer in taken]
        assert [kept, *lost].count(True) == 1
        row: Run = service.stored(run)
        assert (row.state, row.result is not None) == (("succeeded", True) if kept else ("failed", False))
        assert entries_of(context, budget, service) == ["create", "reserve", "start", "commit"]
