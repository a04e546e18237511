"""From what was measured of calibrations over HTTP to goals and the part of docs/measured.md about them."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import Any

import pytest

from benchmarks import report
from benchmarks.http import work
from benchmarks.http.__main__ import DISTRIBUTIONS
from benchmarks.http.goals import goals
from benchmarks.http.markdown import http_section
from benchmarks.http.rounds import HEADLINE, REMEMBERED, figures
from benchmarks.http_load import Load
from benchmarks.http_servers import Server


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


def measured(cpu: dict[str, list[float]] | None = None, **rates: list[float]) -> dict[str, Any]:
    """Three rounds; of what is not named each had 100 a second, and took 1 ms of the server."""
    names = [f"{side}, {kind}" for side in ("engine", "new") for kind in work.KINDS]
    rounds = {name: [100.0] * 3 for name in (*names, "remembered", HEADLINE, "/json")} | rates
    own = {kind: [1.0] * 3 for kind in work.KINDS} | (cpu or {})
    return figures({name: [load(rate) for rate in each] for name, each in rounds.items()}, own, 4000, 1.0)


@pytest.mark.parametrize(
    ("changes", "met"),
    [
        ({}, [True, True, True]),
        ({"cpu": {REMEMBERED: [7.0, 8.1, 9.0]}}, [False, True, True]),
        ({"cpu": {"full batches": [1.0, 2.0, 10.0]}}, [True, True, True]),
        ({"cpu": {"full batches": [1.0, 2.1, 2.2]}}, [True, False, True]),
        ({"remembered": [69.0, 69.9, 100.0]}, [True, True, False]),
        ({HEADLINE: [150.0] * 3}, [True, True, False]),
        ({"/json": [1000.0] * 3}, [True, True, True]),
    ],
)
def test_goals_are_met_or_missed_by_the_median_of_the_rounds(changes: dict[str, Any], met: list[bool]) -> None:
    assert [goal["met"] for goal in goals(measured(**changes))] == met


def test_the_time_of_a_server_holds_that_of_the_processes_that_it_started() -> None:
    """Of those that run and of those that have ended."""
    busy = "import time\nwhile time.process_time() < 0.3: pass\n"
    ended = f"subprocess.run([sys.executable, '-c', {busy!r}])"
    running = f"child = subprocess.Popen([sys.executable, '-c', {busy + 'time.sleep(600)'!r}])"
    program = f"import subprocess, sys\n{ended}\n{running}\nprint(flush=True); sys.stdin.read(); child.kill()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        server = Server(0, process.pid)
        assert server.cpu_seconds() >= 0.2
        deadline = time.monotonic() + 60.0
        while server.cpu_seconds() < 0.5 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert 0.5 <= server.cpu_seconds() <= 1.5
        process.stdin.close()


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
