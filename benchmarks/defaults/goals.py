"""This module has the goal for each data set, with the measured figures and whether the goal is met."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.defaults.protocol import EPSILONS, MARGIN


def mean_and_error(scores: Sequence[float]) -> tuple[float, float]:
    """Return the mean over seeds and its standard error."""
    return float(np.mean(scores)), float(np.std(scores, ddof=1)) / math.sqrt(len(scores))


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for each data set. A goal must be met at each
    epsilon."""
    return [_of_set(name, found) for name, found in figures["sets"].items()]


def _of_set(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    below = {
        epsilon: mean_and_error(each["scores"])[0] - mean_and_error(found["preset"][epsilon]["scores"])[0]
        for epsilon, each in found["grid"].items()
    }
    missing = [f"{epsilon:g}" for epsilon in EPSILONS if f"{epsilon:g}" not in below]
    worst = max(below, key=lambda epsilon: below[epsilon], default=None)
    told = [] if worst is None else [f"{below[worst]:.4f} at epsilon {worst}, the worst of {len(below)}"]
    told += [f"the grid was not measured at {', '.join(missing)}"] if missing else []
    unit = "R^2" if found["model"] == "linear_regression" else "accuracy"
    held_back = ", held back" if found["held_back"] else ""
    return {
        "what": f"{name}{held_back}: how far the preset's {unit} is below the grid's best",
        "goal": f"at most {MARGIN:g} at each epsilon",
        "measured": "; ".join(told),
        "met": not missing and max(below.values()) <= MARGIN,
    }
