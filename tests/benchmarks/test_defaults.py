"""From what was measured of defaults to goals and the part of docs/measured.md about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from benchmarks.defaults import kept
from benchmarks.defaults.goals import goals, mean_and_error
from benchmarks.defaults.markdown import defaults_section
from benchmarks.defaults.opacus_side import EXAMPLE, OPACUS_GRID, _least_noise
from benchmarks.defaults.preset import preset_plan, without_privacy
from benchmarks.defaults.protocol import DELTA, GRID, HELD_BACK, LARGEST_BATCH, SETS, TUNED_ON, Split
from benchmarks.defaults.trials import plan_of, score
from calibrators.plan import Plan


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
                "finalists": 5,
                "date": "2026-01-01",
                "commit": "0123456789abcdef",
                "versions": {"numpy": "2.4.6"},
                "without_privacy": 0.97,
                "preset": {"1": {"scores": preset}, "3": {"scores": [0.9, 0.9]}, "8": {"scores": [0.9, 0.9]}},
                "grid": {
                    "1": {"setting": setting, "scores": grid},
                    "3": {"setting": setting, "scores": [0.9, 0.9]},
                    "8": {"setting": setting, "scores": [0.9, 0.9]},
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


def test_a_grid_that_was_not_measured_meets_no_goal_and_is_told() -> None:
    found = measured([0.9, 0.9], [0.9, 0.9])
    assert goals(found)[0]["met"]
    del found["sets"]["digits"]["grid"]["8"]
    [goal] = goals(found)
    assert not goal["met"]
    assert "the grid was not measured at 8" in goal["measured"]
    rows = defaults_section({**found, "goals": [goal]})
    assert any("| 8 | 0.900 ± 0.000 | not measured |" in line for line in rows)
    found["sets"]["digits"]["grid"] = {}
    assert not goals(found)[0]["met"]


def test_opacus_is_a_column_with_errors_and_a_set_without_it_is_named() -> None:
    found = measured([0.9, 0.9], [0.9, 0.9]) | {"goals": []}
    assert "Opacus was not run." in defaults_section(found)
    assert any(line.startswith("Not measured in full") and "images" in line for line in defaults_section(found))
    found["opacus"] = {}
    assert "Opacus was not run on digits." in defaults_section(found)
    measured_then = {"date": "2026-01-02", "commit": "fedcba9876543210", "versions": {"opacus": "1.6.0"}}
    scores = {"example": {"scores": [0.5, 0.7]}, "best": {"scores": [0.8, 0.8]}}
    found["opacus"]["digits"] = {"1": {**scores, "measured": measured_then}}
    lines = defaults_section(found)
    assert "Measured on 2026-01-02, commit fedcba9876, opacus 1.6.0: digits (1)." in lines
    assert "Measured on 2026-01-01, commit 0123456789, numpy 2.4.6: digits." in lines
    assert not any("not run" in line for line in lines)
    assert any("| 1 |" in line and "| 0.600 ± 0.100 | 0.800 ± 0.000 |" in line for line in lines)


def test_opacus_has_the_least_noise_that_meets_the_target() -> None:
    noise, probability, steps = _least_noise(1 / 8, 160, 3.0), 1 / 8, 160
    for factor, within in ((1.0, True), (0.999, False)):
        events = [Event(Gaussian(factor * noise), Poisson(probability), steps)]
        spent = epsilon_for_delta(events, NeighboringRelation.ADD_OR_REMOVE_ONE, DELTA)
        assert (spent.value.upper <= 3.0) == within
    assert len(set(OPACUS_GRID)) == 6
    assert OPACUS_GRID[0] == EXAMPLE


def test_scores_are_kept_for_the_same_code_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = SETS["breast_cancer"]()
    plan, other = (plan_of(setting, len(split.labels), 8.0) for setting in (GRID[-1], GRID[0]))
    trained: list[tuple[str, int]] = []

    def score_of(_split: Split, asked: Plan, seed: int) -> float:
        trained.append((asked.plan_hash, seed))
        return 0.5 + 0.01 * len(trained)

    monkeypatch.setattr(kept, "score", score_of)
    first = kept.scorer("breast_cancer", split, "a" * 64, tmp_path)(plan, 0)
    again = kept.scorer("breast_cancer", split, "a" * 64, tmp_path)
    assert again(plan, 0) == first
    assert len(trained) == 1
    of_other_code = kept.scorer("breast_cancer", split, "b" * 64, tmp_path)
    assert len({first, again(plan, 1), again(other, 0), of_other_code(plan, 0)}) == 4


def test_errors_are_standard_errors_of_the_mean() -> None:
    assert mean_and_error([1.0, 3.0]) == (2.0, pytest.approx(1.0))


def test_the_protocol_has_fifty_settings_and_holds_sets_back() -> None:
    assert len(set(GRID)) == 50
    assert len(TUNED_ON) == 7
    assert list(HELD_BACK) == ["forest", "wine", "waveform", "friedman"]
    assert not TUNED_ON.keys() & HELD_BACK.keys()


@pytest.mark.parametrize(
    ("name", "rows", "columns", "classes", "best"),
    [("wine", (134, 44), 13, 3, 0.9), ("waveform", (5000, 5000), 21, 3, 0.85), ("friedman", (2000, 2000), 10, 0, 0.7)],
)
def test_the_later_sets_are_as_their_sources_say(
    name: str, rows: tuple[int, int], columns: int, classes: int, best: float
) -> None:
    split = HELD_BACK[name]()
    assert (split.features.shape, split.test_features.shape) == ((rows[0], columns), (rows[1], columns))
    assert split.num_classes == classes
    assert np.mean(np.abs(split.features) == 1.0) < 1e-3, "bounds cut hardly a value"
    assert best <= without_privacy(split) < 1.0
    again = HELD_BACK[name]()
    assert np.array_equal(split.features, again.features)
    assert np.array_equal(split.labels, again.labels)


def test_the_images_are_sixty_thousand_and_have_two_finalists() -> None:
    split = SETS["images"]()
    assert split.features.shape == (60000, 784)
    assert (split.features.min(), split.features.max()) == (-1.0, 1.0)
    assert split.num_classes == 10
    assert split.finalists == 2
    assert SETS["diabetes"]().finalists == 5


def test_a_plan_is_carried_out_on_rows_and_scored_on_others() -> None:
    split = TUNED_ON["breast_cancer"]()
    for plan in (plan_of(GRID[-1], len(split.labels), 8.0), preset_plan(split, 8.0)[0]):
        assert plan.phases[0].batch_size <= min(len(split.labels), LARGEST_BATCH)
        assert score(split, plan, 5) > 0.9
