"""`python -m benchmarks.defaults.with_opacus [SET ...] [--epsilon E ...]`: measure Opacus' column of
results/defaults.json.

The command needs torch and Opacus, and scikit-learn for the rows of `wine` (requirements/bench-trainer.txt).
"""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks import report
from benchmarks.defaults.command import OUTPUT, asked
from benchmarks.defaults.opacus_side import opacus_at
from benchmarks.defaults.protocol import SETS

DISTRIBUTIONS = ("numpy", "torch", "opacus")


def main() -> None:
    """Measure and write, after each epsilon of each set."""
    names, epsilons = asked(__doc__, SETS)
    import_module("torch").set_num_threads(1)
    measured = report.provenance(DISTRIBUTIONS, ["benchmarks/defaults"])
    for name in names:
        sys.stdout.write(f"{name}\n")
        split = SETS[name]()
        for epsilon in epsilons:
            found = opacus_at(split, epsilon, sys.stdout.write)
            sys.stdout.flush()
            figures = report.read("defaults")
            opacus = figures.get("opacus", {})
            opacus[name] = {**opacus.get(name, {}), f"{epsilon:g}": {**found, "measured": measured}}
            report.write(OUTPUT, {**figures, "opacus": opacus})


if __name__ == "__main__":
    main()
