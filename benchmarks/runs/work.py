"""This module has the requests of the benchmark: a budget that admits every run, and short runs that it pays for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BUDGET: Mapping[str, Any] = {
    "name": "runs",
    "neighboring_relation": "add_or_remove_one",
    "filter": {"kind": "zcdp", "rho": 1e6},
}


def run_request(budget_id: str, dataset_id: str, model: str, iterations: int, **more: Any) -> dict[str, Any]:
    """Return the request for a run on full batches of public rows. On private rows, the end of a run is delayed to a
    whole number of seconds."""
    return {
        "algorithm": "dp_sgd",
        "dataset_id": dataset_id,
        "model": {"kind": model},
        "iterations": iterations,
        "sampling": "full_batch",
        "neighboring_relation": "add_or_remove_one",
        "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
        "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
        "hyperparameters": {"step_size": 0.5},
        "budget_id": budget_id,
        **more,
    }
