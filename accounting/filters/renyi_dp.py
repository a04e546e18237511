"""The filter of Renyi differential privacy at orders that are fixed at creation.

Feldman & Zrnic 2021 and Lecuyer 2021 prove it at one fixed order; several orders stay open through a union bound, which
costs ln(K) of K orders: cap(order) = epsilon - ln(K / delta) / (order - 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar, Self

from accounting.canonical import Json
from accounting.errors import InvalidValue
from accounting.events import Event, check_events
from accounting.filter_costs import Cost, exact, renyi_dp_cost
from accounting.filters.privacy_filter import PrivacyFilter, read_limit
from accounting.numbers import MAX_ORDER, MAX_ORDERS, read_real
from accounting.relations import NeighboringRelation
from accounting.units import CLOSED, NANO, Amounts, from_nano, to_nano_down, to_nano_up

DEFAULT_NUM_ORDERS = 16


@dataclass(frozen=True)
class RenyiFilter(PrivacyFilter):
    """A budget in (epsilon, delta), kept as Renyi divergence at orders that are fixed at creation.

    Attributes:
        epsilon, delta: What everything charged together satisfies, adaptively.
        orders: Above 1, increasing; `default_orders` when empty.
        caps: epsilon - ln(K / delta) / (order - 1) in nano-units, rounded down; `units.CLOSED` (-1, which no amount is
            within, not even 0) where that is negative.

    Guarantees: union_bound_over_orders; closed_orders_admit_nothing.

    Raises:
        InvalidValue: no order is open at this (epsilon, delta).
    """

    kind: ClassVar[str] = "renyi_dp"
    epsilon: float
    delta: float
    orders: tuple[float, ...] = ()
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        epsilon = read_limit("epsilon", self.epsilon)
        delta = read_real("delta", self.delta, 0.0, 0.5, open_lower=True)
        orders = tuple(read_real("orders", order, 1.0, MAX_ORDER, open_lower=True) for order in self.orders)
        orders = orders or default_orders(epsilon, delta)
        if len(orders) > MAX_ORDERS or any(a >= b for a, b in pairwise(orders)):
            raise InvalidValue(f"orders must be 1 to {MAX_ORDERS} numbers above 1, increasing", pointer=("orders",))
        for name, value in (("epsilon", epsilon), ("delta", delta), ("orders", orders)):
            object.__setattr__(self, name, value)
        caps = tuple(self._cap(order) for order in orders)
        object.__setattr__(self, "caps", caps)
        if all(cap == CLOSED for cap in caps):
            least = 1.0 + self._log_union / epsilon
            raise InvalidValue(
                f"no order is open: at epsilon {epsilon:g} and delta {delta:g} an order must be above {least:.4g}",
                pointer=("orders",),
            )

    @property
    def _log_union(self) -> float:
        """ln(K / delta), rounded up."""
        return (math.log(len(self.orders)) - math.log(self.delta)) * (1.0 + 1e-15)

    def _penalty(self, order: float) -> Fraction:
        """ln(K / delta) / (order - 1), rounded up."""
        return Fraction(self._log_union) / (exact(order) - 1)

    def _cap(self, order: float) -> int:
        cap = exact(self.epsilon) - self._penalty(order)
        return to_nano_down(cap) if cap >= 0 else CLOSED

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        return renyi_dp_cost(check_events(events), relation, self.orders)

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        """The amounts per order, and as the epsilon that they cost at the budget's delta (0 when nothing is used)."""
        return {
            "epsilon": from_nano(self._epsilon(amounts)),
            "orders": list(self.orders),
            "epsilons": [from_nano(amount) for amount in amounts],
        }

    def describe_remaining(self, used: Amounts) -> dict[str, Json]:
        """What is left per order; ``epsilon`` is the limit less what is used, not what a next charge may cost."""
        left = max(0, to_nano_down(exact(self.epsilon)) - self._epsilon(used))
        epsilons: Json = [from_nano(amount) for amount in self.remaining(used)]
        return {"epsilon": from_nano(left), "orders": list(self.orders), "epsilons": epsilons}

    def describe_limit(self) -> dict[str, Json]:
        epsilons: Json = [from_nano(max(0, cap)) for cap in self.caps]
        limit = from_nano(to_nano_down(exact(self.epsilon)))
        return {"epsilon": limit, "orders": list(self.orders), "epsilons": epsilons}

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "epsilon": self.epsilon, "delta": self.delta, "orders": list(self.orders)}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        orders = value.get("orders") or ()
        if not isinstance(orders, Sequence):
            raise InvalidValue("orders must be a list of numbers", pointer=("orders",))
        numbers = tuple(float(str(order)) for order in orders)
        return cls(float(str(value["epsilon"])), float(str(value["delta"])), numbers)

    def _epsilon(self, amounts: Amounts) -> int:
        """Smallest used + ln(K / delta)/(order - 1) over the open orders, in nano-units, rounded up."""
        if not any(amounts):
            return 0
        return min(
            to_nano_up(Fraction(amount, NANO) + self._penalty(order))
            for amount, order, cap in zip(amounts, self.orders, self.caps, strict=True)
            if cap != CLOSED
        )


def default_orders(epsilon: float, delta: float) -> tuple[float, ...]:
    """Sixteen orders for a Renyi budget of (epsilon, delta), all open.

    They lie geometrically between 1.1 and 30 times ln(16 / delta) / epsilon above 1: below the first no order is open,
    beyond the last one more would win less than 4 % of epsilon. From 3 on they are integers, where costs are exact.

    >>> default_orders(1.6, 1e-5)[0], len(default_orders(1.6, 1e-5))
    (11.0, 16)
    """
    scale = (math.log(DEFAULT_NUM_ORDERS) - math.log(delta)) / epsilon
    orders: list[float] = []
    for index in range(DEFAULT_NUM_ORDERS):
        excess = scale * 1.1 * (30.0 / 1.1) ** (index / (DEFAULT_NUM_ORDERS - 1))
        order = float(math.ceil(1.0 + excess)) if excess >= 2.0 else 1.0 + float(f"{excess:.3g}")
        orders.append(order if not orders or order > orders[-1] else orders[-1] + 1.0)
    if orders[-1] > MAX_ORDER:
        raise InvalidValue(
            f"epsilon {epsilon:g} is too small for a renyi_dp budget at delta {delta:g}: no order up to {MAX_ORDER:g} "
            "would use it; take a larger epsilon, or a zcdp budget",
            pointer=("epsilon",),
        )
    return tuple(orders)
