"""This module writes the part of docs/measured.md about calibrations over HTTP, from the committed figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report import commit_of, goals_table, markdown_table

Figures = Mapping[str, Any]


def http_section(figures: Figures) -> list[str]:
    """Return the lines of the section."""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    commit = commit_of(figures)
    return [
        f"`make bench-http`, {figures['date']}, {commit}; {versions}.",
        "One server process, with everything that it starts, has one core. The load comes from another core over "
        f"{figures['connections']} open connections, each of which sends its next request",
        "as soon as it has an answer. The engine alone is measured on the server's core. All are measured in turns, "
        f"and a ratio is the median over {figures['rounds']} rounds",
        "of the service's rate over that of the other side. CPU times are measured with one connection, and count all "
        "processes of the server.",
        f"The load average was {figures['load_average_before']:.1f} before.",
        "All figures, with each round, are in [http.json](../benchmarks/results/http.json).",
        "",
        *goals_table(figures["goals"]),
        "",
        *markdown_table(["", "a second", "p50, ms", "p99, ms", "ratio", "server CPU, ms"], _rows(figures)),
    ]


def _rows(figures: Figures) -> Iterator[list[str]]:
    for row in figures["new"]:
        yield _row(f"the engine, {row['kind']}", row["engine"], None)
        yield _row(f"new over HTTP, {row['kind']}", row["http"], row["over_engine"], row["cpu_milliseconds"])
    remembered = figures["remembered"]
    for path, bare in remembered["bare"].items():
        yield _row(f"bare `{path}`, {figures['answer_bytes']} bytes", bare, None)
    for path, ratio in remembered["over_bare"].items():
        yield _row(f"remembered over HTTP, beside `{path}`", remembered["http"], ratio)


def _row(name: str, row: Figures, ratio: Figures | None, cpu: float | None = None) -> list[str]:
    shown = (
        "" if ratio is None else f"{ratio['ratio']:.2f} ({ratio['smallest_ratio']:.2f} to {ratio['largest_ratio']:.2f})"
    )
    return [
        name,
        f"{row['per_second']:.0f}",
        f"{row['p50_milliseconds']:.1f}",
        f"{row['p99_milliseconds']:.1f}",
        shown,
        "" if cpu is None else f"{cpu:.2f}",
    ]
