"""`python -m benchmarks.defaults [SET ...] [--epsilon E ...]`: measure these, or all, into results/defaults.json.

The figures are written after each epsilon of each set, and those of others stay: the whole takes hours on one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from benchmarks import report
from benchmarks.defaults.goals import goals
from benchmarks.defaults.grid import best_of_grid
from benchmarks.defaults.preset import preset_scores, without_privacy
from benchmarks.defaults.protocol import EPSILONS, HELD_BACK, TUNED_ON

OUTPUT = report.FOLDER / "defaults.json"
DISTRIBUTIONS = ("numpy", "scipy", "randomgen", "scikit-learn")
SOURCES = ("trainer", "calibrators", "accounting")


def main() -> None:
    """Measure, write, and say how it went."""
    known = {**TUNED_ON, **HELD_BACK}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", choices=known, help="all, if none is named")
    parser.add_argument("--epsilon", type=float, action="append", choices=EPSILONS, help="all, if none is named")
    arguments = parser.parse_args()
    started = time.perf_counter()
    figures = report.header("defaults", "make bench-defaults", False, DISTRIBUTIONS, SOURCES)
    before: dict[str, Any] = report.read("defaults") if OUTPUT.exists() else {"sets": {}}
    sets = before["sets"]
    for name in arguments.sets or known:
        sys.stdout.write(f"{name}\n")
        split = known[name]()
        found = sets.setdefault(name, {"preset": {}, "grid": {}})
        found |= {
            "records": len(split.labels),
            "features": split.features.shape[1],
            "model": split.model,
            "held_back": name in HELD_BACK,
            "finalists": split.finalists,
            "date": figures["date"],
            "commit": figures["commit"],
            "without_privacy": without_privacy(split),
        }
        for epsilon in arguments.epsilon or EPSILONS:
            found["preset"][f"{epsilon:g}"] = preset_scores(split, epsilon, sys.stdout.write)
            found["grid"][f"{epsilon:g}"] = best_of_grid(split, epsilon, sys.stdout.write)
            sys.stdout.flush()
            in_order = {each: sets[each] for each in known if each in sets}
            done = report.plain({**before, **figures, "sets": in_order})
            report.conclude(OUTPUT, done, goals(done), time.perf_counter() - started)


if __name__ == "__main__":
    main()
