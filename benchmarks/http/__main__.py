"""`python -m benchmarks.http`: measure everything and write benchmarks/results/http.json.

``--quick`` asks less, for work on the benchmark itself; it writes elsewhere, not to docs/measured.md.
"""

from __future__ import annotations

import os
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
    """Measure, write, and say how it went."""
    output, is_quick = report.asked("http", __doc__)
    started = time.perf_counter()
    figures: dict[str, Any] = {
        "benchmark": "http",
        "command": "make bench-http",
        "quick": is_quick,
        # Of whatever else runs here: it slows one busy process down more than it does many.
        "load_average_before": os.getloadavg()[0],
        **report.provenance(DISTRIBUTIONS, ["app", "calibrators", "accounting"]),
    }
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as temporary:
        folder = Path(temporary)
        url = migrated(f"sqlite:///{folder / 'http.sqlite3'}")
        figures |= measure(url, folder, rounds=1 if is_quick else 7, seconds=1.0 if is_quick else 3.0)
    report.conclude(output, report.plain(figures), goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
