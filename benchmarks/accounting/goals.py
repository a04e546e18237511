"""This module has the goals, each with the measured figure and whether it is met. A goal must hold in the worst
case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.accounting.peers import PLD
from benchmarks.accounting.quality import LARGE_EPSILON

FASTER_EPSILON, FASTER_CALIBRATION = 50.0, 100.0
FLAT = 1.5
SLOW_MILLISECONDS = 50.0
NARROW_SHARE = 0.98
SMALLER_FIXED_SIZE = 1.6
UNUSED_EPSILON = 1e-4


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for each goal, from the sections of the results."""
    named, trainings = figures["epsilon_calibrated"], figures["epsilon_trainings"]
    width, targets, slow = figures["width"], figures["targets"], figures["few_participations"]
    calibrated = [row["ours"] for row in figures["calibration"]]
    unused = max([row["unused_epsilon"] for row in calibrated] + [targets["largest_unused_epsilon"]])
    misses = targets["missed"] + sum(row["unused_epsilon"] < 0.0 for row in calibrated)
    share = width["narrow"] / width["specs"]
    fixed = [row.get("epsilon_over_ours", 0.0) for row in figures["fixed_size"]]
    flat = [row["ratio"] for row in figures["flatness"]]
    return [
        _faster(f"one epsilon, compared with {PLD.name}: the {len(named)} calibrated runs", named, FASTER_EPSILON),
        _faster(f"one epsilon, compared with {PLD.name}: {len(trainings)} training runs", trainings, FASTER_EPSILON),
        _faster(
            f"one calibrated noise multiplier, compared with {PLD.name}", figures["calibration"], FASTER_CALIBRATION
        ),
        {
            "what": "cost flat in the number of steps: time at 1e6 steps over time at 1e3 steps, at the same epsilon",
            "goal": f"at most {FLAT:g} times",
            "measured": f"{min(flat):.2f} to {max(flat):.2f} times",
            "met": max(flat) <= FLAT,
        },
        {
            "what": f"few participations, {slow['cases']} random runs of 2 to 100 steps: median time of one epsilon",
            "goal": f"at most {SLOW_MILLISECONDS:g} ms",
            "measured": f"{slow['median_epsilon_milliseconds']:.1f} ms "
            f"(longest {slow['largest_epsilon_milliseconds']:.0f} ms)",
            "met": slow["median_epsilon_milliseconds"] <= SLOW_MILLISECONDS,
        },
        {
            "what": f"width at most max(1e-6, 1e-6 epsilon) (beyond epsilon {LARGE_EPSILON:g}: 1e-3 epsilon), "
            f"{width['specs']} wide random runs",
            "goal": f"at least {100 * NARROW_SHARE:g} %, all finite",
            "measured": f"{100 * share:.1f} %, {width['finite']} of {width['specs']} finite",
            "met": share >= NARROW_SHARE and width["finite"] == width["specs"] and not width["exceptions"],
        },
        {
            "what": "fixed-size batches: epsilon of dp-accounting's event over ours",
            "goal": f"at least {SMALLER_FIXED_SIZE:g} times",
            "measured": f"{min(fixed):.2f} to {max(fixed):.2f} times",
            "met": min(fixed) >= SMALLER_FIXED_SIZE,
        },
        {
            "what": f"calibration, {targets['targets'] + len(calibrated)} targets: missed targets; epsilon left unused",
            "goal": f"0; at most {UNUSED_EPSILON:g}",
            "measured": f"{misses}; at most {unused:.1e}",
            "met": misses == 0 and unused <= UNUSED_EPSILON,
        },
    ]


def _faster(what: str, rows: Iterable[Mapping[str, Any]], goal: float) -> dict[str, Any]:
    asked = f"at least {goal:g} times faster"
    answers = [row["peers"][PLD.name] for row in rows]
    # A library that returns no number, or infinity, has no answer, even if it returns fast.
    known = [answer["ratio"] for answer in answers if math.isfinite(float(answer.get("value", "nan")))]
    if not known:
        return {"what": what, "goal": asked, "measured": "no answer to compare", "met": False}
    unanswered = f"; no finite number for {len(answers) - len(known)}" if len(known) < len(answers) else ""
    measured = f"{min(known):.0f} to {max(known):.0f} times{unanswered}"
    return {"what": what, "goal": asked, "measured": measured, "met": min(known) >= goal}
