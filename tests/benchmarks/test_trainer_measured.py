"""The committed results of `make bench-trainer` and `make bench-gpu`: what was measured, on what, on both sides."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from typing import Any

import pytest

from benchmarks import report
from benchmarks.gpu.__main__ import SIDES as GPU_SIDES
from benchmarks.gpu.__main__ import TASKS as GPU_TASKS
from benchmarks.trainer.__main__ import DISTRIBUTIONS
from benchmarks.trainer.goals import goals
from benchmarks.trainer.rounds import figures
from benchmarks.trainer.work import SIDES, TASKS


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return report.read("trainer")


def test_the_results_say_when_where_and_with_what_they_were_measured(measured: dict[str, Any]) -> None:
    assert measured["quick"] is False, "run: make bench-trainer"
    assert re.fullmatch(r"[0-9a-f]{40}", measured["commit"])
    assert re.fullmatch(r"[0-9a-f]{64}", measured["source_sha256"])
    assert set(measured["versions"]) == {"python", *DISTRIBUTIONS}
    assert measured["versions"]["opacus"].startswith("1.6")
    assert measured["data"] == {"rows": 60000, "features": 784, "classes": 10, "dtype": "float32"}


def test_every_side_is_there_in_every_round_on_two_cores(measured: dict[str, Any]) -> None:
    for section in ("speed", "memory"):
        assert [{key: row[key] for key in ("model", "batch_size")} for row in measured[section]] == [
            asdict(task) for task in TASKS
        ]
        assert all(set(row["sides"]) == set(SIDES) for row in measured[section])
    rows = [side["each_round"] for row in measured["speed"] for side in row["sides"].values()]
    (rounds,) = {len(each_round) for each_round in rows}
    assert rounds >= 5
    assert all(math.isfinite(time) and time > 0.0 for each_round in rows for time in each_round)
    assert {row["cores"] for row in measured["speed"]} == {2}


def test_medians_and_ratios_are_those_of_the_rounds(measured: dict[str, Any]) -> None:
    for row in measured["speed"]:
        found = figures({name: side["each_round"] for name, side in row["sides"].items()})
        assert {name: row[name] for name in found} == found


def test_goals_are_those_that_the_figures_give(measured: dict[str, Any]) -> None:
    assert measured["goals"] == goals(measured)


def test_the_gpu_was_measured_on_every_side_or_not_at_all() -> None:
    found = report.read("gpu")
    if found["ran"]:
        assert found["gpu"]
        assert [set(row["sides"]) for row in found["speed"]] == [set(GPU_SIDES)] * len(GPU_TASKS)
    else:
        assert set(found) == {"benchmark", "command", "ran", "goal"}
