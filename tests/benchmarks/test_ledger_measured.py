"""The committed results of `make bench-ledger`: what was measured, on what, on both sides."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from benchmarks import report
from benchmarks.ledger import throughput, work
from benchmarks.ledger.__main__ import DISTRIBUTIONS
from benchmarks.ledger.goals import goals


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return report.read("ledger")


def test_the_results_say_when_where_and_with_what_they_were_measured(measured: dict[str, Any]) -> None:
    assert measured["quick"] is False, "run: make bench-ledger"
    assert re.fullmatch(r"[0-9a-f]{40}", measured["commit"])
    assert re.fullmatch(r"[0-9a-f]{64}", measured["source_sha256"])
    assert set(measured["versions"]) == {"python", *DISTRIBUTIONS}
    assert measured["machine"]["cores"] >= 1


def test_every_commit_reached_the_disk(measured: dict[str, Any]) -> None:
    settings = measured["postgresql"]
    assert (settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"]) == ("on", "on", "on")


def test_both_sides_are_there_in_every_round(measured: dict[str, Any]) -> None:
    sections = measured["throughput"], measured["over_http"]
    assert len(sections[0]["pgbench"]) == len(throughput.CLIENTS)
    assert len(sections[0]["ours"]) == len(throughput.LAYOUTS)
    assert [row["filter"] for row in sections[1]["ours"]] == list(work.FILTERS)
    rows = [*sections[0]["pgbench"], *sections[0]["ours"], *sections[1]["bare"], *sections[1]["ours"]]
    (rounds,) = {len(row["each_round"]) for row in rows}
    assert rounds >= 3
    assert all(math.isfinite(rate) and rate > 0.0 for row in rows for rate in row["each_round"])


def test_goals_are_those_that_the_figures_give(measured: dict[str, Any]) -> None:
    assert measured["goals"] == goals(measured)


def test_exactly_what_fits_was_admitted_and_nothing_was_tried_again(measured: dict[str, Any]) -> None:
    """A promise, not a speed: results in which it is broken are not to be published."""
    for row in measured["hot_budget"]:
        assert row["exact"]
        assert row["retries"] == row["server_counters"]["deadlocks"] == 0
