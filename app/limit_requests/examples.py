"""Requests that Swagger UI offers to try."""

from __future__ import annotations

from fastapi.openapi.models import Example

ASK_EXAMPLES: dict[str, Example] = {
    "zcdp": {
        "summary": "More rho",
        "value": {"filter": {"kind": "zcdp", "rho": "0.75"}, "reason": "a third wave of the survey"},
    },
}

APPROVE_EXAMPLES: dict[str, Example] = {
    "approve": {"summary": "One more approval", "value": {"reason": "the board agreed on 12 May"}},
}

REFUSE_EXAMPLES: dict[str, Example] = {
    "refuse": {"summary": "Not this time", "value": {"reason": "the second wave is enough"}},
}
