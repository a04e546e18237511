"""Requests that Swagger UI offers to try."""

from __future__ import annotations

from fastapi.openapi.models import Example

_DP_SGD = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 10.0},
    "sampling": {"kind": "poisson", "sampling_probability": 0.2},
    "count": 100,
}

BUDGET_EXAMPLES: dict[str, Example] = {
    "renyi_dp": {
        "summary": "Rényi filter (the default kind)",
        "value": {
            "name": "wisconsin, 2026",
            "neighboring_relation": "add_or_remove_one",
            "privacy_unit": "patient",
            "filter": {"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5},
        },
    },
    "zcdp": {
        "summary": "zCDP: rho adds up; no amplification by sampling",
        "value": {
            "name": "quarterly statistics",
            "neighboring_relation": "replace_one",
            "filter": {"kind": "zcdp", "rho": "0.25"},
        },
    },
}

RESERVATION_EXAMPLES: dict[str, Example] = {
    "dp_sgd": {
        "summary": "A hundred steps of DP-SGD",
        "value": {"events": [_DP_SGD], "purpose": "first model", "expires_in": 3600},
    }
}

COMMIT_EXAMPLES: dict[str, Example] = {
    "part": {"summary": "Stopped after 40 of the 100 steps", "value": {"events": [{**_DP_SGD, "count": 40}]}},
}
