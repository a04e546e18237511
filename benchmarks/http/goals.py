"""This module has the goals, each with the measured figure and whether it is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The CPU time of the server for one new calibration, in milliseconds.
CPU_MILLISECONDS = {"Poisson batches": 8.0, "full batches": 2.0}
OVER_BARE = 0.7


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for each goal, from the sections of the results."""
    return [*(_new(row) for row in figures["new"]), _remembered(figures["remembered"], figures["headline"])]


def _new(row: Mapping[str, Any]) -> dict[str, Any]:
    most, took = CPU_MILLISECONDS[row["kind"]], row["cpu_milliseconds"]
    return {
        "what": f"CPU time of the server for a new calibration, {row['kind']}",
        "goal": f"at most {most:g} ms",
        "measured": f"{took:.2f} ms (the engine in process: {row['engine']['p50_milliseconds']:.2f} ms)",
        "met": took <= most,
    }


def _remembered(remembered: Mapping[str, Any], headline: str) -> dict[str, Any]:
    ratio, bare = remembered["over_bare"][headline]["ratio"], remembered["bare"][headline]
    return {
        "what": "rate of remembered calibrations, over that of a bare FastAPI endpoint "
        f"(`{headline}`) that answers with as many bytes",
        "goal": f"at least {OVER_BARE:g}",
        "measured": f"{ratio:.2f} ({remembered['http']['per_second']:.0f} and {bare['per_second']:.0f} a second)",
        "met": ratio >= OVER_BARE,
    }
