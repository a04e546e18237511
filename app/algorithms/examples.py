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
    "dp_adam_poisson": {
        "summary": "DP-Adam, Poisson batches; the step size is the caller's",
        "value": {
            "algorithm": "dp_adam",
            "dataset_size": 50000,
            "batch_size": 1000,
            "iterations": 2000,
            "sampling": "poisson",
            "neighboring_relation": "add_or_remove_one",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
            "hyperparameters": {"step_size": 0.001},
        },
    },
    "dp_nadam_replace_one": {
        "summary": "DP-NAdam (normalised Adam) in the paper's own setting: batches of a fixed size, replace-one",
        "value": {
            "algorithm": "dp_nadam",
            "dataset_size": 50000,
            "batch_size": 1000,
            "iterations": 2000,
            "gradient_bound": {"kind": "normalize", "regularizer": 0.1},
            "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
            "hyperparameters": {"step_size": 0.001},
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
    "dp_sgd_output_theorem": {
        "summary": "DP-SGD-Output for a 1.5-norm hinge in the unit ball: noise on the average alone",
        "value": {
            "algorithm": "dp_sgd_output",
            "dataset_size": 100000,
            "dimension": 50,
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
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
    "dp_accmd_theorem": {
        "summary": "DP-AccMD in the l1 ball, in its private form; the bound chooses the number of steps",
        "value": {
            "algorithm": "dp_accmd",
            "dataset_size": 10000,
            "dimension": 1000,
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {"smoothness": 1, "radius": 1, "norm_order": 1},
        },
    },
    "clipped_acsa_theorem": {
        "summary": "Clipped accelerated SGD, convex losses with four moments: steps, clip threshold and step size",
        "value": {
            "algorithm": "clipped_acsa",
            "dataset_size": 100000,
            "dimension": 50,
            "target": {"kind": "zcdp", "rho": 0.1},
            "assumptions": {"smoothness": 2, "diameter": 1, "moment_order": 4, "moment_bound": 2},
        },
    },
    "dp_svrg_theorem": {
        "summary": "DP-SVRG with its safe noise: step size, inner steps and bound from strong convexity",
        "value": {
            "algorithm": "dp_svrg",
            "dataset_size": 100000,
            "dimension": 10,
            "iterations": 12,
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "penalty": {"kind": "l2", "strength": 0.1},
            "assumptions": {"smoothness": 1, "strong_convexity": 0.1, "initial_gap": 1},
        },
    },
    "dp_svrg_pp_theorem": {
        "summary": "DP-SVRG++ with its safe noise: epochs that double, for convex losses",
        "value": {
            "algorithm": "dp_svrg_pp",
            "dataset_size": 100000,
            "dimension": 10,
            "iterations": 8,
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {"smoothness": 1, "initial_gap": 0.5, "initial_distance": 2},
        },
    },
    "clipped_mean": {
        "summary": "The clipped noisy mean of records with three moments: threshold, noise, error",
        "value": {
            "algorithm": "clipped_mean",
            "dataset_size": 10000,
            "dimension": 10,
            "target": {"kind": "zcdp", "rho": 0.5},
            "assumptions": {"moment_order": 3, "moment_bound": 2, "moment_bound_2": 1.5},
        },
    },
    "clipped_prox_sgd_theorem": {
        "summary": "Clipped proximal SGD under the proximal PL inequality: steps and clip threshold from moments",
        "value": {
            "algorithm": "clipped_prox_sgd",
            "dataset_size": 50000,
            "dimension": 10,
            "target": {"kind": "zcdp", "rho": 0.5},
            "penalty": {"kind": "l1", "strength": 0.1},
            "assumptions": {
                "smoothness": 4,
                "pl_constant": 1,
                "initial_gap": 8,
                "moment_order": 3,
                "moment_bound": 2,
            },
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
    "localized_clipped_strongly_convex_theorem": {
        "summary": "The same for strongly convex losses: runs on ever more records, each from the last one's end",
        "value": {
            "algorithm": "localized_clipped_strongly_convex",
            "dataset_size": 1000000,
            "dimension": 20,
            "target": {"kind": "zcdp", "rho": 0.5},
            "assumptions": {
                "strong_convexity": 0.5,
                "diameter": 2,
                "moment_order": 4,
                "moment_bound_2k": 1.5,
                "moment_bound_2": 1.2,
                "moment_bound_1": 1,
                "lipschitz": 3,
            },
        },
    },
    "localized_clipped_subgradient_theorem": {
        "summary": "Localised clipped subgradients, convex losses without smoothness: blocks, steps, clip thresholds",
        "value": {
            "algorithm": "localized_clipped_subgradient",
            "dataset_size": 1000000,
            "dimension": 20,
            "target": {"kind": "zcdp", "rho": 0.5},
            "assumptions": {
                "diameter": 2,
                "moment_order": 4,
                "moment_bound_2k": 1.5,
                "moment_bound_2": 1.2,
                "moment_bound_1": 1,
                "lipschitz": 3,
            },
        },
    },
    "dp_fw_theorem": {
        "summary": "Full-batch Frank-Wolfe over the l1 ball; the bound chooses the number of steps",
        "value": {
            "algorithm": "dp_fw",
            "dataset_size": 10000,
            "dimension": 50,
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {"lipschitz": 2, "smoothness": 1, "radius": 1},
        },
    },
    "poly_sfw_theorem": {
        "summary": "Frank-Wolfe over the l1 ball in one pass, with an estimate that every record corrects",
        "value": {
            "algorithm": "poly_sfw",
            "dataset_size": 200000,
            "dimension": 50,
            "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-6},
            "assumptions": {"lipschitz": 1, "smoothness": 0.5, "radius": 1},
        },
    },
    "private_sfw_nonconvex_l1_theorem": {
        "summary": "Frank-Wolfe towards a stationary point in the l1 ball, for losses that need not be convex",
        "value": {
            "algorithm": "private_sfw_nonconvex_l1",
            "dataset_size": 100000,
            "dimension": 100,
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {"lipschitz": 1, "smoothness": 1, "radius": 1},
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
    "noisy_mirror_descent_theorem": {
        "summary": "Noisy mirror descent in an l_1.5 ball: generalised Gaussian noise and the step size of least bound",
        "value": {
            "algorithm": "noisy_mirror_descent",
            "dataset_size": 10000,
            "dimension": 10,
            "iterations": 1000,
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {"norm_order": 1.5, "lipschitz": 1, "radius": 1},
        },
    },
    **{
        f"noisy_sfw_lp_{variant}": {
            "summary": f"Noisy Frank-Wolfe in an l_1.5 ball, {words}",
            "value": {
                "algorithm": "noisy_sfw_lp",
                "variant": variant,
                "dataset_size": 40000,
                "dimension": 30,
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {"norm_order": 1.5, "lipschitz": 2, "smoothness": 1, "radius": 1},
            },
        }
        for variant, words in (
            ("prefix_tree", "prefix sums of noisy changes of the gradient"),
            ("naive", "sums of noisy changes as the paper has them, with the verdict on its noise"),
            ("batch_tree", "trees of batches, the number of trees of least bound"),
        )
    },
    "noisy_sfw_nonconvex_lp_theorem": {
        "summary": "Noisy Frank-Wolfe for losses that are smooth and not convex: a bound on the stationarity gap",
        "value": {
            "algorithm": "noisy_sfw_nonconvex_lp",
            "dataset_size": 100000,
            "dimension": 100,
            "iterations": 64,
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {"norm_order": 1.5, "lipschitz": 1, "smoothness": 1, "radius": 1},
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
