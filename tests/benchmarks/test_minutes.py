"""The minutes of a default: what was measured beside the estimate, and the page that says so."""

from __future__ import annotations

import copy

from benchmarks import report
from benchmarks.runs import minutes

FIGURES = report.read("minutes")


def test_the_committed_figures_are_of_the_cases() -> None:
    assert [(each["algorithm"], each["rows"], each["features"]) for each in FIGURES["cases"]] == [
        (algorithm, *shape) for shape in minutes.SHAPES for algorithm in minutes.ALGORITHMS
    ]
    assert FIGURES["goals"] == minutes.goals(FIGURES)
    assert FIGURES["quick"] is False


def test_a_default_that_takes_longer_than_is_allowed_misses_the_goal() -> None:
    figures = copy.deepcopy(FIGURES)
    figures["cases"][0]["ratio"] = minutes.GOAL + 0.01
    assert [goal["met"] for goal in minutes.goals(figures)] == [False]


def test_the_section_has_every_case() -> None:
    text = "\n".join(minutes.minutes_section(FIGURES))
    assert all(f"| {each['algorithm']} | {each['rows']} x {each['features']} |" in text for each in FIGURES["cases"])


def test_a_case_times_the_steps_of_the_default() -> None:
    found = minutes.measure("dp_adam", 1000, 10, 0.0)
    assert (found["steps"], found["steps_timed"]) == (400, 1)
    assert found["ratio"] == found["minutes"] / found["minutes_stated"] > 0.0
