"""One backup that is restored three times: three models, and no two scores with the same noise."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.runs import artifacts, lifecycle, worker
from app.runs.execution import load_job
from app.runs.scoring import contribution
from tests.app.run_sweeps.conftest import BEST
from tests.databases import DatabaseFactory

MULTIPLIER = 50.0


def noise_of_the_first_trial(service, context: Context, run_id: str) -> float:
    """What was added to the exact sum, in units of the multiplier; whoever has no rows does not know it."""
    with context.database.read() as session:
        run = session.get(type(service.stored({"id": run_id})), run_id)
    job = load_job(context, run, lifecycle.read_plan(run))
    features, labels = job.scaled_rows()
    point = artifacts.read_parameters(context, run)
    exact = sum(contribution(job.model, point, row, label) for row, label in zip(features, labels, strict=True))
    return (run.result["noisy_score"] * job.training.declared_size - exact) / MULTIPLIER


def test_three_restores_have_three_noises(service, context, draws, databases: DatabaseFactory, tmp_path) -> None:
    # A backup that nobody can tell from the service: database and data folder together.
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    asked = BEST | {"score": {"kind": "noisy", "noise_multiplier": MULTIPLIER}}
    sweep = service.swept(budget_id=budget["id"], **asked)
    [run] = service.runs_of(sweep)
    context.database.dispose()
    noises = []
    for number in range(3):
        url = databases.copy_of(context.settings.database_url)
        folder = tmp_path / f"restored {number}"
        shutil.copytree(context.settings.data_dir, folder)
        database = Database(url)
        restored = fenced_context(
            context.settings.model_copy(update={"data_dir": folder, "database_url": url}), database
        )
        again = type(service)(service.client, restored)
        # One trial, and not the sweep's end, which forgets the scores of the others.
        draws.trials = 3
        assert worker.work_once(restored, "wrk_test")
        noises.append(noise_of_the_first_trial(again, restored, run.id))
        database.dispose()
    assert noises[0] != pytest.approx(noises[1], abs=1e-6)
    assert noises[0] != pytest.approx(noises[2], abs=1e-6)
    assert noises[1] != pytest.approx(noises[2], abs=1e-6)
    assert np.all(np.abs(noises) < 7)
