"""Example audits for Swagger UI, which work unchanged on a fresh server."""

from __future__ import annotations

from fastapi.openapi.models import Example

AUDIT_EXAMPLES: dict[str, Example] = {
    "one_full_batch_step": {
        "summary": "One full-batch step of DP-SGD at mu = 1, 100,000 canaries",
        "value": {
            "calibration": {
                "algorithm": "dp_sgd",
                "dataset_size": 1000,
                "iterations": 1,
                "sampling": "full_batch",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "gaussian_dp", "mu": 1},
                "hyperparameters": {"step_size": 0.1},
            },
            "trials": 100000,
        },
    },
    "one_run": {
        "summary": "Many canaries in a single run of DP-NSGD under Poisson sampling",
        "value": {
            "calibration": {
                "algorithm": "dp_nsgd",
                "dataset_size": 1000,
                "batch_size": 100,
                "iterations": 50,
                "sampling": "poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "normalize", "regularizer": 0.5},
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.1},
            },
            "method": "one_run",
            "trials": 500,
        },
    },
}
