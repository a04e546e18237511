"""One budget of every kind, and event lists that each of them has a price for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from accounting.events import (
    ApproximateDp,
    Event,
    Gaussian,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    ShuffledEpochs,
    WithoutReplacement,
    ZcDp,
)
from accounting.filters import (
    ApproximateDpFilter,
    ApproximateGaussianDpFilter,
    GaussianDpFilter,
    PrivacyFilter,
    PureDpFilter,
    RenyiFilter,
    ZcdpFilter,
)
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
FILTERS: list[PrivacyFilter] = [
    PureDpFilter(1.0),
    ApproximateDpFilter(1.0, 1e-5),
    ApproximateGaussianDpFilter(1.0, 1e-5),
    ZcdpFilter(0.5),
    GaussianDpFilter(1.1),
    RenyiFilter(1.6, 1e-5),
]
MECHANISMS = {
    "pure_dp": (PureDp(0.0), PureDp(3e-10), PureDp(0.1), Laplace(3.0), Laplace(70.0)),
    "approximate_dp": (PureDp(0.1), Laplace(70.0), ApproximateDp(0.1, 1e-9), ApproximateDp(0.0, 3e-19)),
    "zcdp": (PureDp(0.1), Laplace(3.0), ZcDp(3e-10), ZcDp(0.1), Gaussian(7.0), Gaussian(30000.0)),
    "gaussian_dp": (PureDp(0.1), Laplace(3.0), Gaussian(7.0), Gaussian(30000.0)),
    "renyi_dp": (PureDp(0.1), Laplace(3.0), ZcDp(0.1), Gaussian(7.0), Gaussian(30000.0)),
}


def events_for(kind: str) -> st.SearchStrategy[list[Event]]:
    counts = st.integers(1, 40) | st.integers(1, 10**8)
    plain = st.builds(Event, st.sampled_from(MECHANISMS[kind]), count=counts)
    scheduled = [Event(mechanism, ShuffledEpochs(7)) for mechanism in MECHANISMS[kind] if _has_noise(mechanism)]
    sampled = [Event(Gaussian(3.0), Poisson(0.1), 5), Event(Gaussian(3.0), WithoutReplacement(1, 10), 5)]
    some = scheduled + (sampled if kind in ("zcdp", "gaussian_dp", "renyi_dp") else [])
    return st.lists(plain | st.sampled_from(some), min_size=1, max_size=6)


def _has_noise(mechanism: Mechanism) -> bool:
    return isinstance(mechanism, Gaussian | Laplace)


#: Where a list costs what its steps cost alone: everywhere but where it is covered as a whole.
ADDITIVE = [budget for budget in FILTERS if budget.kind != "approximate_gaussian_dp"]
by_kind = pytest.mark.parametrize("budget", FILTERS, ids=lambda budget: budget.kind)
by_additive_kind = pytest.mark.parametrize("budget", ADDITIVE, ids=lambda budget: budget.kind)


def is_within(kind: str, within: Sequence[bool]) -> bool:
    """Whether a filter admits amounts of which some are within their caps."""
    if kind == "approximate_dp":
        return all(within)
    return (within[0] and within[1]) or within[2] if kind == "approximate_gaussian_dp" else any(within)
