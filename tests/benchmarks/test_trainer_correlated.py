"""What correlated noise costs and gives: measured in turns, and judged by its goals."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from benchmarks import report
from benchmarks.papers.yang_digits import data
from benchmarks.trainer import correlated
from calibrators.plan import CorrelatedSteps


@pytest.fixture
def measured() -> dict[str, Any]:
    return report.read("correlated")


def test_noise_is_measured_on_both_sides() -> None:
    found = correlated.noise(7850, 2)
    assert (found["dimension"], found["ratio"]["rounds"]) == (7850, 2)
    assert all(found[f"microseconds_{side}"] > 0.0 for side in ("independent", "correlated"))
    assert len(correlated.correlated_phase().coefficients) == correlated.BANDS


def test_both_sides_have_the_same_batches_and_target() -> None:
    rows = data()
    found = correlated.accuracies(rows, [1.0], 2)
    assert [(row["epsilon"], row["algorithm"], row["momentum"]) for row in found] == [
        (epsilon, *side) for epsilon in correlated.EPSILONS for side in correlated.SIDES
    ]
    assert all(row["accuracy"] > 0.5 for row in found)
    for algorithm, momentum in correlated.SIDES:
        plan = correlated.plan_for(len(rows[1]), 8.0, algorithm, 1.0, momentum)
        [phase] = plan.phases
        assert isinstance(phase, CorrelatedSteps) == (algorithm == "dp_bandmf")
        assert (phase.batch_size, plan.iterations) == (
            correlated.BATCH,
            correlated.EPOCHS * len(rows[1]) // correlated.BATCH,
        )


def test_goals_are_missed_where_a_figure_misses_them(measured: dict[str, Any]) -> None:
    assert measured["goals"] == correlated.goals(measured)
    assert not measured["quick"]
    spoilt = copy.deepcopy(measured)
    for row in spoilt["noise"]:
        row["ratio"]["ratio"] = math.nextafter(correlated.LARGEST_RATIOS[row["dimension"]], 9.0)
    for row in spoilt["accuracy"]:
        row["accuracy"] -= 0.1 * (row["algorithm"] == "dp_bandmf")
    assert [goal["met"] for goal in correlated.goals(spoilt)] == [False] * 4


def test_the_page_tells_every_goal_and_the_best_of_each_side(measured: dict[str, Any]) -> None:
    text = "\n".join(correlated.correlated_section(measured))
    assert all(goal["measured"] in text for goal in measured["goals"])
    assert text.count("| `dp_sgd` |") == 2
    assert text.count("| `dp_bandmf` |") == 4
