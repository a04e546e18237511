"""Runs that work as they stand on a fresh server, for Swagger UI: the shortest, then those of algorithms' records."""

from __future__ import annotations

from fastapi.openapi.models import Example

from app.algorithms.examples import examples_of
from trainer.algorithms import EXECUTIONS

_SHORTEST: Example = {
    "summary": "Data, model and target alone: all else is chosen from public numbers",
    "value": {
        "dataset_id": "ds_digits",
        "model": {"kind": "softmax_regression"},
        "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
    },
}

RUN_EXAMPLES: dict[str, Example] = {"shortest": _SHORTEST, **examples_of(EXECUTIONS, "digits")}
