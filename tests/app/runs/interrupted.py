"""Runs that are interrupted, and what is left of them: for the tests of runs that go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.runs import worker
from app.runs.checkpoint_files import CheckpointFiles
from tests.app.runs.conftest import Service

STEPS = 20


def stopping_after(steps: int) -> Callable[[], bool]:
    """What tells a worker to stop when it has done so many steps."""
    asked = itertools.count(1)
    return lambda: next(asked) >= steps


def left_after(service: Service, steps: int, **changes: Any) -> dict[str, Any]:
    """A run that was started and is queued again, with a checkpoint."""
    _, run = service.charged(seed=7, **changes)
    assert worker.work_once(service.context, "wrk_first", stopping_after(steps), service.executor)
    assert service.stored(run).state == "queued"
    assert service.reservation_state(run) == "started"
    return run


def undisturbed(service: Service) -> Any:
    run = service.queued(dataset_id="ds_breast_cancer", seed=7)
    service.work()
    return service.model(run)["parameters"]


def folder(service: Service) -> Path:
    return CheckpointFiles(service.context).folder


def files(service: Service) -> list[Path]:
    return sorted(folder(service).iterdir())


def kinds(service: Service, run: dict[str, Any]) -> list[str]:
    """The entries about a run's charge."""
    entries = service.get(f"/v1/budgets/{run['budget_id']}/entries")["items"]
    return [entry["kind"] for entry in entries][1:]


def check_released_once(service: Service, run: dict[str, Any]) -> None:
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["progress"]["done"]) == ("succeeded", STEPS)
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert service.get(f"/v1/budgets/{run['budget_id']}")["amounts"]["spent"] == ended["charge"]
    assert files(service) == []
    row = service.stored(run)
    models = [path.name for path in (service.context.settings.data_dir / "models").glob(f"{run['id']}.*")]
    assert models == [f"{run['id']}.{row.epoch}.npz"]


def first_file(service: Service) -> Path:
    [path] = files(service)
    return path
