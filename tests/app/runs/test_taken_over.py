"""What a worker may still do whose run was taken over, and what a wrong clock does to runs: nothing that counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.context import Context
from app.fence.watching import fenced_context
from app.runs import artifacts, failures, lifecycle, repository, worker
from app.runs.failures import RefusedError
from app.runs.leases import LOOKS_PER_LEASE, LeaseWatch, Sweeper
from app.runs.settling import Ending
from app.tables.runs import Run
from app.tables.states import RunState
from tests.app.runs.conftest import Service
from tests.app.runs.silence import Monotonic, claim, silence, start

TEN_YEARS = timedelta(days=3652)


def writes_of(service: Service, claimed: Run) -> dict[str, Any]:
    """What each write of this claim is answered."""
    context = service.context
    answers: dict[str, Any] = {}
    try:
        start(context, claimed)
    except RefusedError as refused:
        answers["start"] = refused.problem
    with context.database.write() as session:
        answers["progress"] = repository.record_progress(session, claimed, 7)
    with context.database.write() as session:
        answers["heartbeat"] = repository.raise_heartbeat(session, claimed)
    for state in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED):
        answers[state] = lifecycle.end(context, claimed, Ending(state, result={"stolen": True}))
    return answers


REFUSED = {
    "start": failures.WORKER_LOST,
    "progress": None,
    "heartbeat": False,
    RunState.SUCCEEDED: False,
    RunState.FAILED: False,
    RunState.CANCELLED: False,
}


@pytest.mark.parametrize("successor", [None, "wrk_other", "wrk_silent"])
def test_every_write_of_a_claim_that_was_taken_over_is_refused(service, successor):
    _, run = service.charged()
    lost = claim(service.context)
    silence(service.context)
    if successor is not None:
        assert claim(service.context, successor).epoch == lost.epoch + 1 == 2
    before = vars(service.stored(run))
    assert writes_of(service, lost) == REFUSED
    after = vars(service.stored(run))
    assert {**before, "_sa_instance_state": None} == {**after, "_sa_instance_state": None}
    assert service.reservation_state(run) == "pending"


def test_a_successor_starts_and_ends_whatever_the_old_worker_does_between(service):
    budget, run = service.charged()
    lost = claim(service.context)
    silence(service.context)
    successor = claim(service.context, "wrk_other")
    writes_of(service, lost)
    start(service.context, successor)
    writes_of(service, lost)
    assert service.reservation_state(run) == "started"
    assert lifecycle.end(service.context, successor, Ending(RunState.SUCCEEDED, result={"parameters": {}}))
    assert writes_of(service, lost) == REFUSED
    assert service.stored(run).result == {"parameters": {}}
    kinds = [entry["kind"] for entry in service.get(f"/v1/budgets/{budget['id']}/entries")["items"]]
    assert kinds == ["create", "reserve", "start", "commit"]


def test_a_model_that_the_old_worker_writes_is_another_file_than_its_successors(service, monkeypatch):
    run = service.queued(dataset_id="ds_breast_cancer")
    monkeypatch.setattr(lifecycle, "start", lambda *_args, **_named: None)  # the worst: both train
    claimed_by_both: list[Run] = []
    write_model = artifacts.write_model

    def stalled(context, row, data, result):
        write_model(context, row, data, result)
        claimed_by_both.append(row)
        if row.epoch == 1:
            silence(service.context)
            assert worker.work_once(service.context, "wrk_other")
            write_model(context, row, data, result)

    monkeypatch.setattr(artifacts, "write_model", stalled)
    service.work()
    first, second = claimed_by_both
    assert (first.epoch, second.epoch) == (1, 2)
    assert not artifacts.model_path(service.context, first).exists()
    released = artifacts.read_parameters(service.context, service.stored(run))
    shown = service.get(f"/v1/runs/{run['id']}/model")["parameters"]
    assert {name: array.tolist() for name, array in released.items()} == shown


def test_the_model_of_a_run_from_before_there_were_epochs_is_still_there(service):
    _, run = service.charged()
    service.work()
    row = service.stored(run)
    with service.context.database.write() as session:
        session.get_one(Run, run["id"]).epoch = 0
    assert service.client.get(f"/v1/runs/{run['id']}").json()["state"] == "succeeded"
    old = service.context.settings.data_dir / "models" / f"{run['id']}.npz"
    artifacts.model_path(service.context, row).rename(old)
    assert service.client.get(f"/v1/runs/{run['id']}/model").status_code == 200


def at(context: Context, offset: timedelta) -> Context:
    """The context of a host whose clock is wrong by ``offset``."""
    return fenced_context(context.settings, context.database, lambda: context.clock() + offset)


@pytest.mark.parametrize("offset", [TEN_YEARS, -TEN_YEARS], ids=["ahead", "behind"])
def test_a_wrong_clock_neither_resolves_nor_frees_what_was_started(service, offset):
    budget, run = service.charged()
    claimed = claim(service.context)
    start(service.context, claimed)
    wrong = at(service.context, offset)
    assert Sweeper(wrong, LeaseWatch(clock=Monotonic())).sweep() == set()
    assert service.stored(run).state == "running"
    assert service.reservation_state(run) == "started"
    assert lifecycle.end(at(service.context, -offset), claimed, Ending(RunState.FAILED, failures.FAILED))
    assert service.reservation_state(run) == "committed"
    assert (
        service.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"] == service.get(f"/v1/runs/{run['id']}")["charge"]
    )


@pytest.mark.parametrize("offset", [TEN_YEARS, -TEN_YEARS], ids=["ahead", "behind"])
def test_a_wrong_clock_takes_a_lapsed_run_over_like_a_right_one(service, offset):
    _, run = service.charged()
    claim(at(service.context, -offset))
    assert silence(at(service.context, offset)) == [set()] * LOOKS_PER_LEASE + [{"wrk_silent"}]
    assert service.reservation_state(run) == "pending", "no clock released the hold"
    service.work()
    assert service.stored(run).state == "succeeded"
    assert service.reservation_state(run) == "committed"


def test_a_worker_whose_clock_is_ahead_costs_the_hold_of_a_run_that_was_not_started_and_nothing_else(service):
    budget, run = service.charged()
    assert worker.work_once(at(service.context, TEN_YEARS), "wrk_ahead")
    assert service.stored(run).problem == failures.HOLD_LOST
    kinds = [entry["kind"] for entry in service.get(f"/v1/budgets/{budget['id']}/entries")["items"]]
    assert "commit" not in kinds
    assert "start" not in kinds
