"""`python -m benchmarks.table` writes docs/measured.md from the committed results. A test compares them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.accounting.allocations import allocations_section
from benchmarks.accounting.factorisations import factorisations_section
from benchmarks.accounting.filter_prices import filter_section
from benchmarks.accounting.markdown import accounting_section
from benchmarks.accounting.widths import widths_section
from benchmarks.defaults.correlated import correlated_defaults_section
from benchmarks.defaults.markdown import defaults_section
from benchmarks.defaults.step_sizes import step_sizes_section
from benchmarks.first_model import first_model_section
from benchmarks.gpu.markdown import gpu_section
from benchmarks.http.markdown import http_section
from benchmarks.http.uploads import uploads_section
from benchmarks.ledger.markdown import ledger_section
from benchmarks.ledger.verifying import verification_section
from benchmarks.papers.page import papers_section
from benchmarks.runs.markdown import runs_section
from benchmarks.runs.memory import memory_section
from benchmarks.runs.minutes import minutes_section
from benchmarks.runs.on_dask import sharing_section
from benchmarks.screens import screens_section
from benchmarks.trainer.correlated import correlated_section
from benchmarks.trainer.few_epochs import few_epochs_section
from benchmarks.trainer.markdown import trainer_section
from benchmarks.trainer.release import release_section

PAGE = report.ROOT / "docs" / "measured.md"
_HEAD = """\
# Measured

<!-- Made by `python -m benchmarks.table` from benchmarks/results; edit nothing here. -->
This page lists every goal that we set for the project, beside the measured figure. Goals that were missed are marked.
Each section names the command, the date and the commit of its measurement. All figures are in `benchmarks/results`.

Two contenders are measured *in turns*: each round measures both, and a ratio is the median over the rounds. So a slow
moment of the machine affects both. The *load average* counts the processes that wanted a core; if it is above the
number of cores, elapsed times include waiting for other work.
"""

#: The sections of the page: for each file of results, the heading and the function that turns the figures into text.
SECTIONS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Sequence[str]]]] = {
    "accounting": ("The accounting engine", accounting_section),
    "factorisations": ("Banded matrices", factorisations_section),
    "allocations": ("Random allocation", lambda figures: list(allocations_section(figures))),
    "widths": ("Where intervals were wide", lambda figures: list(widths_section(figures))),
    "filter": ("What a budget charges", filter_section),
    "ledger": ("The ledger", ledger_section),
    "verification": ("Verification of the books", verification_section),
    "http": ("Calibrations over HTTP", http_section),
    "uploads": ("Uploads", uploads_section),
    "screens": ("Screens", screens_section),
    "first_model": ("From a clone to a first model", first_model_section),
    "runs": ("Carrying out runs", runs_section),
    "memory": ("The memory of a run", memory_section),
    "minutes": ("The minutes of a default", minutes_section),
    "sharing": ("Runs on a Dask cluster", sharing_section),
    "trainer": ("A private training step", trainer_section),
    "release": ("Exact noise and exact sums", release_section),
    "correlated": ("Correlated noise", correlated_section),
    "few_epochs": ("Correlated noise in few epochs", few_epochs_section),
    "gpu": ("A private training step on a GPU", gpu_section),
    "defaults": ("What a run attains that names data, model and target alone", defaults_section),
    "defaults_correlated": ("Correlated noise beside the defaults", correlated_defaults_section),
    "defaults_step_sizes": ("Step sizes beside the default", step_sizes_section),
    "papers": ("The papers' theorems", papers_section),
}


def measured_page() -> str:
    """Return the whole page."""
    lines = [_HEAD]
    for name, (heading, render) in SECTIONS.items():
        lines += [f"## {heading}", "", *render(report.read(name)), ""]
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(measured_page())
    sys.stdout.write(measured_page())


if __name__ == "__main__":
    main()
