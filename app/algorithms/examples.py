"""Requests that run as they stand, for Swagger UI."""

from __future__ import annotations

from fastapi.openapi.models import Example

CALIBRATE_EXAMPLES: dict[str, Example] = {
    "dp_sgd_poisson": {
        "summary": "DP-SGD, Poisson batches, epsilon 8",
        "value": {
            "algorithm": "dp_sgd",
            "dataset_size": 50000,
            "batch_size": 1000,
            "iterations": 5000,
            "sampling": "poisson",
            "neighboring_relation": "add_or_remove_one",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
        },
    },
    "dp_nsgd_theorem": {
        "summary": "DP-NSGD with the constants its theorem needs: step size and gradient bound",
        "value": {
            "algorithm": "dp_nsgd",
            "dataset_size": 50000,
            "dimension": 100,
            "batch_size": 1000,
            "iterations": 5000,
            "sampling": {"kind": "poisson"},
            "neighboring_relation": "add_or_remove_one",
            "gradient_bound": {"kind": "normalize", "regularizer": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
            "assumptions": {
                "initial_gap": 2,
                "generalized_smoothness_l0": 1,
                "generalized_smoothness_l1": 0.5,
                "deviation_tau0": 0.3,
                "deviation_tau1": 0.2,
            },
        },
    },
    "full_batch_replace_one": {
        "summary": "Full batches, replace-one: the sensitivity doubles",
        "value": {
            "algorithm": "dp_sgd",
            "dataset_size": 1000,
            "iterations": 100,
            "sampling": "full_batch",
            "neighboring_relation": "replace_one",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
        },
    },
}
