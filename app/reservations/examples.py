"""Requests that Swagger UI offers to try."""

from __future__ import annotations

from fastapi.openapi.models import Example

_DP_SGD = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 10.0},
    "sampling": {"kind": "poisson", "sampling_probability": 0.2},
    "count": 100,
}

RESERVATION_EXAMPLES: dict[str, Example] = {
    "dp_sgd": {
        "summary": "A hundred steps of DP-SGD",
        "value": {"events": [_DP_SGD], "purpose": "first model", "expires_in": 3600},
    },
    "approximate_dp": {
        "summary": "For an approximate_dp budget: priced tightly, as a whole, at a delta of its own, and certified",
        "value": {"events": [_DP_SGD], "purpose": "second model", "charge": {"delta": 1e-6}, "certificate": True},
    },
}

COMMIT_EXAMPLES: dict[str, Example] = {
    "part": {"summary": "Stopped after 40 of the 100 steps", "value": {"events": [{**_DP_SGD, "count": 40}]}},
}
