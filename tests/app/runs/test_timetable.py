"""Nothing that is told of a private run, and no moment at which it is told, follows its rows."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest

from app.datasets import service as datasets
from app.fence.watching import fenced_context
from app.runs import artifacts, execution, timetable, worker
from app.runs.executors import local
from app.runs.schedule import Schedule
from app.runs.timetable import Timetable
from app.tables.runs import Run
from tests.app.runs.clocks import PACE, PacedExecutor, Turned, Watch
from tests.app.runs.conftest import HEADER, ROWS, Service
from tests.app.runs.silence import silence
from tests.databases import on_one_engine
from trainer.samplers import padding

#: Declared is the size of the issue's example; 1088 rows fill its blocks, and 1089 begin another.
DECLARED = 1024
POISSON = {"sampling": "poisson", "batch_size": 256, "iterations": 3}


@pytest.fixture
def turned(service, monkeypatch) -> Turned:
    return Turned(service, monkeypatch)


def rows(count: int) -> str:
    return HEADER + "".join(f"{index % 10},0.{index % 7},red,no\n" for index in range(count))


def queued(service: Service, content: str, **changes: Any) -> dict[str, Any]:
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    dataset = service.dataset(content, budget_id=budget["id"], declared_size=DECLARED)
    return service.queued(dataset_id=dataset["id"], budget_id=budget["id"], **changes)


def schedule_of(service: Service, run: dict[str, Any]) -> Schedule:
    stored = service.stored(run).schedule
    assert stored is not None
    return Schedule.from_json(stored)


@pytest.mark.one_in(4)
@on_one_engine
@pytest.mark.parametrize("content", [rows(0), rows(1), rows(1088), rows(1089)], ids=["none", "one", "1088", "1089"])
def test_neighbours_start_and_end_at_times_that_the_schedule_fixes(turned, content):
    run = queued(turned.service, content)
    turned.work()
    schedule = schedule_of(turned.service, run)
    assert turned.service.stored(run).state == "succeeded"
    assert turned.watch.told == {
        "start": [pytest.approx(schedule.loading_s)],
        "end": [pytest.approx(schedule.bound_s())],
    }


@on_one_engine
def test_without_waiting_the_times_would_tell_the_rows(turned, monkeypatch):
    """The test above looks where the difference is."""
    monkeypatch.setattr(worker.Timetable, "wait_for_training", lambda self: None)
    monkeypatch.setattr(worker.Timetable, "wait_for_release", lambda self, must_stop: True)
    for content in (rows(1088), rows(1089)):
        queued(turned.service, content)
        turned.work()
    [few, more], [early, late] = turned.watch.told["start"], turned.watch.told["end"]
    assert more - few == pytest.approx(turned.row_s)
    assert late - early == pytest.approx(turned.row_s)


def unreadable(turned: Turned, run: dict[str, Any], _monkeypatch: Any) -> None:
    files = datasets.DatasetFiles(turned.service.context.settings.data_dir, turned.service.context.settings.encryption)
    files.path(turned.service.stored(run).dataset_id).write_bytes(b"no rows")


def too_full(_turned: Turned, _run: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(execution.LoadedDataset, "is_too_full", True)


def deleted(turned: Turned, run: dict[str, Any], _monkeypatch: Any) -> None:
    datasets.delete(turned.service.context, turned.service.stored(run).dataset_id)


def failed_training(turned: Turned, _run: dict[str, Any], monkeypatch: Any) -> None:
    def explode(*_args: Any, **_options: Any) -> None:
        turned.time.sleep(0.123)
        raise ValueError("a row")

    monkeypatch.setattr(local, "run", explode)


def no_room_for_the_model(_turned: Turned, _run: dict[str, Any], monkeypatch: Any) -> None:
    def full(*_args: Any) -> None:
        raise OSError("disk")

    monkeypatch.setattr(artifacts, "write_model", full)


def killed() -> None:
    raise KeyboardInterrupt


FAILURES = {
    unreadable: "run_not_started",
    too_full: "dataset_too_full",
    deleted: "dataset_deleted",
    failed_training: "run_failed",
    no_room_for_the_model: "run_failed",
}


@pytest.mark.one_in(4)
@on_one_engine
@pytest.mark.parametrize(("fail", "code"), FAILURES.items(), ids=lambda each: getattr(each, "__name__", each))
def test_a_run_that_fails_anywhere_ends_when_it_would_have_succeeded(turned, monkeypatch, fail, code):
    run = queued(turned.service, rows(3))
    fail(turned, run, monkeypatch)
    turned.work()
    ended = turned.service.stored(run)
    assert (ended.state, ended.problem["code"]) == ("failed", code)
    at_the_end = [pytest.approx(schedule_of(turned.service, run).bound_s())]
    # What is logged of it is no earlier.
    assert (turned.watch.told["logged"], turned.watch.told["end"]) == (at_the_end, at_the_end)


@on_one_engine
def test_a_batch_that_overflows_ends_at_the_same_time(turned, monkeypatch):
    """A step that draws more than a padded batch takes another one, and longer."""
    ends = []
    padded = padding.padded
    # Of 40 steps none overflows, or each does with a probability of a half: none would in one run of 2^40.
    for overflow in (padding.OVERFLOW, 20.0):
        monkeypatch.setattr(padding, "OVERFLOW", overflow)
        batches = []

        def counted(slots, size, spare, batches=batches):
            found = padded(slots, size, spare)
            batches.append(found.size // size)
            turned.time.sleep(0.01 * batches[-1])
            return found

        monkeypatch.setattr(padding, "padded", counted)
        run = queued(turned.service, rows(1000 + len(ends)), **POISSON | {"iterations": 40})
        turned.work()
        assert (max(batches) > 1) == (overflow == 20.0), batches
        assert turned.service.stored(run).state == "succeeded"
        ends.append(turned.watch.told["end"][-1])
    assert ends == [pytest.approx(schedule_of(turned.service, run).bound_s())] * 2


@on_one_engine
def test_a_late_run_ends_at_a_later_multiple_of_the_public_interval(turned):
    turned.step_s = 0.2
    run = queued(turned.service, rows(3))
    turned.work()
    schedule = schedule_of(turned.service, run)
    [end] = turned.watch.told["end"]
    late = (end - schedule.bound_s()) / schedule.late_interval_s
    assert late > 0.5
    assert late == pytest.approx(round(late), abs=1e-4)


@on_one_engine
def test_loading_that_is_late_delays_the_start_by_whole_intervals(turned):
    turned.row_s = 1.003
    run = queued(turned.service, rows(3))
    turned.work()
    schedule = schedule_of(turned.service, run)
    late = (turned.watch.told["start"][0] - schedule.loading_s) / schedule.interval_s
    assert late > 1.0
    assert late == pytest.approx(round(late), abs=1e-4)


@on_one_engine
def test_the_times_of_a_claim_are_fixed_when_the_noise_is_loaded(turned, monkeypatch):
    """A process that has drawn no noise yet takes a while to load it, and the schedule leaves no time for that."""
    context, waited = turned.service.context, []
    monkeypatch.setattr(timetable, "load_noise", lambda: waited.append(20))
    slow = fenced_context(context.settings, context.database, lambda: context.clock() + timedelta(seconds=sum(waited)))
    run = queued(turned.service, rows(3))
    began = context.clock()
    assert worker.work_once(slow, "wrk_test", executor=turned.executor)
    stored = turned.service.stored(run)
    assert (stored.state, waited) == ("succeeded", [20])
    assert stored.release_at >= began + timedelta(seconds=20 + schedule_of(turned.service, run).bound_s())


def test_the_schedule_of_neighbours_is_the_same_and_is_shown(service):
    """Measured by the executor that everybody has, not by one that says what the test wants."""
    found = []
    for content in (rows(0), rows(1), rows(1089)):
        run = queued(service, content)
        assert service.get(f"/v1/runs/{run['id']}")["release_at"] is None
        service.work()
        ended = service.stored(run)
        body = service.get(f"/v1/runs/{run['id']}")
        assert body["release_at"] == ended.release_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        found.append((json.dumps(ended.schedule), ended.steps_done))
    assert len(set(found)) == 1
    public = service.queued(dataset_id="ds_breast_cancer")
    service.work()
    stored = service.stored(public)
    assert (stored.schedule, stored.release_at) == (None, None)


@on_one_engine
def test_progress_is_what_the_schedule_says_and_never_ahead_of_it(service, monkeypatch):
    """The steps take milliseconds, and the schedule 2 s."""
    watch = Watch(monkeypatch)
    run = queued(service, rows(3))
    assert worker.work_once(service.context, "wrk_test", executor=PacedExecutor())
    schedule = schedule_of(service, run)
    assert len(watch.shown) > 5
    for moment, steps in watch.shown:
        # A tick is told when it has come, and what is told then is the schedule's. The watch begins a moment later.
        assert steps <= schedule.steps_at(moment + 0.02)
    told = [steps for _, steps in watch.shown]
    assert told == sorted(told)
    assert 0 < told[len(told) // 2] < schedule.steps
    assert service.stored(run).steps_done == schedule.steps


@on_one_engine
def test_a_late_run_shows_the_steps_that_it_has_done(service, monkeypatch):
    watch = Watch(monkeypatch)
    pace = PACE.__class__(reading_s=0.0, preparing_s=0.0, step_s=0.001, scoring_s=0.0)
    done = []

    def slowly() -> None:
        done.append(1)
        time.sleep(0.03)

    queued(service, rows(3))
    assert worker.work_once(service.context, "wrk_test", executor=PacedExecutor(pace, slowly))
    assert [steps for _, steps in watch.shown if 0 < steps < 20], "it was looked at meanwhile"
    assert all(steps <= len(done) for _, steps in watch.shown)


@on_one_engine
def test_a_part_that_is_handed_back_ends_at_a_tick_and_the_next_keeps_to_the_schedule(turned):
    run = queued(turned.service, rows(1089))
    asked = []

    def told_to_stop() -> bool:
        asked.append(1)
        return len(asked) > 5

    turned.work(told_to_stop)
    first = turned.service.stored(run)
    assert first.state == "queued"
    schedule = schedule_of(turned.service, run)
    ticks = turned.watch.told["hand_back"][0] / schedule.interval_s
    assert ticks == pytest.approx(round(ticks), abs=1e-4)
    turned.work()
    second = turned.service.stored(run)
    assert (second.state, second.schedule) == ("succeeded", first.schedule)
    late = (second.release_at - first.release_at) / timedelta(seconds=schedule.late_interval_s)
    assert late >= 0
    # Where the first claim began anew, the second takes the whole time, and a part of an interval to be in step.
    [end] = turned.watch.told["end"]
    assert schedule.bound_s() <= end < schedule.bound_s() + schedule.late_interval_s + 1e-6


@on_one_engine
def test_a_worker_that_is_lost_leaves_a_schedule_that_the_next_one_keeps(turned):
    run = queued(turned.service, rows(3))
    context = turned.service.context
    turned.executor._before_step = killed
    with pytest.raises(KeyboardInterrupt):
        turned.work()
    first = turned.service.stored(run)
    assert (first.state, first.epoch) == ("running", 1)
    silence(context)
    turned.executor._before_step = lambda: turned.time.sleep(turned.step_s)
    late = fenced_context(context.settings, context.database, lambda: context.clock() + timedelta(seconds=100))
    asked = len(turned.executor.asked)
    assert worker.work_once(late, "wrk_next", executor=turned.executor)
    second = turned.service.stored(run)
    assert (second.state, second.epoch, second.schedule) == ("succeeded", 2, first.schedule)
    assert len(turned.executor.asked) == asked, "the speed of the next machine has no part in it"
    schedule = schedule_of(turned.service, run)
    steps = turned.watch.told["end"][-1]
    assert schedule.bound_s() <= steps < schedule.bound_s() + schedule.late_interval_s + 1e-6


@on_one_engine
def test_a_run_that_is_cancelled_while_it_waits_is_cancelled_like_one_that_trains(service, monkeypatch):
    watch = Watch(monkeypatch)
    run = queued(service, rows(3))
    write = artifacts.write_model

    def cancel_when_trained(*args: Any) -> None:
        write(*args)
        assert service.post(f"/v1/runs/{run['id']}/cancel").json()["state"] == "cancelling"

    monkeypatch.setattr(artifacts, "write_model", cancel_when_trained)
    assert worker.work_once(service.context, "wrk_test", executor=PacedExecutor())
    ended = service.stored(run)
    assert (ended.state, ended.result) == ("cancelled", None)
    assert service.reservation_state(run) == "committed"
    assert watch.told["end"][0] < schedule_of(service, run).bound_s()
    assert not list((service.context.settings.data_dir / "models").glob("*")), "nobody keeps its model"


@on_one_engine
def test_a_run_that_is_cancelled_while_it_loads_ends_at_a_tick(turned, monkeypatch):
    ends = []
    for content in (rows(0), rows(1089)):
        run = queued(turned.service, content)
        load = execution.datasets.load

        def cancelled_meanwhile(*args: Any, run: Any = run, load: Any = load) -> Any:
            turned.service.post(f"/v1/runs/{run['id']}/cancel")
            return load(*args)

        monkeypatch.setattr(execution.datasets, "load", cancelled_meanwhile)
        turned.work()
        monkeypatch.setattr(execution.datasets, "load", load)
        assert turned.service.stored(run).state == "cancelled"
        ends.append(turned.watch.told["end"][-1])
    assert ends[0] == pytest.approx(ends[1])


@on_one_engine
def test_a_worker_that_is_stopped_while_it_waits_leaves_a_run_that_the_next_one_ends(turned):
    run = queued(turned.service, rows(3))
    turned.work(lambda: turned.watch.elapsed() > schedule_of(turned.service, run).bound_s() - 0.2)
    assert turned.service.stored(run).state == "queued"
    assert turned.service.client.get(f"/v1/runs/{run['id']}/model").status_code == 409
    trained = []
    turned.executor._before_step = lambda: trained.append(1)
    turned.work()
    assert turned.service.stored(run).state == "succeeded"
    assert len(trained) == 1, "the checkpoint of the last step was kept: the steps are not taken again"


def test_a_model_cannot_be_fetched_before_the_release(service, monkeypatch):
    run = queued(service, ROWS)
    write, seen = artifacts.write_model, []

    def look(*args: Any) -> None:
        write(*args)
        seen.append(service.client.get(f"/v1/runs/{run['id']}/model").status_code)
        seen.append(service.get(f"/v1/runs/{run['id']}")["state"])

    monkeypatch.setattr(artifacts, "write_model", look)
    service.work()
    assert seen == [409, "running"]


@on_one_engine
def test_a_cancelled_run_ends_a_public_time_after_the_wish_was_seen_whatever_the_step_took(turned):
    schedule = Schedule(steps=9, loading_s=0.1, step_s=0.3, ending_s=0.1, interval_s=0.25, checkpoint_steps=1)
    for took in (0.05, 0.4):
        began = turned.time.now
        timetable = Timetable(turned.service.context, Run(steps_done=0), schedule, 100.0)
        turned.time.sleep(2.0)
        timetable.give_up()
        turned.time.sleep(took)
        assert timetable.wait_for_release(lambda: False)
        assert turned.time.now - began == pytest.approx(2.5, abs=1e-3)
