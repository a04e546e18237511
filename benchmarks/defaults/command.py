"""This module has the options and the file of results that `benchmarks.defaults` and `with_opacus` share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from benchmarks import report
from benchmarks.defaults.protocol import EPSILONS

OUTPUT = report.FOLDER / "defaults.json"


def asked(description: str | None, sets: Iterable[str]) -> tuple[Sequence[str], Sequence[float]]:
    """Return the data sets and the epsilons that the command line names, or all of them."""
    sets = list(sets)
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("sets", nargs="*", choices=sets, help="data sets (default: all)")
    parser.add_argument(
        "--epsilon", type=float, action="append", choices=EPSILONS, help="may be repeated (default: all)"
    )
    arguments = parser.parse_args()
    return arguments.sets or sets, arguments.epsilon or EPSILONS
