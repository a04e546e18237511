"""A sweep whose workers are killed: every run once, with the noise it had, and one charge for all."""

from __future__ import annotations

import pytest

from app.run_sweeps import progression
from app.runs import lifecycle
from app.settings import Settings
from tests.app.run_sweeps.conftest import BEST
from tests.app.runs.test_resumption import doomed_workers
from tests.databases import on_one_engine


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A checkpoint is due after every step."""
    return settings.model_copy(update={"checkpoint_interval_s": 1e-9})


@on_one_engine
def test_workers_are_killed_in_the_middle_of_it(service, context, draws):
    seeded = {"seed": 7, "iterations": 8}
    undisturbed = service.swept(**seeded)
    service.work_all()
    models = [service.model({"id": cell["run_id"]})["parameters"] for cell in service.sweep(undisturbed)["cells"]]
    draws.trials = 3
    with doomed_workers(context) as let_one_die:
        sweep = service.paid(**seeded)
        for place in ("after the start", "after step 7"):
            let_one_die(place)
            assert lifecycle.give_up_runs_of(context, "wrk_doomed") == 1
        service.work_all()
        best = service.paid(**BEST, iterations=8)
        let_one_die("with the model written")
        assert lifecycle.give_up_runs_of(context, "wrk_doomed") == 1
        service.work_all()
    progression.advance_all(context)
    cells = service.sweep(sweep)["cells"]
    assert [service.model({"id": cell["run_id"]})["parameters"] for cell in cells] == models
    for each in (sweep, best):
        assert service.sweep(each)["state"] == "succeeded"
        assert len(service.runs_of(each)) == 3
        assert service.kinds(each) == ["reserve", "start", "commit"]
    released = {path.name.partition(".")[0] for path in (context.settings.data_dir / "models").glob("*")}
    assert service.sweep(best)["best"]["run_id"] in released
    assert len(released & {run.id for run in service.runs_of(best)}) == 1
    assert not list((context.settings.data_dir / "checkpoints").glob("*"))
