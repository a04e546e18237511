"""The engine as requests ask it: what is answered depends on the question, and never on how fast the machine is."""

from __future__ import annotations

import itertools

import pytest

from accounting.events import Event, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from app.kit.context import Context
from app.privacy import evaluation
from app.privacy.evaluation import Evaluation
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
