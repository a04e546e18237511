"""Runs that work as they stand on a fresh server, for Swagger UI."""

from __future__ import annotations

from fastapi.openapi.models import Example

RUN_EXAMPLES: dict[str, Example] = {
    "digits": {
        "summary": "Softmax regression on the bundled digits, DP-NSGD; the step size comes from the theorem",
        "value": {
            "algorithm": "dp_nsgd",
            "dataset_id": "ds_digits",
            "model": {"kind": "softmax_regression"},
            "batch_size": 256,
            "iterations": 400,
            "sampling": "poisson",
            "neighboring_relation": "add_or_remove_one",
            "gradient_bound": {"kind": "normalize", "regularizer": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
        },
    },
    "breast_cancer": {
        "summary": "Logistic regression on the bundled breast cancer data, DP-SGD with a chosen step size",
        "value": {
            "algorithm": "dp_sgd",
            "dataset_id": "ds_breast_cancer",
            "model": {"kind": "logistic_regression"},
            "batch_size": 100,
            "iterations": 200,
            "sampling": "poisson",
            "neighboring_relation": "add_or_remove_one",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
            "hyperparameters": {"step_size": 0.5},
            "seed": 1,
        },
    },
    "q_norm_hinge": {
        "summary": "DP-SGD-Gradient for a support vector machine with a 1.5-norm hinge, in a ball",
        "value": {
            "algorithm": "dp_sgd_gradient",
            "dataset_id": "ds_breast_cancer",
            "model": {"kind": "q_norm_hinge", "q": 1.5},
            "iterations": 1000,
            "batch_size": 10,
            "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
            "assumptions": {"radius": 1, "failure_probability": 0.05},
        },
    },
    "gradient_descent": {
        "summary": "DP-GD: logistic regression on all records in every step, with an l2 penalty",
        "value": {
            "algorithm": "dp_gd",
            "dataset_id": "ds_breast_cancer",
            "model": {"kind": "logistic_regression"},
            "iterations": 50,
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
            "penalty": {"kind": "l2", "strength": 0.01},
            "assumptions": {"pl_constant": 0.01},
            "hyperparameters": {"step_size": 0.5},
        },
    },
    "strongly_convex": {
        "summary": "Noisy clipped SGD in one pass over the digits, made strongly convex by an l2 penalty",
        "value": {
            "algorithm": "clipped_sgd_strongly_convex",
            "dataset_id": "ds_digits",
            "model": {"kind": "softmax_regression"},
            "iterations": 5,
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "zcdp", "rho": 2},
            "penalty": {"kind": "l2", "strength": 1.0},
            "assumptions": {"strong_convexity": 1.0, "smoothness": 33.5, "diameter": 4},
        },
    },
    "frank_wolfe": {
        "summary": "Tree Frank-Wolfe: sparse logistic regression in an l1 ball, with pure differential privacy",
        "value": {
            "algorithm": "tree_sfw_l1",
            "dataset_id": "ds_breast_cancer",
            "model": {"kind": "logistic_regression"},
            "iterations": 3,
            "target": {"kind": "pure_dp", "epsilon": 4},
            "assumptions": {"radius": 2},
        },
    },
    "multilayer_perceptron": {
        "summary": "DP-SGD on a small neural network",
        "value": {
            "algorithm": "dp_sgd",
            "dataset_id": "ds_digits",
            "model": {"kind": "mlp", "hidden": [64]},
            "batch_size": 256,
            "iterations": 200,
            "sampling": "poisson",
            "neighboring_relation": "add_or_remove_one",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
            "hyperparameters": {"step_size": 1.0},
        },
    },
}
