"""Named example requests of the accounting endpoints, which work unchanged."""

from __future__ import annotations

from fastapi.openapi.models import Example

_POISSON = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
    "sampling": {"kind": "poisson", "sampling_probability": 0.01},
    "count": 10000,
}

_SAME_ORDER = {"kind": "fixed_order_epochs", "steps_per_epoch": 100}

ACCOUNT_EXAMPLES: dict[str, Example] = {
    "poisson": {
        "summary": "DP-SGD with Poisson batches: epsilon at delta 1e-5",
        "value": {"events": [_POISSON], "neighboring_relation": "add_or_remove_one", "delta": 1e-5},
    },
    "full_batch": {
        "summary": "Ten full-batch Gaussian steps under replace-one: delta at three epsilons",
        "value": {
            "events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 6.0}, "count": 10}],
            "neighboring_relation": "replace_one",
            "epsilon": [1, 2, 4],
        },
    },
    "fixed_size": {
        "summary": "DP-SGD with batches of a fixed size, drawn without replacement",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 8.0},
                    "sampling": {"kind": "without_replacement", "batch_size": 1024, "dataset_size": 50000},
                    "count": 10000,
                }
            ],
            "neighboring_relation": "replace_one",
            "delta": 1e-5,
        },
    },
    "with_replacement": {
        "summary": "DP-SGD with batches of 1024 independent draws",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 8.0},
                    "sampling": {"kind": "with_replacement", "batch_size": 1024, "dataset_size": 50000},
                    "count": 10000,
                }
            ],
            "neighboring_relation": "replace_one",
            "delta": 1e-5,
        },
    },
    "truncated_poisson": {
        "summary": "DP-SGD with Poisson batches of 1000 records, expected, and 1250 at most",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
                    "sampling": {
                        "kind": "truncated_poisson",
                        "sampling_probability": 0.01,
                        "max_batch_size": 1250,
                        "dataset_size": 100000,
                    },
                    "count": 10000,
                }
            ],
            "delta": 1e-5,
        },
    },
    "shuffle_model": {
        "summary": "1024 users, each with a local randomiser of epsilon 0.5, shuffled",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "pure_dp", "epsilon": 0.5},
                    "sampling": {"kind": "shuffle_model", "num_users": 1024, "local_epsilon": 0.5},
                }
            ],
            "neighboring_relation": "replace_one",
            "delta": 1e-6,
        },
    },
    "shuffled_epochs": {
        "summary": "Five shuffled epochs of 100 batches: no amplification",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 3.0},
                    "sampling": {"kind": "shuffled_epochs", "steps_per_epoch": 100},
                    "count": 500,
                }
            ],
            "neighboring_relation": "replace_special",
            "delta": 1e-6,
        },
    },
    "disjoint_batches": {
        "summary": "One pass over 100 disjoint batches, each record's batch drawn for it alone: the price of one step",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 2.0},
                    "sampling": {"kind": "disjoint_batches", "assignment": "independent"},
                    "count": 100,
                }
            ],
            "delta": 1e-6,
        },
    },
    "blocks": {
        "summary": "Ten epochs of 100 steps, each record in one step of each of four blocks of them",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
                    "sampling": {"kind": "blocks", "num_bins": 100, "participations": 4},
                    "count": 1000,
                }
            ],
            "delta": 1e-5,
        },
    },
    "random_allocation": {
        "summary": "Five epochs of 100 steps, each record in one step of every epoch, drawn for that record alone",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 1.0},
                    "sampling": {"kind": "random_allocation", "num_bins": 100, "participations": 1},
                    "count": 500,
                }
            ],
            "delta": 1e-5,
        },
    },
    "randomized_response": {
        "summary": "Twenty answers of every record about ten categories, each drawn anew with probability 0.9",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "randomized_response", "num_categories": 10, "flip_probability": 0.9},
                    "count": 20,
                }
            ],
            "neighboring_relation": "replace_one",
            "delta": 1e-6,
        },
    },
    "discrete_noise": {
        "summary": "Counts with discrete Laplace noise, and sums on a grid with discrete Gaussian noise",
        "value": {
            "events": [
                {"mechanism": {"kind": "discrete_laplace", "noise_multiplier": 10.0, "grid": 1.0}, "count": 12},
                {"mechanism": {"kind": "discrete_gaussian", "noise_multiplier": 8.0, "grid": 0.1}, "count": 20},
            ],
            "delta": 1e-6,
        },
    },
    "selection": {
        "summary": "Fifty private selections: exponential mechanisms, and noisy maxima with Laplace noise",
        "value": {
            "events": [
                {"mechanism": {"kind": "exponential", "epsilon": 0.1}, "count": 40},
                {"mechanism": {"kind": "report_noisy_max", "epsilon": 0.1, "noise": "laplace"}, "count": 10},
            ],
            "delta": 1e-6,
        },
    },
    "heterogeneous": {
        "summary": "A statistic with Laplace noise, a warm-up and training, together",
        "value": {
            "events": [
                {"mechanism": {"kind": "laplace", "noise_multiplier": 10.0}},
                {"mechanism": {"kind": "gaussian", "noise_multiplier": 20.0}, "count": 5},
                _POISSON | {"count": 2000},
            ],
            "delta": 1e-6,
        },
    },
    "gaussian_mixture": {
        "summary": "A hundred steps whose noise is halved in one of ten, at random",
        "value": {
            "events": [
                {
                    "mechanism": {
                        "kind": "gaussian_mixture",
                        "weights": [0.9, 0.1],
                        "noise_multipliers": [20.0, 10.0],
                    },
                    "count": 100,
                }
            ],
            "delta": 1e-6,
        },
    },
    "generalized_gaussian": {
        "summary": "Twenty steps of generalised Gaussian noise over an l1 ball in 1000 dimensions",
        "value": {
            "events": [
                {
                    "mechanism": {
                        "kind": "generalized_gaussian",
                        "norm_order": 1,
                        "dimension": 1000,
                        "kappa": 34.7236671602,
                        "noise_multiplier": 100.0,
                    },
                    "count": 20,
                }
            ],
            "neighboring_relation": "replace_one",
            "delta": 1e-6,
        },
    },
    "tree_aggregation": {
        "summary": "Prefix sums of three epochs of 1000 steps, a new tree for each",
        "value": {
            "events": [
                {
                    "mechanism": {
                        "kind": "tree_aggregation",
                        "noise_multiplier": 8.0,
                        "num_leaves": 1000,
                        "restarts": 2,
                    }
                }
            ],
            "neighboring_relation": "replace_special",
            "delta": 1e-6,
        },
    },
    "correlated_noise": {
        "summary": "DP-FTRL: a run of 1000 steps with three bands of correlated noise, in cycles of three groups",
        "value": {
            "events": [
                {
                    "mechanism": {
                        "kind": "correlated_gaussian",
                        "noise_multiplier": 3.0,
                        "coefficients": [1.0, 0.5, 0.375],
                    },
                    "sampling": {
                        "kind": "cyclic_poisson",
                        "sampling_probability": 0.12,
                        "cycle_length": 3,
                        "assignment": "independent",
                    },
                    "count": 1000,
                }
            ],
            "delta": 1e-6,
        },
    },
    "correlated_families": {
        "summary": "Three runs of five epochs in the same order, with noise of one family of matrices each",
        "value": {
            "events": [
                {"mechanism": correlated | {"noise_multiplier": 20.0}, "sampling": _SAME_ORDER, "count": 500}
                for correlated in (
                    {"kind": "square_root_gaussian", "bands": 100},
                    {"kind": "inverse_square_root_gaussian", "inverse_bands": 4},
                    {"kind": "buffered_gaussian", "scales": [0.3, 0.1], "decays": [0.9, 0.5]},
                )
            ],
            "neighboring_relation": "replace_special",
            "delta": 1e-6,
        },
    },
    "stated_guarantees": {
        "summary": "Releases known by their guarantees alone: two of (epsilon, delta)-DP, one of Renyi DP, one of zCDP",
        "value": {
            "events": [
                {"mechanism": {"kind": "approximate_dp", "epsilon": 0.2, "delta": 1e-8}, "count": 2},
                {"mechanism": {"kind": "renyi_dp", "orders": [4, 16, 64], "epsilons": [0.02, 0.08, 0.4]}},
                {"mechanism": {"kind": "zcdp", "rho": 0.01}},
            ],
            "delta": 1e-6,
        },
    },
    "group_privacy": {
        "summary": "The same for owners of up to three records each",
        "value": {"events": [_POISSON | {"count": 1000}], "delta": 1e-5, "group_size": 3},
    },
    "curve": {
        "summary": "Epsilon over delta, and the trade-off of false positives and false negatives",
        "value": {
            "events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 20.0}, "count": 100}],
            "delta": 1e-5,
            "curve": {"points": 50},
        },
    },
    "attack_risk": {
        "summary": "What attackers reach, and the whole trade-off curve as one mu with its regret",
        "value": {
            "events": [_POISSON],
            "delta": 1e-5,
            "attack_risk": {"fpr": [0.001, 0.1], "prior": [0.5, 0.01]},
            "gaussian_dp": {"regret": 0.001},
        },
    },
    "certify": {
        "summary": "The interval, and dp-accounting's PLD beside it",
        "value": {"events": [_POISSON | {"count": 1000}], "delta": 1e-5, "certify": True},
    },
}
