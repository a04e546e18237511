"""This module stores each score as soon as it is measured. A command that was stopped goes on from there if its code is
the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks import report
from benchmarks.defaults.protocol import Split
from benchmarks.defaults.trials import score
from calibrators.plan import Plan

Scorer = Callable[[Plan, int], float]
KEPT = report.ROOT / ".bench-defaults"


def scorer(name: str, split: Split, source: str, folder: Path) -> Scorer:
    """Return a function that trains by a plan with a seed and returns the model's score. If the score of the same run
    is stored, the function reads it instead.

    Args:
        name: The name of the data set.
        split: The rows of the data set.
        source: The hash of the code that trains. Scores of code with another hash are not read.
        folder: The folder for the scores; it is created if it does not exist.
    """
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{source[:16]}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    known: dict[tuple[str, int], float] = {
        (plan_hash, seed): value for plan_hash, seed, value in map(json.loads, lines)
    }

    def scored(plan: Plan, seed: int) -> float:
        run = plan.plan_hash, seed
        if run not in known:
            known[run] = score(split, plan, seed)
            with path.open("a") as file:
                file.write(json.dumps([*run, known[run]]) + "\n")
        return known[run]

    return scored
