"""What correlated noise costs: measured in turns, and judged by its goals."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from benchmarks import report
from benchmarks.trainer import correlated


@pytest.fixture
def measured() -> dict[str, Any]:
    return report.read("correlated")


def test_noise_is_measured_on_both_sides() -> None:
    found = correlated.noise(7850, 2)
    assert (found["dimension"], found["ratio"]["rounds"]) == (7850, 2)
    assert all(found[f"microseconds_{side}"] > 0.0 for side in ("independent", "correlated"))
    assert len(correlated.correlated_phase().coefficients) == correlated.BANDS


def test_goals_are_missed_where_a_figure_misses_them(measured: dict[str, Any]) -> None:
    assert measured["goals"] == correlated.goals(measured)
    assert not measured["quick"]
    spoilt = copy.deepcopy(measured)
    for row in spoilt["noise"]:
        row["ratio"]["ratio"] = math.nextafter(correlated.LARGEST_RATIOS[row["dimension"]], 9.0)
    assert [goal["met"] for goal in correlated.goals(spoilt)] == [False] * 2


def test_the_page_tells_every_goal(measured: dict[str, Any]) -> None:
    text = "\n".join(correlated.correlated_section(measured))
    assert all(goal["measured"] in text for goal in measured["goals"])
