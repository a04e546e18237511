"""The memory of large runs: what was measured stays below what is stated, and the page says so."""

from __future__ import annotations

import copy
import os

from benchmarks import report
from benchmarks.runs import memory
from trainer.scaling import NumberColumn, memory_of_rows

FIGURES = report.read("memory")


def test_the_committed_figures_are_of_the_sizes_and_their_goals_are_met() -> None:
    assert [{name: each[name] for name in size} for size, each in zip(memory.SIZES, FIGURES["sizes"], strict=True)] == [
        dict(size) for size in memory.SIZES
    ]
    assert FIGURES["goals"] == memory.goals(FIGURES)
    assert all(goal["met"] for goal in FIGURES["goals"])
    assert FIGURES["quick"] is False


def test_what_was_stated_is_what_is_stated() -> None:
    for each in FIGURES["sizes"]:
        columns = [NumberColumn(0.0, 255.0)] * each["features"]
        assert each["stated_bytes"] == memory_of_rows(columns, each["capacity"])


def test_a_worker_that_takes_more_than_is_stated_misses_its_goal() -> None:
    figures = copy.deepcopy(FIGURES)
    figures["sizes"][1]["worker_peak_bytes"] = figures["sizes"][1]["stated_bytes"] + memory.ALLOWANCE + 1
    assert [goal["met"] for goal in memory.goals(figures)] == [True, False]


def test_the_server_holds_no_more_of_an_upload_than_the_documentation_says() -> None:
    for each in FIGURES["sizes"]:
        assert each["server_peak_bytes"] <= 8 * each["rows"] * (each["features"] + 1) + 700_000_000


def test_the_section_has_every_figure() -> None:
    text = "\n".join(memory.memory_section(FIGURES))
    assert "| 500000 x 784 | 500000 | 393 MB | 9.43 GB | 8.26 GB |" in text


def test_the_peak_of_a_process_is_what_the_kernel_counts() -> None:
    (command, peak), *_ = memory.peaks(os.getpid())
    assert "python" in command
    held = b"x" * (peak + 50_000_000)
    grown = memory.peaks(os.getpid())[0][1]
    assert grown >= peak + 50_000_000
    del held
    assert memory.peaks(os.getpid())[0][1] >= grown - 2**20
