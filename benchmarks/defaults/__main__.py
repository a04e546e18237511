"""`python -m benchmarks.defaults [SET ...] [--epsilon E ...]`: measure these sets, or all, and write
results/defaults.json.

At each epsilon of each set, figures are written after the preset's runs and again after those of the grid. All other
figures in the file stay. A complete run takes hours on one core.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks import report
from benchmarks.defaults.command import OUTPUT, asked
from benchmarks.defaults.goals import goals
from benchmarks.defaults.grid import best_of_grid
from benchmarks.defaults.kept import KEPT, scorer
from benchmarks.defaults.preset import preset_scores, without_privacy
from benchmarks.defaults.protocol import HELD_BACK, SETS

DISTRIBUTIONS = ("numpy", "scipy", "randomgen", "scikit-learn")
SOURCES = ("trainer", "calibrators", "accounting")


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    names, epsilons = asked(__doc__, SETS)
    started = time.perf_counter()
    header = report.header("defaults", "make bench-defaults", False, DISTRIBUTIONS, SOURCES)
    for name in names:
        sys.stdout.write(f"{name}\n")
        split = SETS[name]()
        score = scorer(name, split, header["source_sha256"], KEPT)
        about = {
            "records": len(split.labels),
            "features": split.features.shape[1],
            "model": split.model,
            "held_back": name in HELD_BACK,
            "finalists": split.finalists,
            **{name: header[name] for name in ("date", "commit", "versions")},
            "without_privacy": without_privacy(split),
        }
        for epsilon in epsilons:
            for kind, measure in (("preset", preset_scores), ("grid", best_of_grid)):
                found = measure(split, epsilon, score, sys.stdout.write)
                sys.stdout.flush()
                figures = {**_read(), **header}
                one = {"preset": {}, "grid": {}, **figures["sets"].get(name, {}), **about}
                one[kind] = {**one[kind], f"{epsilon:g}": found}
                sets = {**figures["sets"], name: one}
                figures["sets"] = {each: sets[each] for each in SETS if each in sets}
                figures = report.plain(figures)
                report.conclude(OUTPUT, figures, goals(figures), time.perf_counter() - started)


def _read() -> dict[str, Any]:
    """Return the present figures in the file. It is read again each time, since another process may have written to
    it."""
    return report.read("defaults") if OUTPUT.exists() else {"sets": {}}


if __name__ == "__main__":
    main()
