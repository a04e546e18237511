"""Example sweeps for Swagger UI, which work unchanged."""

from __future__ import annotations

from typing import Any

from fastapi.openapi.models import Example

_FULL_BATCH: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "iterations": 100,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
}

SWEEP_EXAMPLES: dict[str, Example] = {
    "noise_over_epsilon": {
        "summary": "The noise for six epsilons",
        "value": {
            **_FULL_BATCH,
            "target": {"kind": "approximate_dp", "epsilon": [0.25, 0.5, 1, 2, 4, 8], "delta": 1e-6},
        },
    },
    "noise_over_iterations": {
        "summary": "The noise for longer and longer training under Poisson sampling",
        "value": {**_FULL_BATCH, "sampling": "poisson", "batch_size": 20, "iterations": [50, 100, 200]},
    },
    "iterations_over_noise": {
        "summary": "How many steps each noise allows; the first allows none",
        "value": {
            **{name: value for name, value in _FULL_BATCH.items() if name != "iterations"},
            "noise_multiplier": [1, 10, 100],
            "solve_for": "iterations",
        },
    },
}
