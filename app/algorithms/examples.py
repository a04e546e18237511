"""Requests that run as they stand, for Swagger UI."""

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
}


def _poisson(unknown: str, **changes: Any) -> dict[str, Any]:
    """A request under Poisson sampling with everything given but the unknown."""
    body: dict[str, Any] = {
        "algorithm": "dp_sgd",
        "dataset_size": 50000,
        "batch_size": 500,
        "iterations": 2000,
        "sampling": "poisson",
        "neighboring_relation": "add_or_remove_one",
        "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
        "noise_multiplier": 1.2,
        "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
        "solve_for": unknown,
        **changes,
    }
    body.pop(unknown, None)
    return body


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
    "dp_sgd_gradient_theorem": {
        "summary": "DP-SGD-Gradient for a 1.5-norm hinge in the unit ball: noise, step size, explicit bound",
        "value": {
            "algorithm": "dp_sgd_gradient",
            "dataset_size": 10000,
            "dimension": 50,
            "iterations": 10000,
            "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-6},
            "assumptions": {
                "holder_exponent": 0.5,
                "holder_constant": 1.5,
                "gradient_at_zero": 1.5,
                "loss_at_zero": 1,
                "radius": 1,
                "failure_probability": 0.05,
            },
        },
    },
    "dp_gd_theorem": {
        "summary": "DP-GD under the Polyak-Lojasiewicz inequality; the theorem chooses the number of steps",
        "value": {
            "algorithm": "dp_gd",
            "dataset_size": 10000,
            "dimension": 10,
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {"smoothness": 1, "initial_gap": 1, "pl_constant": 0.1},
        },
    },
    "clipped_sgd_strongly_convex_theorem": {
        "summary": "Noisy clipped SGD with heavy-tailed gradients: steps, clip threshold and schedule from moments",
        "value": {
            "algorithm": "clipped_sgd_strongly_convex",
            "dataset_size": 20000,
            "dimension": 10,
            "target": {"kind": "zcdp", "rho": 0.5},
            "assumptions": {
                "smoothness": 4,
                "strong_convexity": 1,
                "diameter": 2,
                "moment_order": 3,
                "moment_bound": 2,
            },
        },
    },
    "tree_sfw_l1_theorem": {
        "summary": "Tree Frank-Wolfe over the l1 ball: the scale of Gumbel noise in each tree",
        "value": {
            "algorithm": "tree_sfw_l1",
            "dataset_size": 50000,
            "dimension": 50,
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {"lipschitz": 2, "smoothness": 1, "radius": 1},
        },
    },
    "tree_sfw_l1_pure": {
        "summary": "The same with pure differential privacy",
        "value": {
            "algorithm": "tree_sfw_l1",
            "dataset_size": 50000,
            "dimension": 50,
            "target": {"kind": "pure_dp", "epsilon": 1},
            "assumptions": {"lipschitz": 2, "smoothness": 1, "radius": 1},
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
    **{
        f"solve_for_{unknown}": {"summary": summary, "value": _poisson(unknown, **changes)}
        for unknown, summary, changes in (
            ("iterations", "The most steps that noise 1.2 allows within epsilon 3", {}),
            ("batch_size", "The largest batch that noise 1.2 allows within epsilon 3", {}),
            (
                "epsilon",
                "What 2000 steps of noise 1.2 cost at delta 1e-5",
                {"target": {"kind": "approximate_dp", "delta": 1e-5}},
            ),
            (
                "delta",
                "What 2000 steps of noise 1.2 cost at epsilon 3",
                {"target": {"kind": "approximate_dp", "epsilon": 3}},
            ),
        )
    },
    **{
        f"target_{name}": {"summary": summary, "value": {**_FULL_BATCH, "target": target}}
        for name, summary, target in (
            ("zcdp", "Full batches within rho 0.5 of zCDP", {"kind": "zcdp", "rho": 0.5}),
            ("gaussian_dp", "Full batches within mu 1 of Gaussian DP", {"kind": "gaussian_dp", "mu": 1}),
            ("advantage", "An attack's advantage of 0.2 at most", {"kind": "attack_risk", "advantage": 0.2}),
            (
                "true_positive_rate",
                "At most 5 % of members found where 1 % of others are taken for members",
                {"kind": "attack_risk", "fpr": 0.01, "tpr": 0.05},
            ),
        )
    },
}
