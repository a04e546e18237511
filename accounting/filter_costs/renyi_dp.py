"""Costs in renyi_dp budgets: a Renyi divergence per order."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from accounting.errors import NoCostInFilter
from accounting.events import Event, Gaussian, RenyiDp, ZcDp
from accounting.filter_costs.additive import zcdp_rho
from accounting.filter_costs.table import TRANSCENDENTAL_ALLOWANCE, Cost, checked, exact, is_sampled, total
from accounting.numbers import MAX_EVENTS
from accounting.privacy_loss import loss_of
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, to_nano_up


def renyi_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation, orders: tuple[float, ...]) -> Cost:
    """Sum of Renyi divergences at each order.

    Guarantees: never_above_the_unsampled_cost: also where the sampled moment is not tried.

    Raises:
        NoCostInFilter, Unsupported: as `pure_dp_cost`; a renyi_dp event whose orders all lie below the filter's, too.
    """
    events = checked(events, relation, "renyi_dp")
    _check_stated_orders(events, orders)
    # What is linear in the order is added up once: rational numbers of many denominators add slowly.
    linear = [event for event in events if _is_linear_in_order(event)]
    rho = total(tuple(linear), relation, zcdp_rho)
    rest = [
        (event.count, *_divergences(Event(event.mechanism, event.sampling), relation, orders))
        for event in events
        if not _is_linear_in_order(event)
    ]
    amounts = []
    for index, order in enumerate(orders):
        if any(math.isinf(moments[index]) for _, _, moments in rest):
            amounts.append(SATURATED)
            continue
        stated = sum((count * exact(epsilons[index]) for count, epsilons, _ in rest if epsilons), Fraction(0))
        moment = _exact_sum([(count, moments[index]) for count, _, moments in rest])
        divergence = moment / (exact(order) - 1) * (1 + TRANSCENDENTAL_ALLOWANCE)
        amounts.append(to_nano_up(exact(order) * rho + stated + divergence))
    return Cost(tuple(amounts))


def _is_linear_in_order(event: Event) -> bool:
    return isinstance(event.mechanism, ZcDp) or (isinstance(event.mechanism, Gaussian) and not is_sampled(event))


def _check_stated_orders(events: tuple[Event, ...], orders: tuple[float, ...]) -> None:
    for index, event in enumerate(events):
        if isinstance(event.mechanism, RenyiDp) and event.mechanism.orders[-1] < orders[0]:
            raise NoCostInFilter(
                f"this renyi_dp event states its divergence up to order {event.mechanism.orders[-1]:g}, and the orders "
                f"of this renyi_dp budget begin at {orders[0]:g}; it has a cost in a renyi_dp budget with a smaller "
                "order, or in approximate_dp",
                pointer=("events", index, "mechanism"),
            )


#: Below it a moment is bounded by its chord.
SMALLEST_TILT = 1e-2


@lru_cache(maxsize=4 * MAX_EVENTS)
def _divergences(
    step: Event, relation: NeighboringRelation, orders: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of one step at every order: divergences that are stated as decimals (or none), and moments besides them.

    Orders are decimals, so the tilts are rounded to the nearest floats. A moment is convex in the tilt and 0 at tilt 0,
    so its chord bounds it; so near 0 its own digits would cancel.
    """
    tilts = np.array([float(exact(order) - 1) for order in orders])
    inside = np.maximum(tilts, SMALLEST_TILT)
    with np.errstate(all="ignore"):
        moments = loss_of(step, relation).log_moment(inside)
        if is_sampled(step):
            # Given who takes part, the step is the unsampled one or none: divergences are jointly quasi-convex.
            moments = np.fmin(moments, loss_of(Event(step.mechanism), relation).log_moment(inside))
    moments = np.where(tilts < SMALLEST_TILT, moments * tilts / SMALLEST_TILT, moments)
    moments = np.where(np.isnan(moments), math.inf, moments)
    if not isinstance(step.mechanism, RenyiDp):
        return (), tuple(moments.tolist())
    known = dict(zip(step.mechanism.orders, step.mechanism.epsilons, strict=True))
    rest = [0.0 if order in known else moment for order, moment in zip(orders, moments.tolist(), strict=True)]
    return tuple(known.get(order, 0.0) for order in orders), tuple(rest)


#: A power of two that every float is a whole multiple of the inverse of.
_GRAIN = 1 << 1074


def _exact_sum(terms: list[tuple[int, float]]) -> Fraction:
    """Sum of count times number, without rounding."""
    total = 0
    for count, number in terms:
        numerator, denominator = number.as_integer_ratio()
        total += count * numerator * (_GRAIN // denominator)
    return Fraction(total, _GRAIN)
