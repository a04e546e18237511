"""The engine as requests ask it: what is answered depends on the question, and never on how fast the machine is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from accounting.events import Event, Gaussian, Poisson, Sampling, ShuffledEpochs
from accounting.relations import NeighboringRelation
from app import evaluation
from app.context import Context
from app.evaluation import Evaluation
from app.kit.process_pool import ProcessPool
from tests.databases import on_one_engine

EVENTS = (Event(Gaussian(1.0), Poisson(0.01), 100),)
DELTAS = [1e-4 / k for k in range(1, 8)]


@on_one_engine
def test_a_slow_machine_answers_the_same_digits(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> list[object]:
        found = Evaluation(context, EVENTS, NeighboringRelation.ADD_OR_REMOVE_ONE, 1000.0).epsilons(DELTAS, "delta")
        return [each.value for each in found]

    fast = answers()
    clock = itertools.count(0.0, 0.8)
    monkeypatch.setattr(evaluation.time, "monotonic", lambda: next(clock))
    assert answers() == fast


@on_one_engine
@pytest.mark.parametrize(
    ("sampling", "jobs"),
    [
        (Poisson(0.01), ["epsilons_for_deltas"]),
        (ShuffledEpochs(10), ["epsilons_for_deltas", "schedule_warnings"]),
    ],
)
def test_only_warnings_with_numbers_wait_for_a_process(
    context: Context, monkeypatch: pytest.MonkeyPatch, sampling: Sampling, jobs: list[str]
) -> None:
    asked: list[str] = []
    run_within = ProcessPool.run_within

    def told(pool: ProcessPool, seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        _, job = args
        asked.append(job.func.__name__)
        return run_within(pool, seconds, function, *args, **kwargs)

    monkeypatch.setattr(ProcessPool, "run_within", told)
    events = (Event(Gaussian(2.0), sampling, 10),)
    found = Evaluation(context, events, NeighboringRelation.REPLACE_SPECIAL, 1000.0)
    found.epsilons([1e-5], "delta")
    assert bool(found.warnings("delta", 1e-5)) == (len(jobs) > 1)
    assert asked == jobs
