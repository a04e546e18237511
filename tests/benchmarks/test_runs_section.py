"""From what was measured of runs to goals and the part of docs/measured.md about them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.runs.goals import goals
from benchmarks.runs.markdown import runs_section


def measured(overhead: float = 20.0, ratio: float = 1.8) -> dict[str, Any]:
    return {
        "dispatch": {"overhead": overhead, "largest_overhead": 70.0, "runs": 40},
        "on_dask": {"one": 36.0, "two": 20.0, "ratio": ratio, "runs": 64},
    }


@pytest.mark.parametrize(
    ("figures", "met"),
    [
        (measured(), [True, True]),
        (measured(overhead=50.0), [False, True]),
        (measured(ratio=1.69), [True, False]),
        (measured(ratio=1.7), [True, True]),
    ],
)
def test_goals_are_met_or_missed_by_the_figures(figures: dict[str, Any], met: list[bool]) -> None:
    assert [goal["met"] for goal in goals(figures)] == met


def test_the_section_says_what_was_missed_and_where_it_was_measured() -> None:
    figures = measured(ratio=1.5)
    provenance = {
        "versions": {"numpy": "2.4"},
        "commit": "0123456789abcdef",
        "uncommitted_changes": False,
        "date": "2026-01-02",
        "cores": 2,
    }
    lines = "\n".join(runs_section({**figures, **provenance, "goals": goals(figures)}))
    assert "2026-01-02, commit 0123456789, 2 cores" in lines
    assert "below 50 ms | 20.0 ms (median of 40 runs; the largest 70) | met" in lines
    assert "at least 1.7 times as long | 1.50 (36.0 s and 20.0 s) | **missed**" in lines
