"""The filter of Renyi differential privacy at orders that are fixed at creation.

Feldman & Zrnic 2021 and Lecuyer 2021 prove the filter at one fixed order a. With K open orders, each gets delta / K.
Let A_j be the outcomes for which j is the first order within its cap at the end. Amounts only grow, so on A_j order j
was within its cap all the time. On A_j, the interaction equals one that stops at the cap of order j alone, whose delta
at epsilon is at most e^((a
- 1)(rho - epsilon)) (1 - 1 / a)^(a - 1) / a (Canonne, Kamath & Steinke 2020). The A_j are a partition, so the deltas
add up:

    cap(a) = epsilon - (ln(K / delta) - ln(a)) / (a - 1) - ln(1 - 1 / a).

Budgets that are older than this bound have smaller caps, epsilon - ln(K / delta) / (a - 1) (Mironov 2017), until their
limit is changed. Whatever was admitted is within the larger caps, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

import numpy as np

from accounting.canonical import Json
from accounting.errors import InvalidValue, NoCostInFilter
from accounting.events import Event, check_events
from accounting.events.schedules import is_sampled
from accounting.filters.costs import Cost, charged, checked, participations, total
from accounting.filters.privacy_filter import PrivacyFilter, float_of_nano, read_limit, read_number, to_number
from accounting.filters.zcdp import zcdp_rho
from accounting.losses.rules import loss_of, rules_of
from accounting.numbers import MAX_EVENTS, MAX_ORDER, MAX_ORDERS, read_real
from accounting.relations import NeighboringRelation
from accounting.units import (
    CLOSED,
    NANO,
    SATURATED,
    TRANSCENDENTAL_ALLOWANCE,
    Amounts,
    exact,
    from_nano,
    to_nano_down,
    to_nano_up,
)

DEFAULT_NUM_ORDERS = 16
#: The sources of the two bounds that convert a divergence to an epsilon.
CANONNE, MIRONOV = "canonne_2020", "mironov_2017"
#: Logarithms are rounded by less than this, even if the orders are rounded as well.
_UP, _DOWN = 1.0 + 1e-15, 1.0 - 1e-15


@dataclass(frozen=True)
class RenyiFilter(PrivacyFilter):
    """A budget in (epsilon, delta), kept as Renyi divergence at orders that are fixed at creation.

    Attributes:
        epsilon, delta: The guarantee of all charges together, chosen adaptively.
        orders: Above 1, increasing; `default_orders` when empty.
        conversion: `CANONNE`, or `MIRONOV` for a budget that is older than that bound.
        caps: The caps above in nano-units, rounded down. A negative cap is `units.CLOSED` (-1), which not even an
            amount of 0 is within.

    Guarantees: each_order_has_its_share_of_delta; closed_orders_admit_nothing.

    Raises:
        InvalidValue: If no order is open at this (epsilon, delta).
    """

    kind: ClassVar[str] = "renyi_dp"
    limits = ("epsilon", "delta")
    epsilon: float
    delta: float
    orders: tuple[float, ...] = ()
    conversion: str = CANONNE
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.conversion not in (CANONNE, MIRONOV):
            raise InvalidValue(f"conversion must be {CANONNE} or {MIRONOV}", pointer=("conversion",))
        epsilon = read_limit("epsilon", self.epsilon)
        delta = read_real("delta", self.delta, 0.0, 0.5, open_lower=True)
        orders = tuple(read_real("orders", order, 1.0, MAX_ORDER, open_lower=True) for order in self.orders)
        orders = orders or default_orders(epsilon, delta)
        if len(orders) > MAX_ORDERS or any(a >= b for a, b in pairwise(orders)):
            raise InvalidValue(
                f"orders must be a list of 1 to {MAX_ORDERS} increasing numbers, all above 1", pointer=("orders",)
            )
        for name, value in (("epsilon", epsilon), ("delta", delta), ("orders", orders)):
            object.__setattr__(self, name, value)
        caps = _caps(epsilon, delta, orders, self.conversion)
        object.__setattr__(self, "caps", caps)
        if all(cap == CLOSED for cap in caps):
            least = 1.001 * float(min(_penalties(delta, orders, self.conversion)))
            raise InvalidValue(
                f"none of the orders can be used: with order {orders[-1]:g} at delta {delta:g}, epsilon must be at "
                f"least about {least:.4g}; at epsilon {epsilon:g}, an order above "
                f"{1.0 + _log_union(delta, len(orders)) / epsilon:.4g} can be used",
                pointer=("epsilon",),
            )

    @property
    def price_terms(self) -> tuple[str, tuple[float, ...]]:
        return "orders", self.orders

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        return renyi_dp_cost(check_events(events), relation, self.orders)

    def least_cost(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Return a lower bound at each order: the divergence, less the largest amount by which its price is rounded
        up."""
        return least_renyi_dp_cost(check_events(events), relation, self.orders)

    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """Return epsilon at a delta by the best order, which may be one that is closed at the budget's own delta."""
        least = _least_epsilon(amounts, self.orders, delta, self.conversion) if delta > 0.0 else SATURATED
        return float_of_nano(least) if least < SATURATED else None

    def limit_epsilon_at(self, delta: float) -> float | None:
        """Return the largest epsilon over the open orders: a full budget is within the cap of *some* open order."""
        delta = read_real("delta", delta, 0.0, 0.5)
        if delta == 0.0:
            return None
        change = Fraction(_log_union(delta, len(self.orders))) - Fraction(_log_union(self.delta, len(self.orders)))
        opened = [order for order, cap in zip(self.orders, self.caps, strict=True) if cap != CLOSED]
        worst = max(change / (exact(order) - 1) for order in opened)
        limit = max(0, to_nano_up(exact(self.epsilon) + worst))
        return float_of_nano(limit) if limit < SATURATED else None

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        """Return the amounts per order, and the epsilon that they cost at the budget's delta (0 if nothing is used)."""
        return {
            "epsilon": from_nano(self.stated(amounts)),
            "orders": list(self.orders),
            "epsilons": [from_nano(amount) for amount in amounts],
        }

    def describe_remaining(self, used: Amounts) -> dict[str, Json]:
        """Return what is left per order. ``epsilon`` is the limit minus the epsilon used. It does not say how large the
        next charge may be."""
        epsilons: Json = [from_nano(amount) for amount in self.remaining(used)]
        return {"epsilon": from_nano(self.left(used)), "orders": list(self.orders), "epsilons": epsilons}

    def describe_limit(self) -> dict[str, Json]:
        epsilons: Json = [from_nano(max(0, cap)) for cap in self.caps]
        return {"epsilon": from_nano(self.stated_limit), "orders": list(self.orders), "epsilons": epsilons}

    def to_json(self) -> dict[str, Json]:
        written = PrivacyFilter.to_json(self) | {"orders": list(self.orders)}
        # The oldest budgets are written in this form, so that their entries keep their hashes.
        return written if self.conversion == MIRONOV else written | {"conversion": self.conversion}

    def with_limit(self, limit: Mapping[str, object]) -> Self:
        """Return the filter with another limit and the newest conversion, whose caps are never smaller."""
        return super(RenyiFilter, replace(self, conversion=CANONNE)).with_limit(limit)

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        orders = value.get("orders") or ()
        if not isinstance(orders, Sequence) or isinstance(orders, str):
            raise InvalidValue("orders must be a list of numbers", pointer=("orders",))
        numbers = tuple(to_number(order, "orders", index) for index, order in enumerate(orders))
        conversion = str(value.get("conversion") or MIRONOV)
        return cls(read_number(value, "epsilon"), read_number(value, "delta"), numbers, conversion)

    def stated(self, amounts: Amounts) -> int:
        """Return epsilon at the budget's own delta; `SATURATED` if none is finite."""
        return _least_epsilon(amounts, self.orders, self.delta, self.conversion) if any(amounts) else 0


