"""What becomes of a run is the same wherever its steps are taken: every test here runs on both executors."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from app.runs import execution, failures, lifecycle, worker
from app.runs.evaluating import held_out_body
from app.runs.executors import dask, local
from tests.app.runs.conftest import HEADER, ROWS
from tests.app.runs.executors.clusters import TIMEOUT_S, until
from tests.app.runs.executors.conftest import SCORE_KEY, SEED
from tests.app.runs.executors.sabotage import exploding
from tests.app.runs.interrupted import check_released_once, files, kinds, stopping_after, undisturbed
from tests.app.runs.test_evaluating import ids_in


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step each, so that a run of few steps is many of them."""
    monkeypatch.setattr(dask, "SHORTEST_SLICE_S", 0.0)
    monkeypatch.setattr(dask, "LONGEST_SLICE_S", 0.0)


@pytest.mark.parametrize("executor", ["local", "dask"], indirect=True)
def test_a_private_run_is_reserved_started_executed_and_committed(service):
    budget, run = service.private()
    service.work()
    done = service.get(f"/v1/runs/{run['id']}")
    assert done["state"] == "succeeded", done
    assert done["progress"] == {"done": 20, "total": 20, "unit": "steps"}
    assert done["result"]["metrics"] == [], "private rows are never scored"
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert service.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"] == done["charge"]
    assert np.shape(service.model(run)["parameters"]["weights"]) == (4,)
    assert files(service) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sampling": "poisson", "batch_size": 32, "model": {"kind": "mlp", "hidden": [8]}},
    ],
)
@pytest.mark.one_in(2)
def test_executors_agree(service, short_slices, changes):
    """The same model to the last bit as `trainer.run` gives at one go."""
    run = service.queued(dataset_id="ds_breast_cancer", seed=7, **changes)
    row = service.stored(run)
    job = execution.load_job(service.context, row, lifecycle.read_plan(row))
    capacity = job.training.capacity
    expected = local.run(job.plan, job.model, *job.scaled_rows(), seed=7, capacity=capacity).parameters
    service.work()
    assert service.model(run)["parameters"] == {name: array.tolist() for name, array in expected.items()}


def test_an_evaluation_is_the_same_wherever_the_steps_are_taken(service, short_slices, known_keys):
    """The model is that of `trainer.run` to the last bit, and the vector is the one of the run's key."""
    run = service.queued(**ids_in(service), evaluation={})
    row = service.stored(run)
    job = execution.load_job(service.context, row, lifecycle.read_plan(row))
    capacity = job.training.capacity
    expected = local.run(job.plan, job.model, *job.scaled_rows(), seed=SEED, capacity=capacity).parameters
    service.work()
    assert service.model(run)["parameters"] == {name: array.tolist() for name, array in expected.items()}
    shown = service.get(f"/v1/runs/{run['id']}")["result"]["held_out"]
    assert shown == held_out_body(job, expected, SCORE_KEY).model_dump(mode="json")
    check_released_once(service, run)


def test_a_run_that_is_stopped_is_gone_on_with_to_the_same_model(service, short_slices):
    _, run = service.charged(seed=7)
    for stops in range(1, 3):
        assert worker.work_once(service.context, "wrk_first", stopping_after(6), service.executor)
        left = service.stored(run)
        assert (left.state, left.workers_lost, left.epoch) == ("queued", 0, stops)
    service.work()
    assert service.model(run)["parameters"] == undisturbed(service)
    check_released_once(service, run)


def test_a_running_run_that_is_cancelled_is_charged_in_full_at_once(service, monkeypatch):
    monkeypatch.setattr(execution, "PROGRESS_INTERVAL_S", 0.1)
    _, run = service.private(iterations=10**8)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(service.work)
        until(lambda: service.get(f"/v1/runs/{run['id']}")["progress"]["done"] > 0)
        assert service.post(f"/v1/runs/{run['id']}/cancel").json()["state"] == "cancelling"
        working.result(TIMEOUT_S)
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "cancelled"
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert files(service) == []


def test_a_run_that_was_taken_away_is_given_up(service, monkeypatch):
    monkeypatch.setattr(execution, "PROGRESS_INTERVAL_S", 0.1)
    _, run = service.charged(iterations=10**8)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(service.work)
        until(lambda: service.get(f"/v1/runs/{run['id']}")["progress"]["done"] > 0)
        assert lifecycle.give_up_runs_of(service.context, "wrk_test") == 1
        working.result(TIMEOUT_S)
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "queued"
    assert service.reservation_state(run) == "started"
    service.post(f"/v1/runs/{run['id']}/cancel")


def test_an_exception_in_training_fails_with_a_constant_text_and_the_charge(service, monkeypatch, capfd, request):
    _, run = service.private()
    with exploding(service.executor, "the secret value 8675309 of a row"):
        service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["problem"] == failures.FAILED
    assert service.reservation_state(run) == "committed"
    printed = "".join(capfd.readouterr())
    assert "sabotage.py" in printed, "where it came from is told"
    if service.executor is not local.LOCAL:
        printed += request.getfixturevalue("processes").printed
    assert "8675309" not in printed


def test_nothing_an_analyst_sees_changes_with_the_rows(service):
    seen = []
    for rows in (ROWS, HEADER + "1e9,-1e9,green,yes\n", HEADER):
        budget = service.budget()
        run = service.queued(
            dataset_id=service.dataset(rows, budget_id=budget["id"])["id"],
            budget_id=budget["id"],
            model={"kind": "mlp"},
        )
        service.work()
        body = service.get(f"/v1/runs/{run['id']}")
        report = service.report(run)
        report["ledger"]["entries"] = [(entry["kind"], entry["sequence"]) for entry in report["ledger"]["entries"]]
        report["ledger"]["proof"] = sorted(report["ledger"]["proof"])
        hidden = {"created_at", "started_at", "finished_at", "release_at"}
        text = json.dumps([{k: v for k, v in part.items() if k not in hidden} for part in (body, report)])
        for name in ("id", "dataset_id", "budget_id", "reservation_id"):
            text = text.replace(run[name], name)
        seen.append(text)
    assert seen[0] == seen[1] == seen[2]


def test_slots_share_an_executor(service):
    """Several runs at once, in threads of one worker."""
    runs = [service.queued(dataset_id="ds_breast_cancer", seed=7) for _ in range(4)]
    slots = 2
    at_once = threading.Barrier(slots)

    def work() -> None:
        at_once.wait(TIMEOUT_S)
        while worker.work_once(service.context, "wrk_test", executor=service.executor):
            pass

    with ThreadPoolExecutor(slots) as pool:
        for each in [pool.submit(work) for _ in range(slots)]:
            each.result(TIMEOUT_S)
    models = [service.model(run)["parameters"] for run in runs]
    assert all(model == models[0] for model in models)
    assert [service.stored(run).epoch for run in runs] == [1] * 4
