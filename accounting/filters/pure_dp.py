"""The filter of pure differential privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from accounting.canonical import Json
from accounting.events import Event, check_events
from accounting.filters.costs import Cost, checked, total
from accounting.filters.privacy_filter import PrivacyFilter, float_of_nano, read_limit
from accounting.losses.rules import ChargedStep, rules_of
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, Amounts, Between, exact, from_nano, to_nano_down, to_nano_up


def pure_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """Return the sum of epsilons.

    Args:
        events: The 1 to `MAX_EVENTS` events of one reservation.
        relation: The budget's relation.

    Returns:
        Nano-units of epsilon, rounded up.

    Raises:
        NoCostInFilter: If an event has no cost in the filter. The detail names the filters in which it has.
        Unsupported: If a sampling is not accounted under the relation.

    >>> from accounting.events import Laplace
    >>> pure_dp_cost((Event(Laplace(4.0), count=3),), NeighboringRelation.REPLACE_ONE).amounts
    (1500000000,)
    """
    return Cost((to_nano_up(total(checked(events, relation, "pure_dp"), relation, pure_epsilon).most),))


def pure_epsilon(event: Event, relation: NeighboringRelation) -> Between:
    """Return the largest loss of one step of a resolved event."""
    return rules_of(event.mechanism).pure_epsilon(event.mechanism, ChargedStep(event, relation))


@dataclass(frozen=True)
class PureDpFilter(PrivacyFilter):
    """A budget in epsilon of pure DP; charges add up.

    >>> PureDpFilter(1.0).admits((10**9,)), PureDpFilter(1.0).admits((10**9 + 1,))
    (True, False)
    """

    kind: ClassVar[str] = "pure_dp"
    limits = ("epsilon",)
    epsilon: float
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_limit("epsilon", self.epsilon))
        object.__setattr__(self, "caps", (to_nano_down(exact(self.epsilon)),))

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        return pure_dp_cost(check_events(events), relation)

    def least_cost(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Return the sum of the costs of the steps, each reduced by its rounding allowance, rounded up to whole
        units."""
        steps = checked(check_events(events), relation, self.kind)
        return (to_nano_up(total(steps, relation, pure_epsilon).least),)

    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """Return the charges' own epsilon, at every delta."""
        return float_of_nano(amounts[0]) if amounts[0] < SATURATED else None

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        return {"epsilon": from_nano(amounts[0])}
