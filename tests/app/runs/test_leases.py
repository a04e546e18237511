"""Leases: when one lapses, by a clock that the test turns; what becomes of the run then; and what keeps one."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from app.context import utc_now
from app.db.database import Database
from app.fence.watching import fenced_context
from app.runs import execution, failures, leases, lifecycle, repository, worker
from app.runs.leases import LEASE_S, LOOKS_PER_LEASE, Heartbeat, LeaseWatch
from app.runs.repository import Lease
from app.tables.runs import Run
from app.tables.states import RunState
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import Service
from tests.app.runs.silence import Monotonic, claim, silence, start
from trainer.run import RunCancelled

LEASE = Lease("run_1", "wrk_1", epoch=1, heartbeat=0)


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


@pytest.fixture
def watch(monotonic: Monotonic) -> LeaseWatch:
    return LeaseWatch(clock=monotonic)


def look(watch: LeaseWatch, monotonic: Monotonic, seconds: float, *seen: Lease) -> list[Lease]:
    monotonic.now += seconds
    return watch.lapsed(seen)


def test_a_lease_lapses_when_it_was_unchanged_for_its_whole_length(watch, monotonic):
    assert look(watch, monotonic, 0, LEASE) == []
    for _ in range(5):
        assert look(watch, monotonic, LEASE_S / 6, LEASE) == []
    assert look(watch, monotonic, LEASE_S / 6 - 0.01, LEASE) == []
    assert look(watch, monotonic, 0.02, LEASE) == [LEASE]
    assert look(watch, monotonic, 0, LEASE) == [LEASE], "until somebody has taken the run over"


@pytest.mark.parametrize("change", [{"heartbeat": 1}, {"epoch": 2}])
def test_a_heartbeat_and_a_new_claim_begin_the_lease_anew(watch, monotonic, change):
    later = replace(LEASE, **change)
    for _ in range(4):
        assert look(watch, monotonic, LEASE_S / 5, LEASE) == []
    for _ in range(5):
        assert look(watch, monotonic, LEASE_S / 5, later) == []
    assert look(watch, monotonic, LEASE_S / 5, later) == [later]


def test_one_lease_lapses_beside_another_that_is_kept(watch, monotonic):
    for heartbeat in range(6):
        lapsed = look(watch, monotonic, LEASE_S / 5, LEASE, Lease("run_2", "wrk_2", 1, heartbeat))
    assert lapsed == [LEASE]


def test_time_in_which_nobody_looked_does_not_count_against_a_worker(watch, monotonic):
    look(watch, monotonic, 0, LEASE)
    for _ in range(LOOKS_PER_LEASE - 1):
        assert look(watch, monotonic, 3600 * LEASE_S, LEASE) == []
    assert look(watch, monotonic, 3600 * LEASE_S, LEASE) == [LEASE]


def test_a_silent_worker_loses_its_run_at_the_end_of_its_lease_and_no_sooner(service):
    _, run = service.charged()
    claim(service.context)
    assert silence(service.context) == [set()] * LOOKS_PER_LEASE + [{"wrk_silent"}]
    assert service.stored(run).state == "queued"
    assert service.reservation_state(run) == "pending"


def test_a_started_run_of_a_silent_worker_without_a_checkpoint_is_charged_in_full_and_fails(service):
    budget, run = service.charged()
    start(service.context, claim(service.context))
    silence(service.context)
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]) == ("failed", failures.WORKER_LOST)
    assert service.reservation_state(run) == "committed"
    assert service.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"] == ended["charge"]


def test_a_run_of_a_silent_worker_that_was_cancelled_before_its_start_is_not_queued_again(service):
    _, run = service.charged()
    claim(service.context)
    assert service.post(f"/v1/runs/{run['id']}/cancel").json()["state"] == "cancelling"
    silence(service.context)
    assert service.stored(run).state == "cancelled"
    assert service.reservation_state(run) == "voided"


def test_a_run_without_a_reservation_is_carried_out_again_whether_it_was_started_or_not(service):
    run = service.queued(dataset_id="ds_breast_cancer")
    start(service.context, claim(service.context))
    silence(service.context)
    assert service.stored(run).state == "queued"
    service.work()
    assert service.stored(run).state == "succeeded"


def test_a_worker_that_was_heard_of_since_keeps_its_run(service):
    _, run = service.charged()
    claimed = claim(service.context)
    with service.context.database.read() as session:
        [seen] = repository.leases(session)
    with service.context.database.write() as session:
        assert repository.raise_heartbeat(session, claimed)
    assert not lifecycle.take_over(service.context, seen)
    assert not lifecycle.take_over(service.context, replace(seen, heartbeat=1, epoch=2))
    assert service.stored(run).state == "running"
    assert lifecycle.take_over(service.context, replace(seen, heartbeat=1))


def test_a_run_that_is_being_written_is_left_to_the_next_sweep(postgresql_databases, settings):
    url = postgresql_databases.migrated()
    database = Database(url)
    # SQLite has one writer: there the sweep waits for it.
    context = fenced_context(settings, database)
    with database.write() as session:
        session.add(any_run())
    with database.read() as session:
        [seen] = repository.leases(session)
    with database.write() as session:
        assert repository.find_for_update(session, seen.run_id)
        assert not lifecycle.take_over(context, seen)
    assert lifecycle.take_over(context, seen)
    database.dispose()


def any_run() -> Run:
    return Run(
        id="run_1",
        principal_id="p",
        state=RunState.RUNNING,
        algorithm="dp_sgd",
        plan=b"",
        plan_hash="",
        target={},
        achieved={},
        provenance={},
        warnings=[],
        model={},
        description={},
        dataset_id="ds_digits",
        steps_total=1,
        worker_id="wrk_1",
        created_at=utc_now(),
    )


def heartbeat_of(service: Service, run: dict[str, Any]) -> int:
    return service.stored(run).heartbeat


def until_beaten(service: Service, run: dict[str, Any], more_than: int) -> int:
    deadline = time.monotonic() + 60
    while (heartbeat := heartbeat_of(service, run)) <= more_than:
        assert time.monotonic() < deadline, "the heart does not beat"
        time.sleep(0.005)
    return heartbeat


def test_a_heartbeat_is_raised_until_the_work_is_done(service, monkeypatch):
    _, run = service.charged()
    claimed = claim(service.context)
    monkeypatch.setattr(leases, "HEARTBEAT_INTERVAL_S", 0.001)
    with Heartbeat(service.context, claimed) as heartbeat:
        until_beaten(service, run, more_than=2)
    assert not heartbeat.is_lost
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_a_heartbeat_outlives_a_database_that_is_away_for_a_moment(service, monkeypatch):
    _, run = service.charged()
    claimed = claim(service.context)
    monkeypatch.setattr(leases, "HEARTBEAT_INTERVAL_S", 0.001)
    raise_heartbeat, failures = repository.raise_heartbeat, []

    def failing_once(session, row):
        if not failures:
            failures.append(1)
            raise OperationalError("statement", {}, Exception("gone"))
        return raise_heartbeat(session, row)

    monkeypatch.setattr(repository, "raise_heartbeat", failing_once)
    with Heartbeat(service.context, claimed):
        until_beaten(service, run, more_than=0)
    assert failures, "the fault was met"


def test_a_worker_that_learns_of_its_loss_from_its_heartbeat_stops_training(service, monkeypatch):
    _, run = service.charged(iterations=200_000)
    monkeypatch.setattr(leases, "HEARTBEAT_INTERVAL_S", 0.001)
    monkeypatch.setattr(execution, "PROGRESS_INTERVAL_S", 1e9)  # which would tell too
    train = worker.train

    def lost_meanwhile(context, *arguments):
        assert lifecycle.give_up_runs_of(context, "wrk_test") == 1
        with pytest.raises(RunCancelled) as cancelled:
            train(context, *arguments)
        raise cancelled.value

    monkeypatch.setattr(worker, "train", lost_meanwhile)
    service.work()
    assert service.stored(run).state == "queued"
    assert_problem(service.client.get(f"/v1/runs/{run['id']}/model"), 409, "model_not_released")
