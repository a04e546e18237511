"""Example requests for keys, for Swagger UI. They work unchanged on a fresh server."""

from __future__ import annotations

from fastapi.openapi.models import Example

KEY_EXAMPLES: dict[str, Example] = {
    "analyst": {
        "summary": "An analyst's key for ninety days",
        "value": {"name": "notebook of the statistics group", "scopes": ["analyst"], "expires_in": 7776000},
    },
    "auditor": {
        "summary": "Reads everything, slowly",
        "value": {"name": "audit", "scopes": ["auditor"], "requests_per_second": 5, "concurrent_requests": 2},
    },
}

ROTATE_EXAMPLES: dict[str, Example] = {
    "an_hour": {"summary": "Both tokens are good for an hour", "value": {"overlap_s": 3600}},
    "at_once": {"summary": "The old token was seen by others: it ends now", "value": {"overlap_s": 0}},
}
