"""The way from a clone to a model that is timed is the one that the pages show."""

from __future__ import annotations

import shlex

from benchmarks import report
from benchmarks.first_model import FILE, GUIDE, README, STEPS, first_command, goals, persons_seconds, steps_of


def test_the_commands_are_those_of_the_pages() -> None:
    assert shlex.split(first_command((report.ROOT / README).read_text()))[0] == "curl"
    steps = steps_of((report.ROOT / GUIDE).read_text())
    assert {FILE, *STEPS} <= steps.keys()
    commands = [steps[number][1] for number in STEPS]
    assert all(commands), "each step is carried out"
    assert not any("_..." in each for each in commands), "an id that somebody must copy takes time, too"
    assert "epsilond run create" in commands[-1]


def test_a_person_types_and_waits() -> None:
    figures = {"answer_s": 46.0, "typed": 100, "steps": [{"seconds": 2.0}, {"seconds": 3.0}]}
    assert persons_seconds(figures) == 35.0
    assert [each["met"] for each in goals(figures)] == [False, True]
