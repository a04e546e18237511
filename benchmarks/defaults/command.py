"""What both commands ask for, and the file that both write to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks import report
from benchmarks.defaults.protocol import EPSILONS, SETS

OUTPUT = report.FOLDER / "defaults.json"


def asked(description: str | None) -> tuple[Sequence[str], Sequence[float]]:
    """Return the names of the data sets and the epsilons that the command line names, or all."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("sets", nargs="*", choices=SETS, help="data sets (default: all)")
    parser.add_argument(
        "--epsilon", type=float, action="append", choices=EPSILONS, help="again and again (default: all)"
    )
    arguments = parser.parse_args()
    return arguments.sets or list(SETS), arguments.epsilon or EPSILONS
