"""`python -m benchmarks.http`: measure everything, and write benchmarks/results/http.json.

``--quick`` measures less, for people who work on the benchmark itself. Its figures are written elsewhere and are not
shown in docs/measured.md.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.http.goals import goals
from benchmarks.http.rounds import measure
from benchmarks.http_servers import migrated

DISTRIBUTIONS = ("fastapi", "starlette", "uvicorn", "h11", "pydantic", "numpy", "scipy")


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("http", __doc__)
    started = time.perf_counter()
    figures: dict[str, Any] = {
        **report.header("http", "make bench-http", is_quick, DISTRIBUTIONS, ["app", "calibrators", "accounting"]),
    }
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as temporary:
        folder = Path(temporary)
        url = migrated(f"sqlite:///{folder / 'http.sqlite3'}")
        figures |= measure(url, folder, rounds=1 if is_quick else 7, seconds=1.0 if is_quick else 3.0)
    report.conclude(output, report.plain(figures), goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
