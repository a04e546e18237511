"""Runs are cancelled, lost, failed and refused, and nothing of that tells about one record."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from app.auth.principal import LOOPBACK
from app.datasets import service as datasets
from app.fence.watching import fenced_context
from app.runs import artifacts, execution, failures, lifecycle, worker
from app.runs import service as runs
from app.runs.executors import local
from app.runs.guarantee import round_up
from app.runs.preparation import QUEUE_HOLD_S
from app.tables.datasets import Dataset
from app.tables.ledger import Reservation
from app.tables.runs import Run
from tests.app.entries.found import forget_register
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import HEADER, ROWS
from tests.app.runs.silence import start


def test_a_queued_run_that_is_cancelled_gives_its_hold_back(service):
    _, run = service.private()
    cancelled = service.post(f"/v1/runs/{run['id']}/cancel").json()
    assert cancelled["state"] == "cancelled"
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"
    assert not worker.work_once(service.context, "wrk_test")
    assert_problem(service.post(f"/v1/runs/{run['id']}/cancel"), 409, "run_has_ended")


def test_a_queued_run_whose_hold_ran_out_can_still_be_cancelled(service):
    _, run = service.private()
    later = service.context.clock() + timedelta(seconds=QUEUE_HOLD_S + 1)
    late = fenced_context(service.context.settings, service.context.database, lambda: later)
    with late.database.write() as session:
        assert runs.cancel(session, late, run["id"], LOOPBACK).state == "cancelled"


def test_a_running_run_that_is_cancelled_is_charged_in_full(service, monkeypatch):
    _, run = service.private()
    write = execution.repository.record_progress

    def cancel_at_first_progress(session, run_id, steps):
        session.execute(update(Run).values(state="cancelling"))
        return write(session, run_id, steps)

    monkeypatch.setattr(execution.repository, "record_progress", cancel_at_first_progress)
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["state"] == "cancelled"
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "committed"
    assert_problem(service.client.get(f"/v1/runs/{run['id']}/model"), 409, "model_not_released")


def test_a_lost_workers_run_fails_with_its_charge_where_there_is_no_checkpoint(service):
    _, run = service.private()
    claimed = lifecycle.claim(service.context, "wrk_gone")
    assert claimed is not None
    start(service.context, claimed)
    assert lifecycle.give_up_runs_of(service.context, "wrk_gone") == 1
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]["code"]) == ("failed", "worker_lost")
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "committed"
    assert lifecycle.give_up_runs_of(service.context, "wrk_gone") == 0


def test_an_exception_in_training_fails_with_a_constant_text_and_the_charge(service, monkeypatch, capsys):
    _, run = service.private()

    def explode(*_args, **_options):
        raise ValueError("the secret value 8675309 of a row")

    monkeypatch.setattr(local, "run", explode)
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["problem"] == failures.FAILED
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "committed"
    printed = capsys.readouterr()
    assert "8675309" not in printed.out + printed.err


def refuse(service, run, code):
    service.work()
    with service.context.database.read() as session:
        ended = session.get(Run, run["id"])
    assert (ended.state, ended.problem["code"]) == ("failed", code)


def test_a_run_whose_stored_plan_was_changed_is_refused_and_not_charged(service):
    _, run = service.private()
    with service.context.database.write() as session:
        stored = session.get(Run, run["id"])
        stored.plan = stored.plan.replace(b'"noise_multiplier":"', b'"noise_multiplier":"0')
    refuse(service, run, "plan_hash_mismatch")
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"
    assert_problem(service.client.get(f"/v1/runs/{run['id']}/report"), 500, "stored_plan_altered")


def test_a_run_whose_reservation_holds_other_events_is_refused(service):
    _, run = service.private()
    with service.context.database.write() as session:
        reservation = session.get(Reservation, run["reservation_id"])
        events = (replace(reservation.events[0], count=1), *reservation.events[1:])
        session.execute(update(Reservation).where(Reservation.id == reservation.id).values(events=events))
    refuse(service, run, "declaration_altered")
    # What its row says is not to be released: it is not what was held.
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "pending"


def test_a_run_on_more_rows_than_there_are_slots_fails_without_a_charge(service):
    """A data set from before files were refused for that: no run on it could hide the number of its rows."""
    _, run = service.private()
    with service.context.database.write() as session:
        session.execute(update(Dataset).where(Dataset.id == run["dataset_id"]).values(declared_size=1, capacity=3))
    forget_register(service.context)
    refuse(service, run, "dataset_too_full")
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"


def test_a_run_whose_data_set_was_deleted_fails_without_a_charge(service):
    _, run = service.private()
    datasets.delete(service.context, run["dataset_id"])
    refuse(service, run, "dataset_deleted")
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"


def test_a_run_that_waited_too_long_fails_without_a_charge(service):
    _, run = service.private()
    later = service.context.clock() + timedelta(seconds=QUEUE_HOLD_S + 1)
    assert worker.work_once(
        fenced_context(service.context.settings, service.context.database, lambda: later), "wrk_test"
    )
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["problem"]["code"] == "reservation_lost"


def test_a_runs_own_reservation_refuses_other_hands(service):
    _, run = service.private()
    for command in ("start", "commit", "void"):
        answer = service.post(f"/v1/reservations/{run['reservation_id']}/{command}")
        assert_problem(answer, 409, "owned_by_run")


def visible(service, run) -> dict[str, Any]:
    """Everything an analyst can see of a run, without ids and times."""
    body = service.get(f"/v1/runs/{run['id']}")
    texts = [service.client.get(f"/v1/runs/{run['id']}/{part}").text for part in ("report", "model")]
    for name in ("id", "dataset_id", "budget_id", "reservation_id"):
        texts = [text.replace(run[name], name) for text in texts]
    report, model = map(json.loads, texts)
    report["ledger"]["entries"] = [(entry["kind"], entry["sequence"]) for entry in report["ledger"]["entries"]]
    # Of entries, whose ids and moments are their own.
    report["ledger"]["proof"] = sorted(report["ledger"]["proof"])
    # Its moments are those of the run, and its hash is of all that it says.
    card = model.pop("card")
    assert model.pop("card_hash")
    assert {card.pop(name) for name in ("created_at", "finished_at")} == {body["created_at"], body["finished_at"]}
    shapes = {name: np.shape(value) for name, value in model.pop("parameters").items()}
    hidden = {
        "id",
        "run_id",
        "dataset_id",
        "budget_id",
        "reservation_id",
        "created_at",
        "started_at",
        "finished_at",
        "release_at",
    }
    model["card_of_the_file"] = card
    return {key: value for part in (body, report, model) for key, value in part.items() if key not in hidden} | shapes


def test_nothing_an_analyst_sees_changes_when_one_row_does_the_model_aside(service):
    seen = []
    for rows in (
        ROWS,
        ROWS + "5,0,red,yes\n",
        HEADER + "1,0.5,red,no\n",
        HEADER + "1e9,-1e9,green,yes\n",
        HEADER,
    ):
        budget = service.budget()
        dataset = service.dataset(rows, budget_id=budget["id"])
        run = service.queued(dataset_id=dataset["id"], budget_id=budget["id"])
        service.work()
        seen.append(visible(service, run))
    for one in seen:
        assert one == seen[0]


def failing_once(function, failures):
    """The function, failing at its first call as a database does that is away."""

    def wrapped(*args, **options):
        if not failures:
            failures.append(1)
            raise OperationalError("statement", {}, Exception("gone"))
        return function(*args, **options)

    return wrapped


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (execution.repository, "record_progress"),
        (lifecycle, "claim"),
        (lifecycle, "start"),
        (lifecycle, "end"),
        (execution.datasets, "load"),
    ],
)
@pytest.mark.one_in(4)
def test_a_database_that_is_away_for_a_moment_costs_no_run(service, monkeypatch, module, name):
    _, run = service.private()
    failures: list[int] = []
    monkeypatch.setattr(execution, "PROGRESS_INTERVAL_S", 0.0)
    monkeypatch.setattr(module, name, failing_once(getattr(module, name), failures))
    service.work()
    assert failures, "the fault was met"
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["state"] == "succeeded", ended
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "committed"


def answer_lost_once(function, failures):
    """The function, whose first answer is lost: it is done, and its caller is told that the database is gone."""

    def wrapped(*args, **options):
        answer = function(*args, **options)
        if not failures:
            failures.append(1)
            raise OperationalError("commit", {}, Exception("gone"))
        return answer

    return wrapped


def test_a_success_whose_answer_was_lost_keeps_its_model(service, monkeypatch):
    _, run = service.private()
    monkeypatch.setattr(lifecycle, "end", answer_lost_once(lifecycle.end, []))
    service.work()
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "succeeded"
    assert service.client.get(f"/v1/runs/{run['id']}/model").status_code == 200


def test_a_start_whose_answer_was_lost_is_gone_on_with_and_charged_once(service, monkeypatch):
    _, run = service.private()
    monkeypatch.setattr(lifecycle, "start", answer_lost_once(lifecycle.start, []))
    service.work()
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "succeeded"
    assert service.reservation_state(run) == "committed"


def test_a_worker_that_is_to_stop_does_not_wait_for_a_database_that_is_away(service):
    calls: list[int] = []
    with pytest.raises(OperationalError):
        worker.persist(failing_once(lambda: None, calls), lambda: True)


def test_a_plan_of_another_format_is_refused_and_holds_nobody_up(service):
    from accounting.canonical import sha256_hex

    _, run = service.private()
    after = service.queued(dataset_id="ds_breast_cancer")
    with service.context.database.write() as session:
        stored = session.get(Run, run["id"])
        stored.plan = b'{"v":"2"}'
        stored.plan_hash = sha256_hex(stored.plan)
    service.work()
    service.work()
    assert service.get(f"/v1/runs/{after['id']}")["state"] == "succeeded"
    refused = service.get(f"/v1/runs/{run['id']}")
    assert (refused["state"], refused["problem"]["code"]) == ("failed", "plan_hash_mismatch")
    listed = {item["id"]: item for item in service.get("/v1/runs")["items"]}
    assert listed[run["id"]]["plan"] is None
    assert "hash" in listed[run["id"]]["warnings"][0]
    assert_problem(service.client.get(f"/v1/runs/{run['id']}/report"), 500, "stored_plan_altered")


def test_a_stalled_worker_that_comes_back_releases_nothing(service, monkeypatch):
    _, run = service.private()
    summarize = worker.summarize

    def stalled(job, result, score_key, device):
        assert lifecycle.give_up_runs_of(service.context, "wrk_test") == 1
        return summarize(job, result, score_key, device)

    monkeypatch.setattr(worker, "summarize", stalled)
    service.work()
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "queued"
    assert not artifacts.model_path(service.context, service.stored(run)).exists()
    assert service.reservation_state(run) == "started"
    monkeypatch.setattr(worker, "summarize", summarize)
    service.work()
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "succeeded"
    assert service.reservation_state(run) == "committed"


def test_a_claimed_run_that_is_lost_before_its_start_is_carried_out_by_another_worker(service):
    _, run = service.private()
    assert lifecycle.claim(service.context, "wrk_gone")
    assert lifecycle.give_up_runs_of(service.context, "wrk_gone") == 1
    queued = service.get(f"/v1/runs/{run['id']}")
    assert (queued["state"], queued["started_at"]) == ("queued", None)
    assert service.reservation_state(run) == "pending"
    service.work()
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "succeeded"
    assert service.reservation_state(run) == "committed"


def test_a_run_that_costs_every_worker_its_life_before_it_starts_gives_its_hold_back(service):
    _, run = service.private()
    for _ in range(lifecycle.MAX_WORKERS_LOST):
        assert lifecycle.claim(service.context, "wrk_gone")
        assert lifecycle.give_up_runs_of(service.context, "wrk_gone") == 1
    assert lifecycle.claim(service.context, "wrk_gone") is None
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]["code"]) == ("failed", "worker_lost")
    assert service.reservation_state(run) == "voided"


def test_a_run_that_is_cancelled_before_its_start_is_not_charged(service, monkeypatch):
    _, run = service.private()
    load = worker.load_job

    def cancelled_meanwhile(context, claimed, plan):
        assert service.post(f"/v1/runs/{run['id']}/cancel").json()["state"] == "cancelling"
        return load(context, claimed, plan)

    monkeypatch.setattr(worker, "load_job", cancelled_meanwhile)
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]) == ("cancelled", None)
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"


def test_rows_that_cannot_be_read_cost_nothing(service, monkeypatch):
    _, run = service.private()

    def unreadable(*_args):
        raise OSError("no such file")

    monkeypatch.setattr(execution.datasets, "load", unreadable)
    refuse(service, run, "run_not_started")
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"


def test_the_model_answer_has_nothing_that_tells_when_it_was_written(service):
    _, run = service.private()
    service.work()
    answer = service.client.get(f"/v1/runs/{run['id']}/model?format=npz", headers={"Range": "bytes=0-1"})
    assert answer.status_code == 200
    assert not {"etag", "last-modified"} & set(answer.headers)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", [1.2345644, 1e-5, 1.2345644e-5, 0.1, 2.0 / 3.0, 123456789.0, 1e-30])
def test_a_printed_bound_is_never_below_the_bound(number):
    printed = Decimal(round_up(number))
    assert printed >= Decimal(repr(number))
    assert printed <= Decimal(repr(number)) * Decimal("1.00001")
