"""Example requests for `/v1/calibrate` in Swagger UI, which work unchanged. They come from the records of the
algorithms and from this module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fastapi.openapi.models import Example

from calibrators.algorithm import ExampleRequest
from calibrators.registry import ALGORITHMS


class Record(Protocol):
    """An object with example requests: the record of an algorithm or of its execution."""

    @property
    def requests(self) -> Mapping[str, ExampleRequest]: ...


def examples_of(records: Mapping[str, Record], first: str) -> dict[str, Example]:
    """Collect the example requests of all records, by their names.

    Args:
        records: The records by the names of their algorithms.
        first: The example that lists begin with. Newcomers see it first, and it has an example answer.

    Raises:
        ValueError: two records have an example of the same name.
    """
    found: dict[str, Example] = {}
    for algorithm, record in records.items():
        for name, request in record.requests.items():
            if name in found:
                raise ValueError(
                    f"two algorithms have an example request {name!r}: give that of {algorithm} another name"
                )
            found[name] = {"summary": request.summary, "value": {"algorithm": algorithm, **request.body}}
    return {first: found[first], **found}


_FULL_BATCH: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "iterations": 100,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
}


def _poisson(unknown: str, **changes: Any) -> dict[str, Any]:
    """Return a request under Poisson sampling that gives everything except the unknown."""
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


#: Requests for DP-SGD that solve for other fields or have other targets.
_QUESTIONS: dict[str, Example] = {
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
            (
                "bayes_risk",
                "An attacker who guesses membership with prior one half errs in 40 % of all cases at least",
                {"kind": "attack_risk", "prior": 0.5, "bayes_risk": 0.4},
            ),
        )
    },
}

CALIBRATE_EXAMPLES: dict[str, Example] = {**examples_of(ALGORITHMS, "dp_sgd_poisson"), **_QUESTIONS}
