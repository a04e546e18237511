"""The OpenAPI document: what FastAPI derives from the routes, with the errors as they really are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from app.kit.idempotency_records import MAX_KEY_LENGTH
from app.openapi_errors import describe_errors
from app.openapi_examples import add_examples
from app.openapi_links import links_of
from app.openapi_values import explain_values
from app.problems import ProblemBody

#: Of an Idempotency-Key: printable ASCII; blanks around a header's value are no part of it.
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
    {"name": "Audits", "description": "Attacks with canaries on a plan, kept beside what is claimed of it."},
    {"name": "Keys", "description": "Who is let in: scopes, budgets within reach, limits, rotation."},
    {"name": "Health", "description": "For supervisors and monitoring."},
]

_SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key, `epsilond_...`, as it is, without the word Bearer. `epsilond keys create` makes the first "
    "one, `POST /v1/keys` more. A server without keys answers its own machine, and needs none.",
}


def operation_id(route: APIRoute) -> str:
    """The endpoint function's name: stable, readable, and tested to be unique."""
    return route.name


def build_document(title: str, version: str, routes: list[BaseRoute]) -> dict[str, Any]:
    """The whole document, with keys in a stable order."""
    document = get_openapi(title=title, version=version, description=DESCRIPTION, tags=TAGS, routes=routes)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _, definitions = models_json_schema([(ProblemBody, "serialization")], ref_template="#/components/schemas/{model}")
    for name, definition in definitions["$defs"].items():
        assert schemas.setdefault(name, definition) == definition, f"two schemas are named {name}"
    components["schemas"] = dict(sorted(schemas.items()))
    explain_values(document)
    components["securitySchemes"] = {"key": _SECURITY_SCHEME}
    for path, operation in _operations(document):
        _describe_idempotency_key(operation)
        describe_errors(path, operation)
        add_examples(operation)
        for status, links in links_of(operation["operationId"]).items():
            operation["responses"][status]["links"] = links
    return document


def render(document: dict[str, Any]) -> str:
    """The document as the bytes that are committed."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                yield path, operation


def _describe_idempotency_key(operation: dict[str, Any]) -> None:
    """The endpoints take any header or none, and say themselves what is wrong with it: no type of theirs tells."""
    parameters = operation.get("parameters", ())
    for parameter in parameters:
        if parameter["name"] == "Idempotency-Key":
            parameter["required"] = not any(other["name"] == "dry_run" for other in parameters)
            parameter["schema"] = {"type": "string", "maxLength": MAX_KEY_LENGTH, "pattern": KEY_PATTERN}
