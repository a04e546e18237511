"""From what was measured of calibrations over HTTP to goals and README's part about them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from benchmarks import report
from benchmarks.http import work
from benchmarks.http.__main__ import DISTRIBUTIONS
from benchmarks.http.goals import goals
from benchmarks.http.markdown import http_section
from benchmarks.http.rounds import HEADLINE, REMEMBERED, figures
from benchmarks.http_load import Load


def test_the_committed_results_are_whole_and_their_goals_are_those_that_the_figures_give() -> None:
    committed = report.read("http")
    assert committed["quick"] is False, "run: make bench-http"
    assert committed["command"] == "make bench-http"
    assert set(committed["versions"]) == {"python", *DISTRIBUTIONS}
    assert committed["goals"] == goals(committed)
    assert committed["load_process_busy"] < 0.9, "the load's own process held the server up"


def load(rate: float) -> Load:
    """A hundred answers, of which the slowest took 50 ms and the others 10."""
    return Load(100, 100 / rate, 0.5, [10.0] * 98 + [50.0] * 2)


def measured(**rates: list[float]) -> dict[str, Any]:
    """Three rounds; of what is not named each had 100 a second."""
    names = [f"{side}, {kind}" for side in ("engine", "new") for kind in work.KINDS]
    rounds = {name: [100.0] * 3 for name in (*names, "remembered", HEADLINE, "/json")} | rates
    return figures({name: [load(rate) for rate in each] for name, each in rounds.items()}, 4000, 1.0)


@pytest.mark.parametrize(
    ("rates", "met"),
    [
        ({}, [True, True, True]),
        ({f"new, {REMEMBERED}": [49.0, 49.9, 100.0]}, [False, True, True]),
        ({"new, full batches": [50.0, 50.0, 10.0]}, [True, True, True]),
        ({"remembered": [69.0, 69.9, 100.0]}, [True, True, False]),
        ({HEADLINE: [150.0] * 3}, [True, True, False]),
        ({"/json": [1000.0] * 3}, [True, True, True]),
    ],
)
def test_goals_are_met_or_missed_by_the_median_of_the_rounds_ratios(
    rates: dict[str, list[float]], met: list[bool]
) -> None:
    assert [goal["met"] for goal in goals(measured(**rates))] == met


def test_the_section_says_what_was_missed_and_where_it_was_measured() -> None:
    found = measured(remembered=[50.0, 60.0, 70.0])
    provenance = {
        "versions": {"numpy": "2.4"},
        "commit": "0123456789abcdef",
        "uncommitted_changes": False,
        "date": "2026-01-02",
        "load_average_before": 0.25,
    }
    lines = "\n".join(http_section({**found, **provenance, "goals": goals(found)}))
    assert "2026-01-02, commit 0123456789; numpy 2.4" in lines
    assert "| at least 0.7 | 0.60 (60 and 100 a second) | **missed** |" in lines
    assert "| remembered over HTTP, beside `/bytes` | 60 | 10.0 | 50.0 | 0.60 (0.50 to 0.70) |" in lines


def test_no_two_new_requests_are_the_same_and_all_are_nearly_so() -> None:
    body, draw = work.request(REMEMBERED), random.Random(1)
    targets = [work.with_another_target(body, draw)["target"]["epsilon"] for _ in range(1000)]
    assert len(set(targets)) == 1000
    assert all(abs(target / body["target"]["epsilon"] - 1) <= work.SPREAD for target in targets)
    assert work.request(REMEMBERED) == body, "the documentation's own request stays as it is"
