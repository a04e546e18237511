"""Runs whose worker was lost go on: the same noise, the same model to the last bit, one charge, nothing left over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.context import Context
from app.kit.process_pool import PROJECT_ROOT
from app.runs import execution, failures, lifecycle, resumption, worker
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.failures import RefusedError
from app.runs.resumption import Beginning
from app.settings import Settings, environment_of
from tests.app.runs.conftest import Service
from tests.app.runs.interrupted import (
    STEPS,
    check_released_once,
    files,
    first_file,
    kinds,
    left_after,
    stopping_after,
    undisturbed,
)
from tests.app.runs.silence import claim, silence, start
from tests.databases import on_one_engine

#: Starts `python -m app.runs wrk_doomed` for every line that it reads, which kills itself at the place that the line
#: names. Modules are loaded once, and every worker is a process of its own.
PROGRAM = """
import os, pathlib, signal, sys
from app.runs import lifecycle, process, resumption
import sklearn.datasets

def dies(owner, name, calls=1, first=False):
    what_was = getattr(owner, name)
    count = 0
    def dying(*arguments, **options):
        nonlocal count
        count += 1
        answer = None if count == calls and first else what_was(*arguments, **options)
        if count == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, name, dying)

PLACES = {
    "before the start": lambda: dies(lifecycle, "start", first=True),
    "after the start": lambda: dies(lifecycle, "start"),
    "after step 7": lambda: dies(resumption.Keeper, "_save", 7),
    # The worker's lock and the keys come before.
    "while step 7 is written": lambda: dies(pathlib.Path, "replace", 2 + 7, first=True),
    "with the model written": lambda: dies(lifecycle, "end", first=True),
}

for line in sys.stdin:
    worker_process = os.fork()
    if worker_process == 0:
        PLACES[line.strip()]()
        os._exit(process.main("wrk_doomed", os.getppid()))
    print("died", os.waitstatus_to_exitcode(os.waitpid(worker_process, 0)[1]), flush=True)
"""

#: Where the worker dies, and from which step its successor goes on.
PLACES = {
    "before the start": 0,
    "after the start": 0,
    "after step 7": 7,
    "while step 7 is written": 6,
    "with the model written": STEPS,
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A checkpoint is due after every step."""
    return settings.model_copy(update={"checkpoint_interval_s": 1e-9})


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Beginning]:
    """Return a list to which every claim of this process adds its beginning."""
    found: list[Beginning] = []
    begin = resumption.begin

    def watched(*arguments: Any) -> Beginning:
        found.append(begin(*arguments))
        return found[-1]

    monkeypatch.setattr(worker, "begin", watched)
    return found


