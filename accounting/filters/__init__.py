"""Privacy filters: the rules by which a budget admits one more charge that may depend on earlier outputs.

A filter's currency adds up under adaptive and concurrent composition, so admission is integer arithmetic on totals:
`cost` turns events into amounts, rounded up; `admits` says whether a total stays within `caps`, rounded down.

| kind | amounts | within | theorem |
|---|---|---|---|
| pure_dp | epsilon | the cap | basic composition (Rogers, Roth, Ullman & Vadhan 2016) |
| approximate_dp | epsilon, delta | both caps | basic composition (Rogers, Roth, Ullman & Vadhan 2016) |
| approximate_gaussian_dp | mu squared, delta; epsilon | both caps, or the last | `docs/concepts/gaussian_filter.md` |
| zcdp | rho | the cap | Whitehouse, Ramdas, Rogers & Wu 2023 |
| gaussian_dp | mu squared | the cap | Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023 |
| renyi_dp | divergence per order | some order's cap | Feldman & Zrnic 2021, Lecuyer 2021; union bound over orders |

Concurrent interactive mechanisms: Haney et al. 2023 extend each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from accounting.errors import InvalidValue, one_of
from accounting.filters.approximate_dp import ApproximateDpFilter, approximate_dp_cost
from accounting.filters.approximate_gaussian_dp import (
    SMALLEST_DELTA_OF_FAILURES,
    ApproximateGaussianDpFilter,
    approximate_gaussian_dp_cost,
)
from accounting.filters.costs import NO_AMPLIFICATION, SMALLEST_DELTA, Cost, CostWarning
from accounting.filters.gaussian_dp import GaussianDpFilter, gaussian_dp_cost
from accounting.filters.privacy_filter import PrivacyFilter
from accounting.filters.pure_dp import PureDpFilter, pure_dp_cost
from accounting.filters.renyi_dp import DEFAULT_NUM_ORDERS, RenyiFilter, default_orders, renyi_dp_cost
from accounting.filters.zcdp import ZcdpFilter, zcdp_cost

#: Every filter by its kind, in the order of the table of costs.
FILTERS: dict[str, type[PrivacyFilter]] = {
    cls.kind: cls
    for cls in (
        PureDpFilter,
        ApproximateDpFilter,
        ApproximateGaussianDpFilter,
        ZcdpFilter,
        GaussianDpFilter,
        RenyiFilter,
    )
}


def filter_from_json(value: Mapping[str, object]) -> PrivacyFilter:
    """Read what a filter's ``to_json`` wrote (numbers, or their canonical strings).

    Guarantees: survives_json: the copy is equal, with equal caps.

    >>> filter_from_json({"kind": "gaussian_dp", "mu": "0.5"})
    GaussianDpFilter(mu=0.5)
    """
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in FILTERS:
        raise InvalidValue(f"filter.kind must be {one_of(list(FILTERS))}", pointer=("kind",))
    return FILTERS[kind].from_json(value)


__all__ = [
    "DEFAULT_NUM_ORDERS",
    "FILTERS",
    "NO_AMPLIFICATION",
    "SMALLEST_DELTA",
    "SMALLEST_DELTA_OF_FAILURES",
    "ApproximateDpFilter",
    "ApproximateGaussianDpFilter",
    "Cost",
    "CostWarning",
    "GaussianDpFilter",
    "PrivacyFilter",
    "PureDpFilter",
    "RenyiFilter",
    "ZcdpFilter",
    "approximate_dp_cost",
    "approximate_gaussian_dp_cost",
    "default_orders",
    "filter_from_json",
    "gaussian_dp_cost",
    "pure_dp_cost",
    "renyi_dp_cost",
    "zcdp_cost",
]
