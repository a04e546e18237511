"""The section of README.md that the committed results make: `python -m benchmarks.table`. A test compares them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.accounting.filter_prices import filter_section
from benchmarks.accounting.markdown import accounting_section
from benchmarks.gpu.markdown import gpu_section
from benchmarks.http.markdown import http_section
from benchmarks.ledger.markdown import ledger_section
from benchmarks.ledger.verifying import verification_section
from benchmarks.papers.page import papers_section
from benchmarks.runs.markdown import runs_section
from benchmarks.trainer.markdown import trainer_section
from benchmarks.trainer.release import release_section

README = report.ROOT / "README.md"
BEGIN = "<!-- measured: made by `python -m benchmarks.table` from benchmarks/results; edit nothing here -->"
END = "<!-- measured: end -->"

#: One entry a benchmark: how its committed figures become text.
SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], Sequence[str]]] = {
    "accounting": accounting_section,
    "filter": filter_section,
    "ledger": ledger_section,
    "verification": verification_section,
    "http": http_section,
    "runs": runs_section,
    "trainer": trainer_section,
    "release": release_section,
    "gpu": gpu_section,
    "papers": papers_section,
}


def measured_section() -> str:
    """Everything between the markers, the markers included."""
    lines = [BEGIN, "## Measured", ""]
    for name, render in SECTIONS.items():
        lines += [*render(report.read(name)), ""]
    return "\n".join([*lines, END])


def with_section(readme: str, section: str) -> str:
    """``readme`` with ``section`` in the place of the one it has.

    Raises:
        ValueError: the markers are not there exactly once, in order.
    """
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        raise ValueError(f"README.md needs, once and in this order, the lines {BEGIN} and {END}")
    before, _, rest = readme.partition(BEGIN)
    return before + section + rest.partition(END)[2]


def main() -> None:
    """Rewrite README.md's section."""
    README.write_text(with_section(README.read_text(), measured_section()))
    sys.stdout.write(measured_section() + "\n")


if __name__ == "__main__":
    main()
