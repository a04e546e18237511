"""The filter of pure differential privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from accounting.canonical import Json
from accounting.events import Event, check_events
from accounting.filter_costs import Cost, exact, pure_dp_cost
from accounting.filters.privacy_filter import PrivacyFilter, float_of_nano, read_limit, read_number
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, Amounts, from_nano, to_nano_down


@dataclass(frozen=True)
class PureDpFilter(PrivacyFilter):
    """A budget in epsilon of pure DP; charges add up.

    >>> PureDpFilter(1.0).admits((10**9,)), PureDpFilter(1.0).admits((10**9 + 1,))
    (True, False)
    """

    kind: ClassVar[str] = "pure_dp"
    epsilon: float
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_limit("epsilon", self.epsilon))
        object.__setattr__(self, "caps", (to_nano_down(exact(self.epsilon)),))

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        return pure_dp_cost(check_events(events), relation)

    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """The charges' own epsilon, at every delta."""
        return float_of_nano(amounts[0]) if amounts[0] < SATURATED else None

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        return {"epsilon": from_nano(amounts[0])}

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "epsilon": self.epsilon}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        return cls(read_number(value, "epsilon"))
