"""`python -m benchmarks.runs`: measure the time that a run takes beside its training, and write
benchmarks/results/runs.json.

``--quick`` measures less, for people who work on the benchmark itself. Its figures are written elsewhere and are not
shown in docs/measured.md.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.runs.dispatch import dispatch
from benchmarks.runs.goals import goals

DISTRIBUTIONS = ("numpy", "scipy", "randomgen", "sqlalchemy")


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("runs", __doc__)
    started = time.perf_counter()
    figures: dict[str, Any] = {
        **report.header(
            "runs", "make bench-runs", is_quick, DISTRIBUTIONS, ["app", "trainer", "calibrators", "accounting"]
        ),
        "cores": os.cpu_count(),
    }
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as temporary:
        folder = Path(temporary)
        url = f"sqlite:///{folder / 'dispatch.sqlite3'}"
        figures["dispatch"] = dispatch(url, folder / "dispatch", 5 if is_quick else 40)
    figures = report.plain(figures)
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
