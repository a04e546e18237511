"""The goals, each with the figure that was measured and whether it is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OVER_ENGINE = 0.5
OVER_BARE = 0.7


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``{"what", "goal", "measured", "met"}`` for each goal, from the sections of the results."""
    return [*(_new(row) for row in figures["new"]), _remembered(figures["remembered"], figures["headline"])]


def _new(row: Mapping[str, Any]) -> dict[str, Any]:
    ratio = row["over_engine"]["ratio"]
    return {
        "what": f"new calibrations over HTTP over what the engine does in process, {row['kind']}",
        "goal": f"at least {OVER_ENGINE:g}",
        "measured": f"{ratio:.2f} ({row['http']['per_second']:.0f} and {row['engine']['per_second']:.0f} a second)",
        "met": ratio >= OVER_ENGINE,
    }


def _remembered(remembered: Mapping[str, Any], headline: str) -> dict[str, Any]:
    ratio, bare = remembered["over_bare"][headline]["ratio"], remembered["bare"][headline]
    return {
        "what": f"a remembered calibration over a bare FastAPI endpoint (`{headline}`) that answers as many bytes",
        "goal": f"at least {OVER_BARE:g}",
        "measured": f"{ratio:.2f} ({remembered['http']['per_second']:.0f} and {bare['per_second']:.0f} a second)",
        "met": ratio >= OVER_BARE,
    }
