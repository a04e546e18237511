"""This module finds the grid's best setting: every setting runs with one seed, then the finalists with all seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.defaults.kept import Scorer
from benchmarks.defaults.protocol import GRID, SEEDS, Split
from benchmarks.defaults.trials import plan_of


def best_of_grid(split: Split, epsilon: float, score: Scorer, say: Callable[[str], object]) -> dict[str, Any]:
    """Return the grid's best setting at one epsilon, its scores by seed, and the score of every setting with one
    seed."""
    plans = [plan_of(setting, len(split.labels), epsilon) for setting in GRID]
    screened = [score(plan, SEEDS[0]) for plan in plans]
    finalists = sorted(range(len(GRID)), key=lambda index: -screened[index])[: split.finalists]
    scores = {index: [screened[index], *(score(plans[index], seed) for seed in SEEDS[1:])] for index in finalists}
    best = max(finalists, key=lambda index: float(np.mean(scores[index])))
    say(f"  epsilon {epsilon:g}: {np.mean(scores[best]):.4f} by {GRID[best]}\n")
    return {"setting": asdict(GRID[best]), "scores": scores[best], "screened": screened}
