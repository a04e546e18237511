"""The filter of approximate differential privacy: both epsilon and delta add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from accounting.canonical import Json
from accounting.events import Event, check_events
from accounting.filter_costs import SMALLEST_DELTA, Cost, approximate_dp_cost, exact
from accounting.filters.privacy_filter import PrivacyFilter, float_of_nano, read_limit, read_number
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, Amounts, from_atto, from_nano, to_atto_down, to_nano_down


@dataclass(frozen=True)
class ApproximateDpFilter(PrivacyFilter):
    """A budget in (epsilon, delta); both add up over reservations, each priced tightly at its own ``charge_delta``.

    Attributes:
        epsilon, delta: What everything charged together satisfies, adaptively.
        caps: Epsilon in nano-units, delta in atto-units.

    The price of a reservation is that of its whole list, fixed in advance. A prefix that is chosen after looking at
    outputs is not worth its own price: a thousand Gaussian steps of mu = 3 together, stopped at the worst moment, have
    delta 6.8e-3 where every prefix was priced at 1e-3. So ``prefix_may_depend_on_outputs`` is false.

    Guarantees: never_passes_a_cap.

    >>> budget = ApproximateDpFilter(1.0, 1e-5)
    >>> budget.admits((10**9, 10**13)), budget.admits((10**9, 10**13 + 1)), budget.admits((10**9 + 1, 0))
    (True, False, False)
    """

    kind: ClassVar[str] = "approximate_dp"
    prefix_may_depend_on_outputs: ClassVar[bool] = False
    epsilon: float
    delta: float
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_limit("epsilon", self.epsilon))
        object.__setattr__(self, "delta", read_limit("delta", self.delta, smallest=SMALLEST_DELTA, largest=0.5))
        object.__setattr__(self, "caps", (to_nano_down(exact(self.epsilon)), to_atto_down(exact(self.delta))))

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        """Of one reservation, priced as a whole.

        Args:
            events, relation: As for every filter.
            charge_delta: In [1e-18, 0.5]; needed where an event has no pure or stated (epsilon, delta) of its own.

        Raises:
            NoCostInFilter, Unsupported: As for every filter.
            AccountingError: code ``missing_charge_delta``.
        """
        return approximate_dp_cost(check_events(events), relation, charge_delta)

    def headroom(self, used: Amounts) -> int:
        """The smaller of both rooms: each cap must hold."""
        return min(cap - amount for cap, amount in zip(self.caps, used, strict=True))

    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """The charges' own epsilon, at every delta that is not below theirs."""
        epsilon, charged_delta = amounts
        known = epsilon < SATURATED and charged_delta <= to_atto_down(exact(delta))
        return float_of_nano(epsilon) if known else None

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        epsilon, delta = amounts
        return {"epsilon": from_nano(epsilon), "delta": from_atto(delta)}

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "epsilon": self.epsilon, "delta": self.delta}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        return cls(read_number(value, "epsilon"), read_number(value, "delta"))
