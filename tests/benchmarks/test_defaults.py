"""From what was measured of defaults to goals and the part of docs/measured.md about them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.defaults.goals import goals, mean_and_error
from benchmarks.defaults.markdown import defaults_section
from benchmarks.defaults.preset import preset_plan
from benchmarks.defaults.protocol import GRID, HELD_BACK, LARGEST_BATCH, TUNED_ON
from benchmarks.defaults.trials import plan_of, score


def measured(preset: list[float], grid: list[float]) -> dict[str, Any]:
    setting = {"algorithm": "dp_sgd", "iterations": 50}
    return {
        "command": "make bench-defaults",
        "date": "2026-01-01",
        "commit": "0123456789abcdef",
        "uncommitted_changes": False,
        "versions": {},
        "sets": {
            "digits": {
                "records": 1000,
                "features": 64,
                "model": "softmax_regression",
                "held_back": True,
                "without_privacy": 0.97,
                "preset": {"1": {"scores": preset}, "3": {"scores": [0.9, 0.9]}},
                "grid": {
                    "1": {"setting": setting, "scores": grid},
                    "3": {"setting": setting, "scores": [0.9, 0.9]},
                },
            }
        },
    }


@pytest.mark.parametrize(("preset", "met"), [([0.88, 0.89], True), ([0.87, 0.88], False)])
def test_the_worst_epsilon_decides_and_a_miss_is_told(preset: list[float], met: bool) -> None:
    found = measured(preset, [0.9, 0.9])
    found["goals"] = goals(found)
    assert [goal["met"] for goal in found["goals"]] == [met]
    assert "at epsilon 1" in found["goals"][0]["measured"]
    assert any("**missed**" in line for line in defaults_section(found)) != met
    assert any("digits, held back" in line for line in defaults_section(found))


def test_errors_are_standard_errors_of_the_mean() -> None:
    assert mean_and_error([1.0, 3.0]) == (2.0, pytest.approx(1.0))


def test_the_protocol_has_fifty_settings_and_holds_a_set_back() -> None:
    assert len(set(GRID)) == 50
    assert len(TUNED_ON) == 7
    assert len(HELD_BACK) == 1
    assert not TUNED_ON.keys() & HELD_BACK.keys()


def test_a_plan_is_carried_out_on_rows_and_scored_on_others() -> None:
    split = TUNED_ON["breast_cancer"]()
    for plan in (plan_of(GRID[-1], len(split.labels), 8.0), preset_plan(split, 8.0)[0]):
        assert plan.phases[0].batch_size <= min(len(split.labels), LARGEST_BATCH)
        assert score(split, plan, 5) > 0.9
