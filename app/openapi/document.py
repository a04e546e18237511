"""The OpenAPI document: what FastAPI derives from the routes, with errors, examples, links and explanations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from app.openapi.errors import describe_codes, describe_errors
from app.openapi.examples import add_examples
from app.openapi.links import links_of
from app.openapi.sharing import drop_repetitions, share_errors, share_parameters, share_schemas
from app.openapi.values import explain_values
from app.problems import ProblemBody
from app.tables.idempotency import MAX_KEY_LENGTH

#: The form of an Idempotency-Key: printable ASCII. Blanks around a header's value do not belong to the value.
KEY_PATTERN = "^[!-~]([ -~]*[!-~])?$"

METHODS = frozenset({"get", "put", "post", "delete", "patch"})

DESCRIPTION = """\
The privacy-accounting daemon. Tell it how you train, and it tells you how much noise, which step size and which clip
threshold; it runs the private training for you, and keeps the books.

Every privacy loss is an interval whose upper end is never below the true loss. Errors are `application/problem+json`
(RFC 9457) with a stable `code`. POSTs that write need an `Idempotency-Key`; repeating one replays its answer.
"""

TAGS = [
    {
        "name": "Calibration",
        "description": "How much noise meets a privacy target, and which step size, clip threshold and error bound the "
        "theorems give: each number with its source.",
    },
    {
        "name": "Accounting",
        "description": "The privacy loss of what was released, as an interval that holds the truth; one guarantee in "
        "terms of another. Nothing is stored.",
    },
    {"name": "Budgets", "description": "How much may ever be released from one body of data, and what is left of it."},
    {"name": "Webhooks", "description": "Who is told what happens to a budget, by signed messages."},
    {
        "name": "Reservations",
        "description": "Budget that is held before noise is drawn: reserve, start, then commit what happened, or void.",
    },
    {
        "name": "Ledger",
        "description": "The append-only record of what was reserved, charged and released: proofs and verification.",
    },
    {"name": "Data sets", "description": "Declared columns with bounds, and a declared size. No call returns rows."},
    {
        "name": "Runs",
        "description": "Private trainings, executed as their plan says and charged before they begin; sweeps of them.",
    },
    {"name": "Audits", "description": "Attacks with canaries on a plan, kept beside its claim."},
    {"name": "Keys", "description": "Who is let in: scopes, budgets within reach, limits, rotation."},
    {"name": "Health", "description": "For supervisors and monitoring."},
]

_SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key, `epsilond_...`, unchanged, without the word Bearer. `epsilond keys create` makes the first "
    "one, `POST /v1/keys` more. A server without keys answers its own machine: calculations need nothing there, all "
    "else its token, `epsilond_local_...`, from the file `local-token` in its data folder.",
}


def build_document(app: FastAPI, answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Build the whole document, with keys in a stable order.

    Args:
        app: The service.
        answers: The example answers, by operation and status.
    """
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, tags=TAGS, routes=app.routes)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _, definitions = models_json_schema([(ProblemBody, "serialization")], ref_template="#/components/schemas/{model}")
    for name, definition in definitions["$defs"].items():
        assert schemas.setdefault(name, definition) == definition, f"two schemas are named {name}"
    drop_repetitions(document)
    share_schemas(document)
    explain_values(document)
    describe_codes(schemas["ProblemBody"])
    components["securitySchemes"] = {"key": _SECURITY_SCHEME}
    for path, operation in _operations(document):
        _describe_idempotency_key(operation)
        describe_errors(path, operation)
        add_examples(operation, answers)
        for status, links in links_of(operation["operationId"]).items():
            operation["responses"][status]["links"] = links
    operations = [operation for _, operation in _operations(document)]
    components["responses"] = share_errors(operations)
    components["parameters"] = share_parameters(operations)
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                yield path, operation


def _describe_idempotency_key(operation: dict[str, Any]) -> None:
    """Describe the header Idempotency-Key. The types of endpoints do not show it, since endpoints check the header
    themselves."""
    parameters = operation.get("parameters", ())
    for parameter in parameters:
        if parameter["name"] == "Idempotency-Key":
            parameter["required"] = not any(other["name"] == "dry_run" for other in parameters)
            parameter["schema"] = {"type": "string", "maxLength": MAX_KEY_LENGTH, "pattern": KEY_PATTERN}
