"""The OpenAPI document: what FastAPI derives from the routes, with the errors as they really are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from app.kit.idempotency_records import MAX_KEY_LENGTH
from app.openapi_links import links_of
from app.problems import MEDIA_TYPE, ProblemBody

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
    {"name": "Accounting", "description": "Certified privacy loss of events. Nothing is stored."},
    {"name": "Calibration", "description": "Noise and hyperparameters for a privacy target, with sources."},
    {"name": "Budgets", "description": "Privacy budgets: filters with a limit, and reservations against it."},
    {"name": "Ledger", "description": "The append-only record of what was reserved, charged and released."},
    {"name": "Data sets", "description": "Data sets with declared columns, bounds and size. No call returns rows."},
    {"name": "Runs", "description": "Differentially private training runs, executed as their plan says."},
    {"name": "Audits", "description": "Attacks by canaries on plans, kept beside what is claimed of them."},
    {"name": "Keys", "description": "API keys: scopes, budgets within reach, limits, rotation."},
    {"name": "Health", "description": "For supervisors. Answered without a key."},
]

_SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key made with `python -m app keys create`: `epsilond_...`. A server without keys needs none.",
}


#: Answers that neither the path nor the parameters tell of: about what a body names, or about a state.
_MORE_ANSWERS: dict[str, set[int]] = {
    "create_audit": {404},
    "create_run": {404},
    "create_run_sweep": {404},
    "delete_dataset": {409},
    "derive_assumptions": {404},
    "export_ledger": {404},
    "get_run_model": {409},
    "verify_ledger": {404},
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
    components["securitySchemes"] = {"key": _SECURITY_SCHEME}
    for path, operation in _operations(document):
        _describe_idempotency_key(operation)
        _describe_errors(path, operation)
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


def _describe_errors(path: str, operation: dict[str, Any]) -> None:
    # An address that is not text is 400 everywhere; a query may hold one that no parameter asks for.
    statuses = {400, 500} | _MORE_ANSWERS.get(operation["operationId"], set())
    if not path.startswith("/health"):
        operation["security"] = [{"key": []}]
        statuses |= {401, 403, 429, 503}
    if "requestBody" in operation:
        statuses |= {408, 413, 415, 422, 507}
    if any(parameter["in"] in ("query", "header") for parameter in operation.get("parameters", ())):
        statuses |= {422}
    if "{" in path:
        statuses |= {404}
    if any(parameter["name"].lower() == "idempotency-key" for parameter in operation.get("parameters", ())):
        statuses |= {409, 422, 507}
    responses = operation.setdefault("responses", {})
    for status in statuses:
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase})
    problem = {"schema": {"$ref": "#/components/schemas/ProblemBody"}}
    for status, response in responses.items():
        if status >= "400":
            response["content"] = {MEDIA_TYPE: problem}
            if response.get("description") == "Validation Error":
                response["description"] = HTTPStatus.UNPROCESSABLE_ENTITY.phrase
    operation["responses"] = dict(sorted(responses.items()))
