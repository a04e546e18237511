"""The filter of zero-concentrated differential privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from accounting.canonical import Json
from accounting.conversions.rounding import rounded_up
from accounting.conversions.zcdp import region
from accounting.events import Event, check_events
from accounting.filters.costs import Cost, checked, total, unamplified
from accounting.filters.privacy_filter import PrivacyFilter, read_limit
from accounting.losses.rules import ChargedStep, rules_of
from accounting.relations import NeighboringRelation
from accounting.units import NANO, SATURATED, Amounts, Between, exact, from_nano, to_nano_down, to_nano_up


def zcdp_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """Return the sum of rhos; a sampled Gaussian counts as a full batch, with a warning.

    Guarantees: no_amplified_cost_of_a_gaussian.

    Raises:
        NoCostInFilter, Unsupported: As `pure_dp_cost` does.

    >>> from accounting.events import Gaussian
    >>> zcdp_cost((Event(Gaussian(4.0), count=8),), NeighboringRelation.REPLACE_ONE).amounts
    (1000000000,)
    """
    events = checked(events, relation, "zcdp")
    return Cost((to_nano_up(total(events, relation, zcdp_rho).most),), unamplified(events, "zcdp"))


def zcdp_rho(event: Event, relation: NeighboringRelation) -> Between:
    """Return rho of one step of a resolved event."""
    return rules_of(event.mechanism).zcdp_rho(event.mechanism, ChargedStep(event, relation))


@dataclass(frozen=True)
class ZcdpFilter(PrivacyFilter):
    """A budget in rho of zCDP; charges add up.

    >>> ZcdpFilter(0.25).describe((250_000_000,))
    {'rho': '0.25'}
    """

    kind: ClassVar[str] = "zcdp"
    limits = ("rho",)
    rho: float
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", read_limit("rho", self.rho))
        object.__setattr__(self, "caps", (to_nano_down(exact(self.rho)),))

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        return zcdp_cost(check_events(events), relation)

    def least_cost(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Return the sum of the costs of the steps, each reduced by its rounding allowance, rounded up to whole
        units."""
        steps = checked(check_events(events), relation, self.kind)
        return (to_nano_up(total(steps, relation, zcdp_rho).least),)

    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """Return the smallest epsilon that follows from the charges' rho; None at delta 0."""
        return _epsilon_of_rho(amounts[0], delta) if amounts[0] < SATURATED and delta > 0.0 else None

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        return {"rho": from_nano(amounts[0])}


@lru_cache(maxsize=4096)
def _epsilon_of_rho(amount: int, delta: float) -> float:
    """Return epsilon of rho. Results are remembered, since each takes 0.01 seconds, or 0.2 if rho and delta are both
    small."""
    return region(rounded_up(Fraction(amount, NANO)), math.inf).epsilon(delta)
