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

from app.problems import MEDIA_TYPE, ProblemBody

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
    {"name": "Health", "description": "For supervisors. Answered without a key."},
]

_SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key made with `python -m app keys create`: `epsilond_...`. A server without keys needs none.",
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
    schemas.update(definitions["$defs"])
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = {"key": _SECURITY_SCHEME}
    for path, operation in _operations(document):
        _describe_errors(path, operation)
    return document


def render(document: dict[str, Any]) -> str:
    """The document as the bytes that are committed."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                yield path, operation


def _describe_errors(path: str, operation: dict[str, Any]) -> None:
    statuses = {500}
    if path.startswith("/v1"):
        operation["security"] = [{"key": []}]
        statuses |= {401, 403, 503}
    if "requestBody" in operation:
        statuses |= {413, 415, 422}
    if any(parameter["in"] in ("query", "header") for parameter in operation.get("parameters", ())):
        statuses |= {422}
    if "{" in path:
        statuses |= {404}
    if any(parameter["name"].lower() == "idempotency-key" for parameter in operation.get("parameters", ())):
        statuses |= {400, 409, 422}
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
