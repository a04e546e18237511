"""One model file for each run that succeeded, wherever its workers were killed, and none for any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.runs import artifacts, failures, lifecycle, worker
from app.runs.leases import LeaseWatch, Sweeper
from app.runs.lifecycle import MAX_WORKERS_LOST
from app.tables.runs import Run
from tests.app.runs.conftest import Service
from tests.app.runs.interrupted import check_released_once, files, kinds
from tests.databases import on_one_engine

pytestmark = on_one_engine


class Killed(BaseException):
    """Ends a worker where it stands; nothing of it is carried out after that."""


def kill(*_arguments: Any) -> None:
    raise Killed


def lost_with_a_model(service: Service, patch: pytest.MonkeyPatch, workers: int = 1) -> dict[str, Any]:
    """A run whose workers were killed when they had written its model, and another model in part."""
    _, run = service.charged(seed=7)
    with patch.context() as doomed:
        doomed.setattr(lifecycle, "end", kill)
        for _ in range(workers):
            with pytest.raises(Killed):
                worker.work_once(service.context, "wrk_lost")
            draft = artifacts.model_path(service.context, service.stored(run))
            draft.with_name(f"{draft.name}.0123456789abcdef.part").write_bytes(b"a part")
            lifecycle.give_up_runs_of(service.context, "wrk_lost")
    return run


def models(service: Service) -> list[str]:
    return sorted(path.name for path in (service.context.settings.data_dir / "models").iterdir())


@pytest.fixture
def stranger(service: Service) -> Iterator[str]:
    """A model of another run, which stays where it is."""
    run = service.trained(dataset_id="ds_breast_cancer", seed=7)
    [name] = models(service)
    assert name.startswith(run["id"])
    yield name
    assert name in models(service)


def test_a_successor_leaves_its_own_model_alone(service, monkeypatch):
    run = lost_with_a_model(service, monkeypatch)
    assert len(models(service)) == 2
    service.work()
    check_released_once(service, run)
    assert len(models(service)) == 1


def test_a_worker_that_is_killed_after_the_end_leaves_it_to_the_next_sweep(service, monkeypatch):
    run = lost_with_a_model(service, monkeypatch)
    with monkeypatch.context() as doomed:
        doomed.setattr(worker, "sweep_checkpoints", kill)
        with pytest.raises(Killed):
            worker.work_once(service.context, "wrk_killed_later")
    assert len(models(service)) == 3, "the control"
    Sweeper(service.context, LeaseWatch()).sweep()
    check_released_once(service, run)
    assert len(models(service)) == 1


def test_a_run_that_cost_too_many_workers_leaves_none(service, monkeypatch, stranger):
    run = lost_with_a_model(service, monkeypatch, workers=MAX_WORKERS_LOST)
    assert len(models(service)) == 1 + 2 * MAX_WORKERS_LOST, "the control"
    Sweeper(service.context, LeaseWatch()).sweep()
    assert service.get(f"/v1/runs/{run['id']}")["problem"] == failures.WORKER_LOST
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert models(service) == [stranger]
    assert files(service) == []


def test_a_run_that_is_cancelled_between_two_workers_leaves_none(service, monkeypatch, stranger):
    run = lost_with_a_model(service, monkeypatch)
    assert service.post(f"/v1/runs/{run['id']}/cancel").json()["state"] == "cancelled"
    assert models(service) == [stranger]


def test_a_model_that_finds_no_room_costs_the_run_and_its_charge(service, monkeypatch):
    def full(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifacts, "write_private", full)
    _, run = service.charged()
    service.work()
    ended: Run = service.stored(run)
    assert (ended.state, ended.problem) == ("failed", failures.FAILED)
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert files(service) == []
