"""What correlated noise gives in few epochs: the sides differ in their noise alone, and are judged by their goals."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import report
from benchmarks.trainer import few_epochs
from calibrators.plan import CorrelatedSteps

SIDES = few_epochs.SIDES


@pytest.fixture
def measured() -> dict[str, Any]:
    return report.read("few_epochs")


def test_all_sides_have_the_same_batches_and_target() -> None:
    training = few_epochs.TRAININGS[0]
    rows = training.data()
    size = len(rows[1])
    for side in SIDES:
        [phase] = few_epochs.plan_for(training, size, 8.0, side, 1.0).phases
        assert (phase.batch_size, phase.steps) == (training.batch_size, training.epochs * size // training.batch_size)
        bands = len(phase.coefficients) if isinstance(phase, CorrelatedSteps) else 1
        assert (bands == 1) == (side.bands == 1)
        assert getattr(phase, "momentum", 0.0) == side.momentum
    quick = replace(training, step_sizes=(0.125, 1.0), tuning_seeds=1, epochs=2)
    found = few_epochs.accuracy(quick, rows, 8.0, SIDES[0], 2)
    assert found["step_size"] == 1.0
    assert found["accuracy"] > 0.8
    assert {row["step_size"] for row in found["tried"]} == {0.125, 1.0}


def test_figures_are_of_other_seeds_than_step_sizes() -> None:
    assert few_epochs.FIRST_TUNING_SEED >= few_epochs.SEEDS


def test_goals_are_missed_where_a_figure_misses_them(measured: dict[str, Any]) -> None:
    assert measured["goals"] == few_epochs.goals(measured)
    assert not measured["quick"]
    assert [(each["rows"], each["features"]) for each in measured["trainings"]] == [(1437, 64), (60_000, 784)]
    assert {(each["seeds"]) for each in measured["trainings"]} == {5}
    spoilt = copy.deepcopy(measured)
    for row in (row for each in spoilt["trainings"] for row in each["accuracy"]):
        row["accuracy"] -= 0.1 * (row["bands"] > 1)
    assert [goal["met"] for goal in few_epochs.goals(spoilt)] == [False] * 4


def test_independent_noise_with_momentum_is_no_correlated_noise(measured: dict[str, Any]) -> None:
    rows = copy.deepcopy(measured["trainings"][0]["accuracy"])
    for row in rows:
        row["accuracy"] += 0.5 * (row["bands"] == 1 and row["algorithm"] == "dp_bandmf")
    assert few_epochs.best(rows, 8.0, "dp_bandmf")["bands"] > 1


def test_the_page_tells_every_goal_and_all_sides(measured: dict[str, Any]) -> None:
    text = "\n".join(few_epochs.few_epochs_section(measured))
    assert all(goal["measured"] in text for goal in measured["goals"])
    assert text.count("| `dp_sgd` |") == 2 * 2
    assert text.count("| `dp_bandmf` |") == 2 * 2 * 3
