"""A sweep whose workers are killed: every run once, with the noise it had, and one charge for all."""

from __future__ import annotations

import pytest

from app.runs import execution, lifecycle, worker
from app.runs import sweep_progression as progression
from app.settings import Settings
from app.tables.runs import Run
from tests.app.run_sweeps.conftest import BEST
from tests.app.runs.test_resumption import doomed_workers
from tests.databases import on_one_engine


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A checkpoint is due after every step."""
    return settings.model_copy(update={"checkpoint_interval_s": 1e-9})


@pytest.mark.thorough  # tests/crash/test_run_crash.py kills workers in `make test`
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


def one_noisy_trial(service, draws):
    draws.trials = 1
    return service.paid(**BEST | {"score": {"kind": "noisy", "noise_multiplier": 50.0}}, iterations=8)


@pytest.mark.thorough  # tests/app/run_sweeps/test_best.py has the shorter ones
@on_one_engine
def test_a_score_is_released_once_whoever_releases_it(service, context, draws, monkeypatch):
    keys = []
    scored = execution.noisy_score

    def seen(job, parameters, noise_multiplier, key, capacity):
        keys.append((key, scored(job, parameters, noise_multiplier, key, capacity)))
        return keys[-1][1]

    monkeypatch.setattr(execution, "noisy_score", seen)
    with doomed_workers(context) as let_one_die:
        sweep = one_noisy_trial(service, draws)
        let_one_die("with the model written")
        [kept] = (context.settings.data_dir / "checkpoints").glob("*.score")
        sealed = kept.read_bytes()
        assert lifecycle.give_up_runs_of(context, "wrk_doomed") == 1
        service.work_all()
    # The doomed worker was another process, which had scored the model when it died: its key is what it read.
    assert [key for key, _ in keys] == [int.from_bytes(sealed[32:])]
    progression.advance_all(context)
    assert service.sweep(sweep)["best"]["noisy_score"] == keys[0][1]
    assert not list((context.settings.data_dir / "checkpoints").glob("*"))


@pytest.mark.thorough
@pytest.mark.one_in(3)
@on_one_engine
@pytest.mark.parametrize("fault", ["gone", "damaged"])
def test_a_trial_without_the_key_of_its_score_fails_with_its_charge(service, context, draws, fault):
    with doomed_workers(context) as let_one_die:
        sweep = one_noisy_trial(service, draws)
        let_one_die("after the start")
    assert lifecycle.give_up_runs_of(context, "wrk_doomed") == 1
    [kept] = (context.settings.data_dir / "checkpoints").glob("*.score")
    if fault == "gone":
        kept.unlink()
    else:
        kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    [run] = service.runs_of(sweep)
    assert worker.work_once(context, "wrk_test")
    with context.database.read() as session:
        run = session.get(Run, run.id)
    # The sweep forgets the sentence of a trial that it does not release; its end is the charge.
    assert run.state == "failed"
    assert run.result is None
    progression.advance_all(context)
    assert service.sweep(sweep)["state"] == "failed"
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
