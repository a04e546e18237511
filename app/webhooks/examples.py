"""Requests that Swagger UI offers to try."""

from __future__ import annotations

from fastapi.openapi.models import Example

WEBHOOK_EXAMPLES: dict[str, Example] = {
    "spending": {
        "summary": "Told at 80 and 95 % of the limit, and of refused reservations",
        "value": {
            "url": "https://hooks.example/epsilond",
            "events": ["spending_threshold", "denied"],
            "fractions": [0.8, 0.95],
        },
    },
}
