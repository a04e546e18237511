"""Requests that Swagger UI offers to try."""

from __future__ import annotations

from fastapi.openapi.models import Example

BUDGET_EXAMPLES: dict[str, Example] = {
    "approximate_gaussian_dp": {
        "summary": "(epsilon, delta): each plan costs about its tight epsilon (the default kind)",
        "value": {
            "name": "wisconsin, 2026",
            "neighboring_relation": "add_or_remove_one",
            "privacy_unit": "patient",
            "filter": {"kind": "approximate_gaussian_dp", "epsilon": 1.6, "delta": 1e-5},
        },
    },
    "renyi_dp": {
        "summary": "Rényi filter: divergences add up at several orders",
        "value": {
            "name": "wisconsin, by orders",
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
    "gaussian_dp": {
        "summary": "Gaussian DP: the squares of mu add up",
        "value": {
            "name": "telemetry",
            "neighboring_relation": "add_or_remove_one",
            "filter": {"kind": "gaussian_dp", "mu": 0.5},
        },
    },
    "pure_dp": {
        "summary": "Pure differential privacy: epsilon adds up, and Gaussian noise has no cost in it",
        "value": {
            "name": "opinion poll",
            "neighboring_relation": "replace_one",
            "filter": {"kind": "pure_dp", "epsilon": 2},
        },
    },
    "approximate_dp": {
        "summary": "(epsilon, delta): each reservation is priced tightly, as a whole",
        "value": {
            "name": "one model a month",
            "neighboring_relation": "add_or_remove_one",
            "filter": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
        },
    },
}

LIMIT_EXAMPLES: dict[str, Example] = {
    "zcdp": {
        "summary": "Another rho",
        "value": {"filter": {"kind": "zcdp", "rho": "0.5"}, "reason": "second wave of the survey, approved"},
    },
}

CORRECTION_EXAMPLES: dict[str, Example] = {
    "unrecorded": {
        "summary": "Something was released that no reservation held",
        "value": {
            "events": [{"mechanism": {"kind": "zcdp", "rho": 0.01}}],
            "reason": "a mean that was published by hand",
        },
    },
}
