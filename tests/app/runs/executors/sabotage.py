"""Trainings that fail, or take their time, where they are carried out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.runs.executors import local, slices
from app.runs.executors.dask import DaskExecutor
from app.runs.executors.interface import Executor
from trainer import run as trainer


@contextmanager
def exploding(executor: Executor, message: str) -> Iterator[None]:
    """Within it, each training raises an exception with this message."""
    if isinstance(executor, DaskExecutor):
        with _on_machines(executor, explode_with=message):
            yield
        return
    _replace(local, explode_with=message)
    try:
        yield
    finally:
        _replace(local)


@contextmanager
def slow(executor: DaskExecutor, step_s: float = 0.05) -> Iterator[None]:
    """Within it, the machines that there are take their time for each step."""
    with _on_machines(executor, step_s=step_s):
        yield


@contextmanager
def _on_machines(executor: DaskExecutor, **how: Any) -> Iterator[None]:
    assert executor.is_ready()
    executor._cluster._client.run(_replace, slices, **how)
    try:
        yield
    finally:
        if executor.is_ready():
            executor._cluster._client.run(_replace, slices)


def _replace(module: Any, explode_with: str | None = None, step_s: float = 0.0) -> None:
    """Where the module says `run`, it means this from now on."""

    def run(*arguments: Any, on_progress: Any, **options: Any) -> Any:
        if explode_with is not None:
            raise ValueError(explode_with)

        def slowed(done: int, total: int) -> None:
            time.sleep(step_s)
            on_progress(done, total)

        return trainer.run(*arguments, on_progress=slowed, **options)

    module.run = trainer.run if explode_with is None and step_s == 0.0 else run
