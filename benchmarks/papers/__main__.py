"""`python -m benchmarks.papers`: run all reproductions, and write benchmarks/results/papers.json, the plots and the
page.

``--only NAME`` runs one reproduction and keeps the committed figures of the others. ``--quick`` runs less, for people
who work on a reproduction. Its figures are written elsewhere and are not shown on the page.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from benchmarks import report
from benchmarks.papers import page
from benchmarks.papers.reproduction import Module

#: The reproductions in the order of the page.
NAMES = (
    "dp_sgd",
    "dp_nsgd",
    "yang_digits",
    "yang_adam",
    "dp_sgd_gradient",
    "dp_gd",
    "dp_svrg",
    "clipped_sgd_strongly_convex",
    "heavy_tails",
    "tree_sfw_l1",
    "noisy_sfw_lp",
    "generalized_linear_l1",
    "dp_bandmf",
)
#: The packages on which the figures depend besides the code.
DISTRIBUTIONS = ("numpy", "scipy", "randomgen", "scikit-learn")
SOURCES = ("accounting", "calibrators", "trainer", "benchmarks/papers")


def module(name: str) -> Module:
    """Return the module of the reproduction with the given name."""
    return cast(Module, import_module(f"benchmarks.papers.{name}"))


def figures_of(name: str, quick: bool) -> dict[str, Any]:
    """Run one reproduction and return its figures."""
    reproduction = module(name)
    begun = time.perf_counter()
    found = reproduction.reproduce(quick)
    seconds = round(time.perf_counter() - begun)
    assert name == reproduction.NAME, "a reproduction is known by its file's name"
    return {"title": reproduction.TITLE, **found, "seconds": seconds, **report.provenance(DISTRIBUTIONS, SOURCES)}


def kept(path: Path) -> Mapping[str, Any]:
    """Return the reproductions that are already in the file ``path``."""
    return report.read(path.stem)["reproductions"] if path.exists() else {}


def main() -> None:
    """Run the reproductions, write their figures, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=NAMES, help="run only this reproduction")
    parser.add_argument("--quick", action="store_true", help="run less; write papers.quick.json and no page")
    arguments = parser.parse_args()
    output = report.FOLDER / ("papers.quick.json" if arguments.quick else "papers.json")
    found = dict(kept(output)) if arguments.only else {}
    for name in [arguments.only] if arguments.only else NAMES:
        found[name] = figures_of(name, arguments.quick)
        sys.stdout.write(f"{name} ({found[name]['seconds']} s)\n")
        for sentence in found[name]["sentences"]:
            sys.stdout.write(f"  {sentence}\n")
    figures = {
        "benchmark": "papers",
        "command": "make bench-papers",
        "quick": arguments.quick,
        "reproductions": {name: found[name] for name in NAMES if name in found},
    }
    report.write(output, figures)
    if not arguments.quick:
        page.write(report.plain(figures))


if __name__ == "__main__":
    main()
