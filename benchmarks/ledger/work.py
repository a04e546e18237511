"""This module has the work of the ledger: budgets under three filters, and events to charge to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounting.events import Event, Gaussian
from accounting.filters import ApproximateGaussianDpFilter, PrivacyFilter, RenyiFilter, ZcdpFilter
from accounting.relations import NeighboringRelation

RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
DELTA = 1e-5
#: The kinds of filters: the default, which counts three amounts, one with 16 Renyi orders, and one with a single
#: amount.
FILTERS = ("approximate_gaussian_dp", "renyi_dp", "zcdp")

#: A full-batch Gaussian query with this noise costs rho = 2e-4 exactly.
NOISE = 50.0
#: The number of different counts of an event. Prices are cached after their first use, so that only the ledger is
#: timed.
#: `make bench-accounting` measures the time to find a price.
COUNTS = 32


def event(count: int, noise: float = NOISE) -> Event:
    """Return an event of ``count`` queries."""
    return Event(Gaussian(noise), count=count)


def event_json(count: int) -> dict[str, Any]:
    """Return the same event as `event`, as JSON for an HTTP request."""
    return {"mechanism": {"kind": "gaussian", "noise_multiplier": NOISE}, "count": count}


def budget_request(kind: str, limit: float) -> Mapping[str, Any]:
    """Return the body of the HTTP request that opens a budget; ``limit`` is epsilon or rho."""
    return {"name": "bench", "neighboring_relation": str(RELATION), "filter": filter_request(kind, limit)}


def filter_request(kind: str, limit: float) -> dict[str, Any]:
    """Return the filter as JSON for the request that opens a budget."""
    return {"kind": kind} | ({"rho": limit} if kind == "zcdp" else {"epsilon": limit, "delta": DELTA})


def privacy_filter(kind: str, limit: float) -> PrivacyFilter:
    """Return the filter of such a budget as an object, with which the ledger's admissions are checked."""
    if kind == "zcdp":
        return ZcdpFilter(limit)
    return RenyiFilter(limit, DELTA) if kind == "renyi_dp" else ApproximateGaussianDpFilter(limit, DELTA)
