"""Marks of steps: in the database before noise may be drawn, ahead of a public schedule; the others are given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.dashboard.wording import at_least
from app.ledger.price_search import PriceSearch
from app.ledger.price_verification import PriceClass, PriceVerification
from app.ledger.verification import verify
from app.runs import lifecycle, marks, worker
from app.runs.executors.paces import Pace
from app.runs.failures import RefusedError
from app.runs.job import Job
from app.runs.marks import Permits
from app.runs.schedule import Schedule
from app.runs.settling import Ending
from app.runs.timetable import Timetable
from app.tables.states import RunState
from tests.app.runs.clocks import PacedExecutor
from tests.app.runs.conftest import HEADER, Service
from tests.databases import on_one_engine
from trainer.checkpoint import Checkpoints
from trainer.run import RunResult

STEPS = 300
PACE = Pace(reading_s=0.05, preparing_s=0.05, step_s=0.02, scoring_s=0.05)


class MarkedExecutor(PacedExecutor):
    """Notes before each step that it takes how many are marked, and cancels the run before one of them."""

    def __init__(self, service: Service, run: dict[str, Any], cancelled_at: int) -> None:
        super().__init__(PACE)
        self.service, self.run, self.cancelled_at = service, run, cancelled_at
        self.seen: list[tuple[int, int | None]] = []

    def train(
        self,
        job: Job,
        checkpoints: Checkpoints,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> RunResult:
        done = 0

        def progress(steps: int, total: int) -> None:
            nonlocal done
            on_progress(steps, total)
            done = steps

        def asked() -> bool:
            with self.service.context.database.read() as session:
                marked = marks.of(session, self.run["id"])
            if done + 1 == self.cancelled_at:
                assert self.service.post(f"/v1/runs/{self.run['id']}/cancel").status_code == 200
            is_over = is_cancelled()
            if not is_over:
                self.seen.append((done + 1, marked))
            return is_over

        return super().train(job, checkpoints, progress, asked)


def queued(service: Service, kind: str = "approximate_gaussian_dp", **changes: Any) -> dict[str, Any]:
    budget = service.budget(filter={"kind": kind, "epsilon": 20, "delta": 1e-5})
    content = HEADER + "".join(f"{index % 10},0.{index % 7},red,no\n" for index in range(50))
    dataset = service.dataset(content, budget_id=budget["id"])
    usual = {"sampling": "poisson", "batch_size": 50, "iterations": STEPS}
    return service.queued(dataset_id=dataset["id"], budget_id=budget["id"], **usual | changes)


def reservation(service: Service, run: dict[str, Any]) -> dict[str, Any]:
    return service.get(f"/v1/reservations/{run['reservation_id']}")


def started(service: Service, mark: int | None) -> tuple[dict[str, Any], Any]:
    run = queued(service)
    claimed = lifecycle.claim(service.context, "wrk_test")
    assert claimed is not None
    assert lifecycle.start(service.context, claimed, lifecycle.read_plan(claimed), "stream", mark=mark) == mark
    return run, claimed


def test_a_step_waits_for_its_mark() -> None:
    """A worker that is faster than the schedule takes no step that is not marked, until nothing is to be done."""
    permits, taken = Permits(2), [0]

    def work() -> None:
        for step in range(1, 8):
            permits.wait_for(step)
            taken.append(step)

    def taken_at_last(step: int) -> int:
        while taken[-1] < step:
            time.sleep(0.001)
        thread.join(0.15)
        return taken[-1]

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert taken_at_last(2) == 2
    permits.give(5)
    assert taken_at_last(5) == 5
    permits.end()
    assert taken_at_last(7) == 7


def test_without_marks_no_step_waits() -> None:
    waiting = threading.Thread(target=Permits(None).wait_for, args=(10**9,), daemon=True)
    waiting.start()
    waiting.join(10.0)
    assert not waiting.is_alive()


@on_one_engine
def test_a_cancelled_run_gives_up_the_steps_that_were_not_marked_before_their_noise(service: Service) -> None:
    run = queued(service)
    executor = MarkedExecutor(service, run, 5)
    assert worker.work_once(service.context, "wrk_test", executor=executor)
    assert [each for each in executor.seen if each[1] is None or each[0] > each[1]] == []
    assert service.stored(run).state == "cancelled"
    ended = reservation(service, run)
    with service.context.database.read() as session:
        marked = marks.of(session, run["id"])
    assert marked is not None
    assert [event["count"] for event in ended["charged_events"]] == [marked]
    assert 5 <= marked < STEPS
    assert ended["charged"]["mu_squared"] < 0.9 * ended["cost"]["mu_squared"]
    entry = next(each for each in service.get(f"/v1/budgets/{run['budget_id']}/entries")["items"] if each["given_back"])
    assert (entry["kind"], entry["principal_id"]) == ("commit", "service")
    told = service.get(f"/v1/runs/{run['id']}")
    assert told["given_back"] == ended["given_back"] == entry["given_back"]
    assert told["charge"] == ended["charged"], "net of what came back"
    page = service.client.get(f"/dashboard/runs/{run['id']}").text
    assert f"mu squared {at_least(entry['given_back']['mu_squared'])} came back" in page
    charges = PriceVerification(PriceSearch(service.context.processes))
    with service.context.database.read() as session:
        verdict = verify(session, charges=charges)
    report = verdict.with_prices(charges).prices
    assert report is not None
    assert (report.entries[PriceClass.TOO_LOW], report.entries[PriceClass.UNDECIDED]) == (0, 0)


@on_one_engine
def test_steps_with_correlated_noise_are_not_given_up(service: Service) -> None:
    """A run of them that is cancelled is charged in full: its later steps would be of the noise that has been drawn."""
    correlated = {"algorithm": "dp_bandmf", "sampling": "cyclic_poisson", "correlation": {"bands": 1}, "batch_size": 50}
    run = queued(service, **correlated)
    assert worker.work_once(service.context, "wrk_test", executor=MarkedExecutor(service, run, 5))
    assert service.stored(run).state == "cancelled"
    ended = reservation(service, run)
    assert (ended["charged"], ended["charged_events"]) == (ended["cost"], ended["events"])


def test_a_crash_counts_what_was_marked(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = started(service, 100)
    monkeypatch.setattr(lifecycle, "MAX_WORKERS_LOST", 1)
    lifecycle.give_up_runs_of(service.context, "wrk_test")
    assert service.stored(run).state == "failed"
    ended = reservation(service, run)
    assert [event["count"] for event in ended["charged_events"]] == [100]
    assert ended["charged"]["mu_squared"] < ended["cost"]["mu_squared"]


@on_one_engine
def test_a_mark_that_was_made_meanwhile_counts(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    run, claimed = started(service, 100)
    find = marks.rest

    def raised_meanwhile(*asked: Any) -> Any:
        found = find(*asked)
        with service.context.database.write() as session:
            marks.raise_to(session, claimed, 101)
        return found

    monkeypatch.setattr(marks, "rest", raised_meanwhile)
    assert lifecycle.end(service.context, claimed, Ending(RunState.CANCELLED))
    ended = reservation(service, run)
    assert ended["charged"] == ended["cost"]


@on_one_engine
def test_a_run_that_succeeded_is_charged_in_full(service: Service) -> None:
    """Whatever was marked: it has taken all of its steps."""
    run, claimed = started(service, 100)
    assert lifecycle.end(service.context, claimed, Ending(RunState.SUCCEEDED))
    assert service.stored(run).state == "succeeded"
    ended = reservation(service, run)
    assert (ended["charged"], ended["charged_events"]) == (ended["cost"], ended["events"])


@on_one_engine
def test_without_marks_everything_counts(service: Service) -> None:
    run, claimed = started(service, None)
    assert lifecycle.end(service.context, claimed, Ending(RunState.CANCELLED))
    ended = reservation(service, run)
    assert ended["charged"] == ended["cost"]


@on_one_engine
def test_a_later_claim_never_marks_fewer_and_an_executor_that_marks_none_ends_it(service: Service) -> None:
    run, claimed = started(service, 100)
    plan = lifecycle.read_plan(claimed)
    assert lifecycle.start(service.context, claimed, plan, "stream", mark=40) == 100
    assert lifecycle.start(service.context, claimed, plan, "stream", mark=120) == 120
    assert lifecycle.start(service.context, claimed, plan, "stream", mark=None) is None
    assert lifecycle.start(service.context, claimed, plan, "stream", mark=40) is None
    assert lifecycle.end(service.context, claimed, Ending(RunState.CANCELLED))
    assert reservation(service, run)["charged"] == reservation(service, run)["cost"]


@on_one_engine
def test_other_budgets_need_no_marks(service: Service) -> None:
    queued(service, "renyi_dp")
    claimed = lifecycle.claim(service.context, "wrk_test")
    assert claimed is not None
    assert lifecycle.start(service.context, claimed, lifecycle.read_plan(claimed), "stream", mark=3) is None


@on_one_engine
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_worker_waits_for_the_next_mark_or_for_the_end(service: Service, is_cancelled: bool) -> None:
    run, claimed = started(service, 4)
    # A step takes an hour, so that no time of the test brings the fifth mark.
    step_s = 3600.0 if is_cancelled else 0.05
    schedule = Schedule(STEPS, loading_s=0.0, step_s=step_s, ending_s=0.1, interval_s=0.1, checkpoint_steps=1)
    with Timetable(service.context, claimed, schedule, 100.0) as timetable:
        timetable.begin(4)
        timetable.on_progress(3, STEPS)
        waiting = threading.Thread(target=timetable.on_progress, args=(4, STEPS), daemon=True)
        waiting.start()
        if is_cancelled:
            waiting.join(0.5)
            assert waiting.is_alive()
            assert service.post(f"/v1/runs/{run['id']}/cancel").status_code == 200
        waiting.join(10)
        assert not waiting.is_alive()
        assert timetable.is_cancelled == is_cancelled
    with service.context.database.read() as session:
        marked = marks.of(session, run["id"])
    assert marked is not None
    assert (marked > 4) is not is_cancelled


@on_one_engine
def test_another_plan_than_the_charged_one_is_not_started(service: Service) -> None:
    run = queued(service)
    claimed = lifecycle.claim(service.context, "wrk_test")
    assert claimed is not None
    plan = lifecycle.read_plan(claimed)
    other = replace(plan, dtype="float64" if plan.dtype == "float32" else "float32")
    with pytest.raises(RefusedError, match="plan_hash_mismatch"):
        lifecycle.start(service.context, claimed, other, "stream", mark=3)
    assert reservation(service, run)["state"] == "pending"