@contextmanager
def doomed_workers(context: Context) -> Iterator[Callable[[str], None]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT_ROOT,
        env=os.environ | environment_of(context.settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def let_one_die(place: str) -> None:
        process.stdin.write(f"{place}\n")
        process.stdin.flush()
        lines = [process.stdout.readline()]
        while not lines[-1].startswith("died"):
            assert lines[-1], lines
            lines.append(process.stdout.readline())
        assert lines[-1] == "died -9\n", lines

    try:
        yield let_one_die
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


@on_one_engine
@pytest.mark.thorough
def test_a_run_whose_worker_is_killed_anywhere_ends_with_the_model_it_would_have_had_and_one_charge(
    service, context, begun
):
    expected = undisturbed(service)
    begun.clear()
    with doomed_workers(context) as let_one_die:
        for place, steps in PLACES.items():
            _, run = service.charged(seed=7)
            let_one_die(place)
            assert lifecycle.give_up_runs_of(context, "wrk_doomed") == 1
            left = service.stored(run)
            assert (left.state, left.workers_lost) == ("queued", 1), place
            assert service.reservation_state(run) == ("pending" if place == "before the start" else "started")
            assert worker.work_once(context, "wrk_next")
            assert begun.pop().steps == steps, place
            assert service.model(run)["parameters"] == expected, place
            check_released_once(service, run)


@on_one_engine
def test_a_run_that_is_stopped_again_and_again_goes_on_without_counting_against_it(service, begun):
    expected = undisturbed(service)
    run = left_after(service, 3)
    for _ in range(lifecycle.MAX_WORKERS_LOST + 1):
        assert worker.work_once(service.context, "wrk_next", stopping_after(2))
    assert [beginning.steps for beginning in begun] == [0, 0, 3, 5, 7, 9]
    assert len({beginning.stream_id for beginning in begun[1:]}) == 1
    assert service.stored(run).workers_lost == 0
    assert len(files(service)) == 1, "earlier claims' are not needed"
    service.work()
    assert service.model(run)["parameters"] == expected
    check_released_once(service, run)


@on_one_engine
@pytest.mark.parametrize("stops", [(1,), (2, 3, 4), (7,)])
def test_correlated_noise_and_the_groups_of_the_records_go_on(service, stops):
    """The noise of the last steps is in the checkpoint, beside the group that each record is in."""
    correlated = {
        "algorithm": "dp_bandmf",
        "sampling": "fixed_order_epochs",
        "neighboring_relation": "replace_special",
        "batch_size": 114,
        "hyperparameters": {"step_size": 0.5, "momentum": 0.5, "step_size_schedule": "linear"},
        "correlation": {"bands": 3},
    }
    run = service.queued(dataset_id="ds_breast_cancer", seed=7, **correlated)
    service.work()
    expected = service.model(run)["parameters"]
    budget = service.budget(neighboring_relation="replace_special")
    run = service.queued(dataset_id="ds_breast_cancer", budget_id=budget["id"], seed=7, **correlated)
    for steps in stops:
        assert worker.work_once(service.context, "wrk_next", stopping_after(steps))
    service.work()
    assert service.model(run)["parameters"] == expected
    check_released_once(service, run)


@on_one_engine
def test_progress_goes_on_from_the_checkpoint(service, monkeypatch):
    run = left_after(service, 6)
    train, seen = worker.train, []

    def watched(*arguments):
        seen.append(service.get(f"/v1/runs/{run['id']}")["progress"]["done"])
        return train(*arguments)

    monkeypatch.setattr(worker, "train", watched)
    service.work()
    assert seen == [6]


@on_one_engine
def test_keys_that_nobody_chose_decide_a_run_wherever_it_is_interrupted(service, begun, monkeypatch):
    released = []
    for stops in ((), (5,), (1, 4, 7)):
        _, run = service.charged()
        for steps in stops:
            assert worker.work_once(service.context, "wrk_next", stopping_after(steps))
        service.work()
        released.append(service.model(run)["parameters"])
        # What the first run had drawn is what the others draw.
        monkeypatch.setattr(resumption, "first_checkpoint", lambda *_: begun[0].checkpoint)
    assert released[0] == released[1] == released[2]


def test_a_charge_that_has_started_is_refused_to_every_other_stream(service):
    _, run = service.charged()
    start(service.context, claim(service.context), "first")
    CheckpointFiles(service.context).write(run["id"], "first", 1, b"")
    silence(service.context)
    successor = claim(service.context, "wrk_next")
    with pytest.raises(RefusedError) as refused:
        start(service.context, successor, "second")
    assert refused.value.problem == failures.WORKER_LOST
    start(service.context, successor, "first")
    assert kinds(service, run) == ["reserve", "start"]


@on_one_engine
def test_whichever_claims_checkpoint_is_farthest_is_gone_on_from(service, begun):
    """A worker that was taken for lost and is not may be ahead: its stream is the same."""
    expected = undisturbed(service)
    run = left_after(service, 9)
    ahead = first_file(service)
    content = ahead.read_bytes()
    begun.clear()
    files_of = CheckpointFiles(service.context)
    [kept] = files_of.read_all(run["id"], service.stored(run).stream_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFiles, "read_all", lambda *_: iter([first]))
        first = resumption.first_checkpoint(resumption_binding(service, run), 7)
        assert worker.work_once(service.context, "wrk_behind", stopping_after(2))
    ahead.write_bytes(content)
    assert sorted(path.name.split(".")[2] for path in files(service)) == ["1", "2"]
    service.work()
    assert [beginning.steps for beginning in begun] == [0, 9]
    assert begun[-1].checkpoint == kept
    assert service.model(run)["parameters"] == expected
    check_released_once(service, run)


def resumption_binding(service: Service, run: dict[str, Any]) -> Any:
    row = service.stored(run)
    job = execution.load_job(service.context, row, lifecycle.read_plan(row))
    tag = resumption._data_tag(service.context, job)
    return resumption.Binding(row.plan_hash, tag, resumption.code_version())


def test_a_run_that_is_cancelled_between_two_workers_is_charged_in_full(service):
    run = left_after(service, 6)
    assert service.post(f"/v1/runs/{run['id']}/cancel").json()["state"] == "cancelled"
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert files(service) == []
    assert not worker.work_once(service.context, "wrk_next")


def test_a_run_whose_worker_is_lost_while_it_is_cancelled_is_not_queued_again(service):
    run = left_after(service, 6)
    claim(service.context)
    assert service.post(f"/v1/runs/{run['id']}/cancel").json()["state"] == "cancelling"
    silence(service.context)
    assert service.stored(run).state == "cancelled"
    assert service.reservation_state(run) == "committed"
    assert files(service) == []


def test_a_started_run_that_costs_every_worker_its_life_fails_with_its_charge(service):
    run = left_after(service, 6)
    for _ in range(lifecycle.MAX_WORKERS_LOST):
        assert service.stored(run).state == "queued"
        claim(service.context)
        silence(service.context)
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]) == ("failed", failures.WORKER_LOST)
    assert service.reservation_state(run) == "committed"
    assert files(service) == []
