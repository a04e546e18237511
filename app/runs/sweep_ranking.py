"""Rank a sweep's trials by a score that costs nothing beyond the sweep's own charge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from app.tables.runs import Run


def best_of(runs: Iterable[Run]) -> Run | None:
    """Return the run with the best score; None if no run has a score.

    Ids break ties. Ids are random, so ties are broken fairly. They never change, so repeating the choice gives the same
    run.
    """
    scored = [(score, run.id, run) for run in runs if (score := _score(run.result)) is not None]
    return max(scored, key=lambda each: each[:2])[2] if scored else None


def _score(result: Mapping[str, Any] | None) -> float | None:
    """Return a number that is larger for a better run."""
    if result is None:
        return None
    if result.get("noisy_score") is not None:
        return float(result["noisy_score"])
    metrics = result["metrics"]
    if not metrics:
        return None
    # The metrics of the test data come first.
    accuracy, error = metrics[0]["accuracy"], metrics[0]["mean_absolute_error"]
    score = float(accuracy) if accuracy is not None else -float(error)
    return None if math.isnan(score) else score
