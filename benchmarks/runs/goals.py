"""The goals, each with the figure that was measured and whether it is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DISPATCH_MS = 50.0
ON_TWO_OVER_ONE = 1.7


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``{"what", "goal", "measured", "met"}`` for each goal, from the sections of the results."""
    return [_dispatch(figures["dispatch"]), _sharing(figures["on_dask"])]


def _dispatch(dispatch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "what": "a run on public data, from its answer to its end, less its training",
        "goal": f"below {DISPATCH_MS:g} ms",
        "measured": f"{dispatch['overhead']:.1f} ms (median of {dispatch['runs']} runs; the largest "
        f"{dispatch['largest_overhead']:.0f})",
        "met": dispatch["overhead"] < DISPATCH_MS,
    }


def _sharing(on_dask: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "what": f"{on_dask['runs']} short runs on one Dask worker over the same on two",
        "goal": f"at least {ON_TWO_OVER_ONE:g} times as long",
        "measured": f"{on_dask['ratio']:.2f} ({on_dask['one']:.1f} s and {on_dask['two']:.1f} s)",
        "met": on_dask["ratio"] >= ON_TWO_OVER_ONE,
    }
