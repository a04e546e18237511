"""Example sweeps of runs for Swagger UI, which work unchanged on a fresh server."""

from __future__ import annotations

from typing import Any

from fastapi.openapi.models import Example

_RUN: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_id": "ds_breast_cancer",
    "model": {"kind": "logistic_regression"},
    "iterations": 40,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.5},
}

RUN_SWEEP_EXAMPLES: dict[str, Example] = {
    "step_sizes": {
        "summary": "Four step sizes by three clip thresholds, all of them released: a heat map of accuracies",
        "value": {
            **_RUN,
            "gradient_bound": {"kind": "clip", "max_grad_norm": [0.25, 0.5, 1.0]},
            "hyperparameters": {"step_size": [0.125, 0.25, 0.5, 1.0]},
            "select": "all",
        },
    },
    "epsilons": {
        "summary": "What accuracy costs: one run for each epsilon",
        "value": {
            **_RUN,
            "target": {"kind": "approximate_dp", "epsilon": [0.5, 1, 2, 4], "delta": 1e-5},
            "select": "all",
        },
    },
    "best": {
        "summary": "The best of about four trials, as many as a secret number says; all others are withheld",
        "value": {
            **_RUN,
            "hyperparameters": {"step_size": [0.125, 0.25, 0.5, 1.0]},
            "select": "best",
            "trials": {"kind": "geometric", "expected_trials": 4},
            "score": {"kind": "public"},
        },
    },
    "best_by_noisy_score": {
        "summary": "The same, where the training rows are scored with noise that is charged",
        "value": {
            **_RUN,
            "hyperparameters": {"step_size": [0.125, 0.25, 0.5, 1.0]},
            "select": "best",
            "trials": {"kind": "poisson", "expected_trials": 3},
            "score": {"kind": "noisy", "noise_multiplier": 10},
            "release_after_s": 5,
        },
    },
}
