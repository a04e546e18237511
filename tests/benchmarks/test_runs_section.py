"""From what was measured of runs to goals and the parts of docs/measured.md about them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.runs import on_dask
from benchmarks.runs.goals import goals
from benchmarks.runs.markdown import runs_section
from benchmarks.runs.on_dask import Part

PROVENANCE = {
    "versions": {"numpy": "2.4"},
    "commit": "0123456789abcdef",
    "uncommitted_changes": False,
    "date": "2026-01-02",
    "cores": 2,
    "machine": {"cores": 2},
}


def dispatched(overhead: float) -> dict[str, Any]:
    return {"dispatch": {"overhead": overhead, "largest_overhead": 70.0, "runs": 40}}


def shared(two_seconds: float = 10.0, arrivals: tuple[int, ...] = (1, 1)) -> dict[str, Any]:
    """Of two rounds: the first as it is asked, the second slower by the same on both sides."""
    ones = [Part(slow * 17.0, (slow * 12.0,), (1,), 3.0) for slow in (1.0, 2.0)]
    twos = [Part(slow * two_seconds, (slow * 5.0, slow * 6.0), arrivals, 5.0) for slow in (1.0, 2.0)]
    return on_dask.sharing(16, ones, twos)


@pytest.mark.parametrize(("overhead", "met"), [(20.0, True), (50.0, False)])
def test_a_dispatch_meets_or_misses_its_goal_by_the_figures(overhead: float, met: bool) -> None:
    assert [goal["met"] for goal in goals(dispatched(overhead))] == [met]


@pytest.mark.parametrize(
    ("figures", "met"),
    [
        (shared(), [True, True]),
        (shared(two_seconds=10.1), [False, True]),
        (shared(arrivals=(1, 2)), [True, False]),
    ],
)
def test_sharing_meets_or_misses_its_goals_by_the_figures(figures: dict[str, Any], met: list[bool]) -> None:
    assert [goal["met"] for goal in on_dask.goals(figures)] == met


def test_ratios_are_of_rounds_and_the_work_is_divided_by_the_busier_worker() -> None:
    figures = shared()
    assert (figures["rounds"], figures["ratios"]) == (2, [1.7, 1.7])
    assert figures["divided"] == pytest.approx(2.0)
    assert (figures["one"], figures["two"], figures["load_average"]) == (25.5, 15.0, 4.0)


def test_rows_that_a_worker_holds_or_had_from_another_have_reached_it() -> None:
    class Worker:
        data = ("rows-a", "slice-b")
        transfer_incoming_log = ({"keys": {"rows-a": 8}}, {"keys": {"rows-a": 8, "slice-b": 1}})

    assert on_dask._arrived(Worker()) == 2
    Worker.transfer_incoming_log = ({"keys": {"slice-b": 1}},)  # type: ignore[assignment]
    assert on_dask._arrived(Worker()) == 1, "it was sent them"


def test_the_sections_say_what_was_missed_and_where_it_was_measured() -> None:
    figures = dispatched(50.0)
    lines = "\n".join(runs_section({**figures, **PROVENANCE, "goals": goals(figures)}))
    assert "2026-01-02, commit 0123456789, 2 cores" in lines
    assert "below 50 ms | 50.0 ms (median of 40 runs; the largest 70) | **missed**" in lines
    figures = shared(two_seconds=10.1)
    lines = "\n".join(on_dask.sharing_section({**figures, **PROVENANCE, "goals": on_dask.goals(figures)}))
    assert "at least 1.7 times as long | 1.68 (25.5 s and 15.1 s) | **missed**" in lines
    assert "load average was 4.0" in lines