def _least_epsilon(amounts: Amounts, orders: tuple[float, ...], delta: float, conversion: str) -> int:
    """Return the smallest epsilon of the amounts over the orders, each with its share of delta, in nano-units.

    An unknown amount counts as saturated, and the answer is `SATURATED` if no amount is known.
    """
    penalties = _penalties_in_nano(delta, orders, conversion)
    epsilons = (amount + penalty for amount, penalty in zip(amounts, penalties, strict=True) if amount < SATURATED)
    return max(0, min((SATURATED, *epsilons)))


# A ledger reads its filters again for every command, so their parts are remembered.
@lru_cache(maxsize=1024)
def _caps(epsilon: float, delta: float, orders: tuple[float, ...], conversion: str) -> Amounts:
    rooms = (exact(epsilon) - penalty for penalty in _penalties(delta, orders, conversion))
    return tuple(to_nano_down(room) if room >= 0 else CLOSED for room in rooms)


@lru_cache(maxsize=1024)
def _penalties_in_nano(delta: float, orders: tuple[float, ...], conversion: str) -> Amounts:
    return tuple(to_nano_up(penalty) for penalty in _penalties(delta, orders, conversion))


def _penalties(delta: float, orders: tuple[float, ...], conversion: str) -> list[Fraction]:
    """Return the excess of epsilon over the divergence at each order, rounded up; it may be negative."""
    union = Fraction(_log_union(delta, len(orders)))
    if conversion == MIRONOV:
        return [union / (exact(order) - 1) for order in orders]
    return [
        (union - Fraction(math.log(order) * _DOWN)) / (exact(order) - 1) - Fraction(-math.log1p(-1.0 / order) * _DOWN)
        for order in orders
    ]


