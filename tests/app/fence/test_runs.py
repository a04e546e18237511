"""Runs and a restored backup: none of them is carried out a second time."""

from __future__ import annotations

import pytest

from app.context import Context
from app.db.database import Database
from app.ledger import transparency
from app.runs import loss as losses
from app.runs import worker
from tests.app.budgets.conftest import audit_all
from tests.app.problem_assertions import assert_problem
from tests.app.run_sweeps.conftest import BEST, draws
from tests.app.run_sweeps.conftest import service as sweeping
from tests.app.runs.conftest import Service, service
from tests.databases import DatabaseFactory

__all__ = ["draws", "service", "sweeping"]


pytestmark = pytest.mark.usefixtures("compared_each_time")


def restore(context: Context, backup: str) -> None:
    """Put a copy of the database in the place of the one that a server uses."""
    context.database.engine.dispose()
    context.database.engine = Database(backup).engine


def test_a_run_that_a_backup_shows_as_queued_is_not_carried_out_again(
    service: Service, context: Context, databases: DatabaseFactory
) -> None:
    budget, run = service.charged()
    context.database.engine.dispose()
    backup = databases.copy_of(context.database.url)
    service.work()
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "succeeded"
    restore(context, backup)
    assert not worker.work_once(context, "wrk_test"), "nothing is claimed"
    assert_problem(service.client.get(f"/v1/runs/{run['id']}"), 503, "database_behind_fence")
    done = losses.acknowledge(context, "the disk failed")
    assert (done.runs, done.started, done.charged) == (1, 1, 1)
    assert not worker.work_once(context, "wrk_test")
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]["code"]) == ("failed", "database_restored")
    assert service.reservation_state(run) == "committed"
    entries = service.get(f"/v1/budgets/{budget['id']}/entries")["items"]
    assert [entry["kind"] for entry in entries] == ["create", "reserve", "start", "commit", "loss"]
    audit_all(context)
    assert transparency.verified(context).valid


def test_a_run_that_was_not_started_in_a_budget_that_lost_nothing_is_released(
    service: Service, context: Context, databases: DatabaseFactory
) -> None:
    _, run = service.charged()
    other = service.budget()
    context.database.engine.dispose()
    backup = databases.copy_of(context.database.url)
    reserve = {"events": [{"mechanism": {"kind": "zcdp", "rho": 1e-3}}], "purpose": "p"}
    assert service.post(f"/v1/budgets/{other['id']}/reservations", reserve).status_code == 201
    restore(context, backup)
    done = losses.acknowledge(context, "the disk failed")
    assert (done.runs, done.started, done.charged) == (1, 0, 0)
    assert service.reservation_state(run) == "voided"
    audit_all(context)


def test_a_trial_of_a_sweep_that_was_started_after_the_backup_is_missed(
    sweeping, context: Context, databases: DatabaseFactory, draws
) -> None:
    """A sweep's trials are started under one entry: the fence knows each one's stream."""
    draws.trials = 3
    budget = sweeping.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    sweep = sweeping.swept(budget_id=budget["id"], **BEST)
    assert worker.work_once(context, "wrk_test")
    context.database.engine.dispose()
    backup = databases.copy_of(context.database.url)
    assert worker.work_once(context, "wrk_test")
    entries = sweeping.get(f"/v1/budgets/{budget['id']}/entries")["items"]
    assert [entry["kind"] for entry in entries] == ["create", "reserve", "start"], "no entry tells of a trial"
    restore(context, backup)
    assert not worker.work_once(context, "wrk_test")
    done = losses.acknowledge(context, "the disk failed")
    assert (done.loss.entries, done.charged) == (1, 1)
    assert sweeping.get(f"/v1/run-sweeps/{sweep['id']}")["state"] == "failed"
    assert not worker.work_once(context, "wrk_test")
    audit_all(context)
