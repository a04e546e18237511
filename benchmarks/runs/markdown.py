"""This module writes the part of docs/measured.md about carrying out runs, from the committed figures alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.report import commit_of, goals_table


def runs_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the section: a table of goals."""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    commit = commit_of(figures)
    return [
        f"`make bench-runs`, {figures['date']}, {commit}, {figures['cores']} cores that service and "
        f"workers share; {versions}.",
        "All figures are in [runs.json](../benchmarks/results/runs.json).",
        "",
        *goals_table(figures["goals"]),
    ]
