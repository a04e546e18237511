"""The public times of private runs, with worker processes as a server starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.kit.process_pool import PROJECT_ROOT
from app.runs import lifecycle
from app.runs.schedule import Schedule
from app.settings import environment_of
from tests.app.runs.conftest import ROWS, Service
from tests.databases import on_one_engine

TIMEOUT_S = 60.0
#: Between two looks at the database: a moment that is seen is at most so much later, on a quiet machine.
LOOK_S = 0.01
#: Enough that a worker is met while it takes them.
STEPS = 1500


def private(service: Service, rows: str, **changes: Any) -> dict[str, Any]:
    budget = service.budget()
    dataset = service.dataset(rows, budget_id=budget["id"])
    return service.queued(dataset_id=dataset["id"], budget_id=budget["id"], **changes)


@contextmanager
def worker_process(service: Service, worker_id: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "app.runs", worker_id, str(os.getpid())],
        cwd=PROJECT_ROOT,
        env=os.environ | environment_of(service.context.settings),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def moment(condition: Callable[[], bool]) -> float:
    """Wait until the condition holds, and return when that was seen."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(LOOK_S)
    return time.monotonic()


def schedule_of(service: Service, run: dict[str, Any]) -> Schedule:
    stored = service.stored(run).schedule
    assert stored is not None
    return Schedule.from_json(stored)


@on_one_engine
@pytest.mark.thorough
def test_runs_end_no_earlier_than_their_schedule_says_and_the_next_begins_after_that(service):
    # Rows of one data set are bound to its budget, so that each has its own.
    runs = [private(service, f"{ROWS}{number},0,red,no\n") for number in range(2)]
    with worker_process(service, "wrk_real"):
        began = moment(lambda: any(service.stored(run).release_at for run in runs))
        [first] = [run for run in runs if service.stored(run).release_at is not None]
        [second] = [run for run in runs if run is not first]

        def first_has_ended() -> bool:
            # Asked in this order: the other one is still queued when the first one has not ended.
            is_queued = service.stored(second).state == "queued"
            has_ended = service.stored(first).state == "succeeded"
            assert is_queued or has_ended
            return has_ended

        assert moment(first_has_ended) - began >= schedule_of(service, first).bound_s() - 2.0 * LOOK_S
        began = moment(lambda: service.stored(second).release_at is not None)
        ended = moment(lambda: service.stored(second).state == "succeeded")
        assert ended - began >= schedule_of(service, second).bound_s() - 2.0 * LOOK_S


@on_one_engine
@pytest.mark.thorough
def test_a_worker_that_is_killed_and_the_next_one_keep_to_one_schedule(service):
    run = private(service, ROWS, iterations=STEPS)
    with worker_process(service, "wrk_killed") as process:
        moment(lambda: service.stored(run).steps_done > 0)
        process.kill()
        process.wait()
    first = service.stored(run)
    assert first.state == "running"
    assert lifecycle.give_up_runs_of(service.context, "wrk_killed") == 1
    with worker_process(service, "wrk_next"):
        began = moment(lambda: service.stored(run).epoch == 2)
        ended = moment(lambda: service.stored(run).state == "succeeded")
    second = service.stored(run)
    assert (second.schedule, second.steps_done) == (first.schedule, STEPS)
    assert second.release_at >= first.release_at
    assert ended - began >= schedule_of(service, run).bound_s() - 2.0 * LOOK_S
