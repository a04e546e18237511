"""Examples that no endpoint has: those of parameters, of optional bodies, and of answers.

The answers are what a fresh server returns for the first example of each operation. `make openapi` requests them and
writes them into the document. A test requests them again and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_JSON = "application/json"
_NOTHING = {"nothing": {"summary": "Nothing to add: the path says it all", "value": {}}}

#: By operation: example bodies that may be left out, or that no parameter of the endpoint describes.
_BODIES: Mapping[str, Mapping[str, Any]] = {
    "start_reservation": _NOTHING,
    "extend_reservation": {"two_hours": {"summary": "Two hours from now", "value": {"expires_in": 7200}}},
    "void_reservation": _NOTHING,
    "withdraw_limit_request": _NOTHING,
    "disable_webhook": _NOTHING,
    "enable_webhook": _NOTHING,
    "rotate_webhook_secret": _NOTHING,
    "cancel_run": _NOTHING,
    "cancel_run_sweep": _NOTHING,
    "revoke_key": _NOTHING,
    "verify_ledger": {"everything": {"summary": "The books of all budgets, and the tree of all entries", "value": {}}},
    "upload_version": {
        "withdrawals": {
            "summary": "The newest version without two persons, of a data set with ids of persons",
            "value": {"persons": ["K-1042", "K-0007"], "reason": "withdrawals of the month"},
        },
    },
    "upload_dataset": {
        "classification": {
            "summary": "A thousand rows of two classes, generated",
            "value": {"kind": "synthetic", "name": "two clouds", "features": 4, "rows": 1000, "seed": 1},
        },
        "regression": {
            "summary": "Five hundred rows with a number to predict, generated",
            "value": {
                "kind": "synthetic",
                "name": "a noisy plane",
                "task": "regression",
                "features": 3,
                "rows": 500,
                "noise": 0.1,
                "seed": 2,
            },
        },
    },
}

#: By operation and parameter: values that exist on every server and get an answer.
_PARAMETERS: Mapping[tuple[str, str], Any] = {
    ("get_algorithm", "name"): "dp_sgd",
    ("get_dataset", "dataset_id"): "ds_breast_cancer",
    ("list_versions", "dataset_id"): "ds_breast_cancer",
    ("compare_algorithms", "dataset_size"): 50000,
    ("compare_algorithms", "dimension"): 100,
    ("compare_algorithms", "epsilon"): 1,
    ("compare_algorithms", "delta"): 1e-5,
}

#: The operation whose answer contains each path parameter; the documentation page fills in the newest id.
_ANSWERED_BY: Mapping[str, str] = {
    "name": "GET /v1/algorithms",
    "budget_id": "POST /v1/budgets",
    "reservation_id": "POST /v1/budgets/{budget_id}/reservations",
    "limit_request_id": "POST /v1/budgets/{budget_id}/limit-requests",
    "webhook_id": "POST /v1/budgets/{budget_id}/webhooks",
    "run_id": "POST /v1/runs",
    "sweep_id": "POST /v1/run-sweeps",
    "audit_id": "POST /v1/audits",
    "key_id": "POST /v1/keys",
    "dataset_id": "POST /v1/datasets",
    "entry_id": "GET /v1/budgets/{budget_id}/entries",
}


def add_examples(operation: dict[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the examples that the endpoint of an operation does not have. ``answers`` are by operation and status."""
    name = operation["operationId"]
    for parameter in operation.get("parameters", ()):
        if (name, parameter["name"]) in _PARAMETERS:
            parameter["example"] = _PARAMETERS[name, parameter["name"]]
        if parameter["in"] == "path":
            member = "A `name`" if parameter["name"] == "name" else "An `id`"
            parameter["description"] = f"{member} in an answer of `{_ANSWERED_BY[parameter['name']]}`."
    if name in _BODIES:
        operation["requestBody"]["content"][_JSON]["examples"] = _BODIES[name]
    for status, answer in answers.get(name, {}).items():
        operation["responses"][status]["content"][_JSON]["example"] = answer


def answers_in(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the example answers of a document, by operation and status."""
    found: dict[str, dict[str, Any]] = {}
    for item in document["paths"].values():
        for operation in item.values():
            for status, answer in operation["responses"].items():
                content = answer.get("content", {}).get(_JSON, {})
                if "example" in content:
                    found.setdefault(operation["operationId"], {})[status] = content["example"]
    return found
