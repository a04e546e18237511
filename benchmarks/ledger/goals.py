"""This module has the goals, each with the measured figure and whether it is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OVER_PGBENCH = 0.4
OVER_BARE_HTTP = 0.3
FLAT = 1.5


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for each goal, from the sections of the results."""
    return [
        _over_pgbench(figures["throughput"]),
        _hot_budget(figures["hot_budget"]),
        _over_bare_http(figures["over_http"]),
        *map(_flat, figures["reading"]),
    ]


def _over_pgbench(throughput: Mapping[str, Any]) -> dict[str, Any]:
    """Return the goal for the comparison with pgbench. Each filter has to reach it with its best number of processes,
    since pgbench also has its best number of clients."""
    mode, clients = throughput["headline"]["mode"], throughput["headline"]["clients"]
    best: dict[str, tuple[float, int]] = {}
    for row in throughput["ours"]:
        reached = (row[f"over_{mode}"]["ratio"], row["processes"])
        best[row["filter"]] = max(reached, best.get(row["filter"], reached))
    return {
        "what": f"reserve and commit in process, {throughput['budgets']} budgets: commands a second over pgbench's "
        f"transactions a second (TPC-B, `-M {mode} -c {clients}`)",
        "goal": f"at least {OVER_PGBENCH:g}",
        "measured": ", ".join(
            f"{ratio:.3f} ({kind}, {_processes(processes)}; in pairs {ratio / 2:.3f})"
            for kind, (ratio, processes) in best.items()
        ),
        "met": min(ratio for ratio, _ in best.values()) >= OVER_PGBENCH,
    }


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


def _hot_budget(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    threads, processes = rows[0]["threads"], rows[0]["processes"]
    return {
        "what": f"one budget, {threads} threads in {processes} processes: whether exactly as much is admitted as "
        "fits; commands that the database made a client repeat",
        "goal": "exactly; 0",
        "measured": "; ".join(
            f"{row['filter']}: {'exactly' if row['exact'] else 'NOT exactly'}, {row['retries']} "
            f"({row['admitted_per_second']:.0f} admitted a second)"
            for row in rows
        ),
        "met": all(row["exact"] and row["retries"] == 0 and row["admitted"] > 0 for row in rows),
    }


def _over_bare_http(http: Mapping[str, Any]) -> dict[str, Any]:
    ratios = {row["filter"]: row["over_bare"][http["headline"]]["ratio"] for row in http["ours"]}
    return {
        "what": "reserve and commit over HTTP: requests a second over a bare FastAPI endpoint's "
        f"(`{http['headline']}`, {http['connections']} connections)",
        "goal": f"at least {OVER_BARE_HTTP:g}",
        "measured": ", ".join(f"{ratio:.3f} ({kind})" for kind, ratio in ratios.items()),
        "met": min(ratios.values()) >= OVER_BARE_HTTP,
    }


def _flat(reading: Mapping[str, Any]) -> dict[str, Any]:
    plain, report = reading["budget"], reading["report"]
    return {
        "what": f"reading a budget, {reading['database']}: time with {reading['many']:g} entries over time with "
        f"{reading['few']:g}",
        "goal": f"at most {FLAT:g} times",
        "measured": f"{plain['ratio']:.2f} times ({plain['many_milliseconds']:.1f} ms), with its report "
        f"{report['ratio']:.2f} times ({report['many_milliseconds']:.1f} ms)",
        "met": max(plain["ratio"], report["ratio"]) <= FLAT,
    }
