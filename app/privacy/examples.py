"""Named requests of the accounting endpoints; each runs as it stands."""

from __future__ import annotations

from fastapi.openapi.models import Example

_POISSON = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
    "sampling": {"kind": "poisson", "sampling_probability": 0.01},
    "count": 10000,
}

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
    "curve": {
        "summary": "Epsilon over delta, and the trade-off of false positives and false negatives",
        "value": {
            "events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 20.0}, "count": 100}],
            "delta": 1e-5,
            "curve": {"points": 50},
        },
    },
    "certify": {
        "summary": "The interval, and dp-accounting's PLD beside it",
        "value": {"events": [_POISSON | {"count": 1000}], "delta": 1e-5, "certify": True},
    },
}
