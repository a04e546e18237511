"""Requests that Swagger UI offers to try."""

from __future__ import annotations

from fastapi.openapi.models import Example

DEPLOYMENT_EXAMPLES: dict[str, Example] = {
    "clinic": {
        "summary": "A clinic's answers; the rest stays open",
        "value": {
            "curator": "the clinic's data office",
            "intended_use": "planning beds, not decisions about single patients",
            "operator": "the clinic's own IT, under the hospital act",
            "retention": "ten years, then erased",
        },
    },
}
