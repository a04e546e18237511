"""What every privacy filter is: caps, costs against them, and how amounts are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import ClassVar, Self

from accounting.canonical import Json
from accounting.events import Event, check_events, prefix_of_events
from accounting.filter_costs import Cost
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation
from accounting.units import MAX_LIMIT, Amounts, add_saturating


class PrivacyFilter(ABC):
    """A budget's rule of admission. Immutable; equal where kind and limits are.

    Attributes:
        kind: Name in the HTTP contract and in stored descriptions.
        prefix_may_depend_on_outputs: Whether a commit may charge a prefix of its reservation that was chosen after
            looking at outputs. It may where the steps of a list add up one by one in the filter's own currency.
        caps: Of each amount, in the filter's units, rounded down.
    """

    kind: ClassVar[str]
    prefix_may_depend_on_outputs: ClassVar[bool] = True
    caps: Amounts

    @abstractmethod
    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        """What the events cost, rounded up.

        Args:
            events: One reservation; its parameters do not depend on its own outputs.
            relation: Of the budget.
            charge_delta: The delta at which the list is priced. Read by an approximate_dp filter alone.

        Raises:
            NoCostInFilter: an event has no proved additive cost in this currency; the detail names the filters that do.
            Unsupported: a sampling is not accounted under the relation.
        """

    def admits(self, total_amounts: Amounts) -> bool:
        """Whether a budget whose charges add up to ``total_amounts`` is within its limit.

        Guarantees: never_passes_every_cap. With one cap: total <= cap; with several orders: some order is within its.
        """
        return any(0 <= amount <= cap for amount, cap in zip(total_amounts, self.caps, strict=True))

    def add(self, first: Amounts, second: Amounts) -> Amounts:
        """The sum, per position, saturating at `units.SATURATED`: beyond every cap, far from overflow."""
        return add_saturating(first, second)

    @property
    def zero(self) -> Amounts:
        """Amounts of a budget that nothing was charged to."""
        return (0,) * len(self.caps)

    def remaining(self, used: Amounts) -> Amounts:
        """What is left under each cap; 0 where the order is closed or the cap is passed."""
        return tuple(max(0, cap - amount) for cap, amount in zip(self.caps, used, strict=True))

    def largest_count_that_fits(
        self,
        events: Sequence[Event],
        relation: NeighboringRelation,
        used: Amounts,
        charge_delta: float | None = None,
    ) -> int:
        """The largest number of first steps of the list that is still admitted on top of ``used``; 0 if none.

        Guarantees: one_more_does_not_fit: unless it is the whole list.
        """
        price = self.cost if charge_delta is None else partial(self.cost, charge_delta=charge_delta)
        low, high = 0, sum(event.count for event in check_events(events))
        while low < high:
            middle = (low + high + 1) // 2
            amounts = price(prefix_of_events(events, middle), relation).amounts
            low, high = (middle, high) if self.admits(self.add(used, amounts)) else (low, middle - 1)
        return low

    @abstractmethod
    def describe(self, amounts: Amounts) -> dict[str, Json]:
        """The amounts in the filter's own fields, as exact decimal strings."""

    def describe_remaining(self, used: Amounts) -> dict[str, Json]:
        """What is left, in the same fields."""
        return self.describe(self.remaining(used))

    def describe_limit(self) -> dict[str, Json]:
        """The limit, in the same fields."""
        return self.describe(self.caps)

    @abstractmethod
    def to_json(self) -> dict[str, Json]:
        """Kind and limits as they were given; what a ledger stores and hashes."""

    @classmethod
    @abstractmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        """Read what `to_json` wrote (numbers, or their canonical strings)."""


def read_limit(name: str, value: object, *, smallest: float = 1e-9, largest: float = MAX_LIMIT) -> float:
    """A limit: at least one of its units, below the point where amounts saturate."""
    number = float(value) if isinstance(value, Decimal) else value
    return read_real(name, number, smallest, largest)
