"""This module has the goals, each with the measured figure and whether it is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.trainer.work import MODELS

OVER_TORCH = {"softmax": 1.3, "mlp": 1.6}
#: Our kinds of batches, and the name of the ratio of each.
BATCHES = {
    "Poisson batches": "over_torch",
    "Poisson batches that are cut": "cut_over_torch",
    "batches of a fixed size": "fixed_over_torch",
}
HOOKS_OVER_OURS = {"softmax": 5.0, "mlp": 50.0}
GHOST_OVER_OURS = 1.0
MEMORY_OVER_TORCH = 1.5

NAMES = {
    "softmax": "softmax regression 784-10",
    "mlp": "perceptron 784-256-10",
    "linear": "least squares 100-1, 10^6 rows",
}


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for each goal. A goal is met if every batch size meets
    it."""
    speed = figures["speed"]
    return [
        *(_over_torch(model, batches, _of(speed, model)) for model in MODELS for batches in BATCHES),
        *(_hooks(model, _of(speed, model)) for model in MODELS),
        *(_ghost(model, _of(speed, model)) for model in MODELS),
        _memory(figures["memory"]),
    ]


def _of(rows: Sequence[Mapping[str, Any]], model: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["model"] == model]


def _over_torch(model: str, batches: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    most, ratio = OVER_TORCH[model], BATCHES[batches]
    return {
        "what": f"{NAMES[model]}: time of a private step, {batches}, over that of a plain torch SGD step",
        "goal": f"at most {most:g}",
        "measured": _measured(rows, ratio),
        "met": all(row["ratios"][ratio]["ratio"] <= most for row in rows),
    }


def _hooks(model: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    least = HOOKS_OVER_OURS[model]
    return {
        "what": f"{NAMES[model]}: time of a step of Opacus' hooks over ours",
        "goal": f"at least {least:g}",
        "measured": _measured(rows, "hooks_over_ours"),
        "met": all(row["ratios"]["hooks_over_ours"]["ratio"] >= least for row in rows),
    }


def _ghost(model: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "what": f"{NAMES[model]}: time of a step of Opacus' ghost clipping over ours",
        "goal": f"above {GHOST_OVER_OURS:g}",
        "measured": _measured(rows, "ghost_over_ours"),
        "met": all(row["ratios"]["ghost_over_ours"]["ratio"] > GHOST_OVER_OURS for row in rows),
    }


def _memory(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "what": "peak memory of the whole process over plain torch's, with the same data and steps",
        "goal": f"at most {MEMORY_OVER_TORCH:g}",
        "measured": ", ".join(f"{row['over_torch']:.2f} ({row['model']}, {row['batch_size']})" for row in rows),
        "met": all(row["over_torch"] <= MEMORY_OVER_TORCH for row in rows),
    }


def _measured(rows: Sequence[Mapping[str, Any]], ratio: str) -> str:
    return ", ".join(f"{row['ratios'][ratio]['ratio']:.2f} (batches of {row['batch_size']})" for row in rows)
