"""`python -m benchmarks.defaults [SET ...]`: measure these data sets, or all, into benchmarks/results/defaults.json.

What was measured of other sets stays, since the whole takes hours on one core.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks import report
from benchmarks.defaults.goals import goals
from benchmarks.defaults.grid import grids
from benchmarks.defaults.preset import presets, without_privacy
from benchmarks.defaults.protocol import HELD_BACK, TUNED_ON

OUTPUT = report.FOLDER / "defaults.json"
DISTRIBUTIONS = ("numpy", "scipy", "randomgen", "scikit-learn")


def main() -> None:
    """Measure, write, and say how it went."""
    known = {**TUNED_ON, **HELD_BACK}
    names = sys.argv[1:] or list(known)
    started = time.perf_counter()
    figures = report.header(
        "defaults", "make bench-defaults", False, DISTRIBUTIONS, ["trainer", "calibrators", "accounting"]
    )
    sets: dict[str, Any] = report.read("defaults")["sets"] if OUTPUT.exists() else {}
    for name in names:
        sys.stdout.write(f"{name}\n")
        split = known[name]()
        sets[name] = {
            "records": len(split.labels),
            "features": split.features.shape[1],
            "model": split.model,
            "held_back": name in HELD_BACK,
            "without_privacy": without_privacy(split),
            "preset": presets(split, sys.stdout.write),
            "grid": grids(split, sys.stdout.write),
        }
    figures["sets"] = {name: sets[name] for name in known if name in sets}
    figures = report.plain(figures)
    report.conclude(OUTPUT, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
