"""Example runs for Swagger UI, which work unchanged on a fresh server. The shortest comes first, then come those of the
algorithms' records."""

from __future__ import annotations

from fastapi.openapi.models import Example

from app.algorithms.examples import examples_of
from trainer.algorithms import EXECUTIONS

_SHORTEST: Example = {
    "summary": "Only data, model and target: the rest is chosen from public numbers",
    "value": {
        "dataset_id": "ds_digits",
        "model": {"kind": "softmax_regression"},
        "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
    },
}

RUN_EXAMPLES: dict[str, Example] = {"shortest": _SHORTEST, **examples_of(EXECUTIONS, "digits")}

#: A row of the data set `ds_breast_cancer`, on which the first examples train.
PREDICTION_EXAMPLES: dict[str, Example] = {
    "breast_cancer": {
        "summary": "One row, for a model that was trained on ds_breast_cancer",
        "value": {
            "rows": [
                [
                    *(17.99, 10.38, 122.8, 1001, 0.1184, 0.2776, 0.3001, 0.1471, 0.2419, 0.07871),
                    *(1.095, 0.9053, 8.589, 153.4, 0.006399, 0.04904, 0.05373, 0.01587, 0.03003, 0.006193),
                    *(25.38, 17.33, 184.6, 2019, 0.1622, 0.6656, 0.7119, 0.2654, 0.4601, 0.1189),
                ]
            ]
        },
    }
}