def _log_union(delta: float, count: int) -> float:
    """Return ln(K / delta) of K orders, rounded up."""
    return (math.log(count) - math.log(delta)) * _UP


def default_orders(epsilon: float, delta: float) -> tuple[float, ...]:
    """Choose sixteen orders for a Renyi budget of (epsilon, delta), all of them open.

    They lie geometrically between 1.1 and 30 times ln(16 / delta) / epsilon above 1: no order below the first is open,
    and an order above the last would lower epsilon by less than 4 %. From 3 on they are integers, where costs are
    exact.

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
            "could be used; take a larger epsilon, or a zcdp budget",
            pointer=("epsilon",),
        )
    return tuple(orders)


def least_renyi_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation, orders: tuple[float, ...]) -> Amounts:
    """Return the sum of the divergences at each order, each reduced by as much as it may have been rounded up.

    Rational divergences are summed as they are. A moment is `PrivacyLoss.least_log_moment`; that of a sampled step is
    at most the unsampled one's, because the price is the smaller of both. Renyi divergences do not fall as the order
    grows, so no divergence is below one at a smaller order, which replaces an unknown one.

    Guarantees: not_above_the_moments_of_the_table: at no order.

    Raises:
        NoCostInFilter, Unsupported: As `renyi_dp_cost` does.
    """
    events = checked(events, relation, "renyi_dp")
    _check_stated_orders(events, orders)
    linear = tuple(event for event in events if _is_linear_in_order(event))
    rho, sums = total(linear, relation, zcdp_rho).least, [Fraction(0)] * len(orders)
    for event in events:
        if not _is_linear_in_order(event):
            count, step = participations(event), Event(event.mechanism, event.sampling)
            least = _least_divergences(step, relation, orders)
            sums = [done + count * each for done, each in zip(sums, least, strict=True)]
    return tuple(to_nano_up(exact(order) * rho + rest) for order, rest in zip(orders, sums, strict=True))


def renyi_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation, orders: tuple[float, ...]) -> Cost:
    """Return the sum of Renyi divergences at each order.

    Guarantees: never_above_the_unsampled_cost: also where the sampled moment is not tried.

    Raises:
        NoCostInFilter, Unsupported: As `pure_dp_cost` does, and if all orders of a renyi_dp event lie below those of
            the filter.
    """
    events = checked(events, relation, "renyi_dp")
    _check_stated_orders(events, orders)
    # Costs that are linear in the order are added up once, since adding fractions with many denominators is slow.
    linear = [event for event in events if _is_linear_in_order(event)]
    rho = total(tuple(linear), relation, zcdp_rho).most
    rest = [
        (participations(event), *_divergences(Event(event.mechanism, event.sampling), relation, orders))
        for event in events
        if not _is_linear_in_order(event)
    ]
    amounts = []
    for index, order in enumerate(_at_orders(orders)):
        moments = [(count, moments[index]) for count, _, moments in rest]
        stated = [(count, exact(epsilons[index])) for count, epsilons, _ in rest if epsilons]
        amounts.append(_amount(order, rho, stated, moments))
    return Cost(tuple(amounts))


#: Moments are counted in units of 1 / _GRAIN, rounded up. Moments of at least 1e-60 are exact in these units.
_GRAIN = 1 << 256


class _AtOrder(NamedTuple):
    """An order as a ratio, and factors that turn a moment in grains into a divergence in nano-units."""

    numerator: int
    denominator: int
    moment_numerator: int
    moment_denominator: int


@lru_cache(maxsize=1024)
def _at_orders(orders: tuple[float, ...]) -> tuple[_AtOrder, ...]:
    found = []
    for order in orders:
        numerator, denominator = exact(order).as_integer_ratio()
        # Numerators and denominators are kept separately, because reducing fractions is most of the cost of rational
        # numbers.
        allowance = 1 + TRANSCENDENTAL_ALLOWANCE
        moment_numerator = NANO * denominator * allowance.numerator
        moment_denominator = (numerator - denominator) * allowance.denominator * _GRAIN
        found.append(_AtOrder(numerator, denominator, moment_numerator, moment_denominator))
    return tuple(found)


def _amount(
    order: _AtOrder, rho: Fraction, stated: list[tuple[int, Fraction]], moments: list[tuple[int, int | None]]
) -> int:
    """Return order rho + the stated divergences + the moments / (order - 1), each with its count, rounded up to
    nano-units.
    """
    numerator, denominator = NANO * order.numerator * rho.numerator, order.denominator * rho.denominator
    if stated:
        total = NANO * sum((count * epsilon for count, epsilon in stated), Fraction(0))
        numerator = numerator * total.denominator + denominator * total.numerator
        denominator *= total.denominator
    moment = 0
    for count, grains in moments:
        if grains is None:
            return SATURATED
        moment += count * grains
    if moment:
        numerator = numerator * order.moment_denominator + denominator * moment * order.moment_numerator
        denominator *= order.moment_denominator
    return min(-(-numerator // denominator), SATURATED)


def _is_linear_in_order(event: Event) -> bool:
    return rules_of(event.mechanism).linear_in_order and not is_sampled(event)


def _check_stated_orders(events: tuple[Event, ...], orders: tuple[float, ...]) -> None:
    for index, event in enumerate(events):
        largest = max(rules_of(event.mechanism).stated_divergences(event.mechanism), default=math.inf)
        if largest < orders[0]:
            raise NoCostInFilter(
                f"this {event.mechanism.kind} event states its divergence up to order {largest:g}, and the orders "
                f"of this renyi_dp budget begin at {orders[0]:g}; use a renyi_dp budget with a smaller order, or "
                "an approximate_dp budget",
                pointer=("events", index, "mechanism"),
            )


#: At smaller tilts a moment is bounded by its chord.
SMALLEST_TILT = 1e-2


@lru_cache(maxsize=4 * MAX_EVENTS)
def _divergences(
    step: Event, relation: NeighboringRelation, orders: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[int | None, ...]]:
    """Return one step's divergences that are stated as decimals, if any, and its other moments in grains, by order.

    Orders are decimals, so the tilts are rounded to the nearest floats. A moment is convex in the tilt and 0 at tilt 0,
    so its chord bounds it. The chord is used near tilt 0, where the digits of the moment itself would cancel. Return
    None if no moment is known.
    """
    tilts = np.array([float(exact(order) - 1) for order in orders])
    inside = np.maximum(tilts, SMALLEST_TILT)
    with np.errstate(all="ignore"):
        moments = loss_of(step, relation).log_moment(inside)
        if is_sampled(step):
            # Given the participants, a step is the unsampled step or reveals nothing, and divergences are jointly
            # quasi-convex.
            moments = np.fmin(moments, loss_of(Event(step.mechanism), relation).log_moment(inside))
    moments = np.where(tilts < SMALLEST_TILT, moments * tilts / SMALLEST_TILT, moments)
    least = 0 if step.mechanism.reveals_nothing else 1
    grains = [_grains(moment, least) for moment in moments.tolist()]
    known = rules_of(step.mechanism).stated_divergences(step.mechanism)
    if not known:
        return (), tuple(grains)
    stated = [known.get(order, 0.0) for order in orders]
    rest = [
        moment if order not in known else 0 if epsilon else least
        for order, epsilon, moment in zip(orders, stated, grains, strict=True)
    ]
    return tuple(stated), tuple(rest)


@lru_cache(maxsize=4 * MAX_EVENTS)
def _least_divergences(step: Event, relation: NeighboringRelation, orders: tuple[float, ...]) -> tuple[Fraction, ...]:
    """Return lower bounds of one step's divergences, by order."""
    tilts = np.array([float(exact(order) - 1) for order in orders])
    with np.errstate(all="ignore"):
        moments = loss_of(step, relation).least_log_moment(tilts)
        if is_sampled(step):
            moments = np.minimum(moments, loss_of(Event(step.mechanism), relation).least_log_moment(tilts))
    moments = np.where(np.isnan(moments), 0.0, moments)
    known = rules_of(step.mechanism).stated_divergences(step.mechanism)
    largest, divergences = Fraction(0), []
    for order, tilt, moment in zip(orders, tilts.tolist(), moments.tolist(), strict=True):
        if order in known:
            found = exact(known[order])
        elif moment == math.inf:
            found = Fraction(SATURATED)
        else:
            # The tilt is rounded, and so is its contribution to the moment.
            found = Fraction(max(0.0, moment)) / Fraction(tilt) * (1 - TRANSCENDENTAL_ALLOWANCE)
        largest = max(largest, found)
        divergences.append(charged(largest, step))
    return tuple(divergences)


def _grains(moment: float, least: int) -> int | None:
    """Return a moment in grains, rounded up: a step that reveals something has one grain at least, as in `charged`."""
    if not math.isfinite(moment):
        return None
    numerator, denominator = moment.as_integer_ratio()
    return max(least, -(-numerator * _GRAIN // denominator))
