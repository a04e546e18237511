"""This module has the goals, each with the measured figure and whether it is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DISPATCH_MS = 50.0


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for each goal, from the sections of the results."""
    return [_dispatch(figures["dispatch"])]


def _dispatch(dispatch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "what": "time from the answer to the end of a run on public data, less the time of its training",
        "goal": f"below {DISPATCH_MS:g} ms",
        "measured": f"{dispatch['overhead']:.1f} ms (median of {dispatch['runs']} runs; the largest "
        f"{dispatch['largest_overhead']:.0f})",
        "met": dispatch["overhead"] < DISPATCH_MS,
    }
