"""What verification of a large ledger takes: from seconds to the goal, its part of docs/measured.md and the results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.http_servers import migrated
from benchmarks.ledger import verifying

Figures = dict[str, Any]


def row(database: str, seconds: float) -> Figures:
    return {
        "database": database,
        "load_average_before": 0.25,
        "verify": {"wall_seconds": seconds, "cpu_seconds": seconds / 2},
    }


def figures(*rows: Figures) -> Figures:
    measured: Figures = {
        "command": "python -m benchmarks.ledger.verifying",
        "date": "2026-11-23",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "uncommitted_changes": True,
        "versions": {"python": "3.11.7", "sqlalchemy": "2.1.9"},
        "machine": {"cpu": "a processor", "cores": 2, "system": "Linux x86_64"},
        "entries": 1000,
        "verification": list(rows),
    }
    return measured | {"goals": verifying.goals(measured)}


def test_the_slower_engine_decides() -> None:
    (goal,) = figures(row("SQLite", 20.0), row("PostgreSQL", 40.0))["goals"]
    assert goal["met"]
    each = ", ".join(
        f"{wall} s ({name}; {cpu} s of CPU time, load average 0.2 before)"
        for name, wall, cpu in (("SQLite", 20, 10), ("PostgreSQL", 40, 20))
    )
    assert goal["measured"] == each
    for seconds in (60.0, 70.0):
        (goal,) = figures(row("SQLite", 20.0), row("PostgreSQL", seconds))["goals"]
        assert not goal["met"]


def test_the_section_says_what_was_measured_on_what() -> None:
    text = "\n".join(verifying.verification_section(figures(row("SQLite", 20.0), row("PostgreSQL", 70.0))))
    said = "commit 0123456789 with uncommitted changes", "2 cores of a processor", "sqlalchemy 2.1.9", "under 60 s"
    for part in (*said, "**missed**"):
        assert part in text
    assert "| met |" in "\n".join(verifying.verification_section(figures(row("SQLite", 20.0))))


def test_what_is_measured_is_a_whole_ledger(tmp_path: Path) -> None:
    measured = verifying.of_one_budget(migrated(f"sqlite:///{tmp_path / 'v.sqlite3'}"), tmp_path, 200)
    assert (measured["database"], measured["entries"]) == ("SQLite", 201)
    for name in ("integrate", "verify", "checkpoint", "one_proof"):
        assert all(seconds > 0.0 for seconds in measured[name].values())


@pytest.fixture(scope="module")
def measured() -> Figures:
    return report.read("verification")


def test_the_results_say_when_where_and_with_what_they_were_measured(measured: Figures) -> None:
    assert measured["quick"] is False, "run: make bench-ledger"
    assert measured["entries"] == verifying.FULL
    assert [row["database"] for row in measured["verification"]] == ["SQLite", "PostgreSQL"]
    assert all(row["entries"] >= verifying.FULL for row in measured["verification"])
    assert re.fullmatch(r"[0-9a-f]{40}", measured["commit"])
    assert set(measured["versions"]) == {"python", *verifying.DISTRIBUTIONS}


def test_goals_are_those_that_the_figures_give(measured: Figures) -> None:
    assert measured["goals"] == verifying.goals(measured)
