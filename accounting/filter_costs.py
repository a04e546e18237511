"""What an event costs in a filter: the table, one function per filter, one branch per cell.

| event | pure_dp | zcdp | renyi_dp, per order |
|---|---|---|---|
| gaussian, full batch | none | sens^2 T / (2 s^2) | order sens^2 T / (2 s^2) |
| gaussian, poisson | none | UNAMPLIFIED sens^2 T / (2 s^2), warning | proved moment of the sampled pair |
| laplace (eps = sens / b) | T eps | T (eps + e^-eps - 1) | exact moment |
| pure_dp | T eps | T eps tanh(eps / 2) | exact moment of randomised response |
| zcdp | none | T rho | T rho order |

There is no conversion outside this table. A sampled Gaussian has no amplified zCDP cost: its Renyi divergence over the
order tends to 1 / (2 s^2) as the order grows, whatever the sampling probability.

A float stands for the shortest decimal that reads back to it, which is how events and limits are written and hashed;
rational costs are computed exactly from those decimals, so that a million charges of 1e-6 fill 1 exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from accounting.errors import NoCostInFilter, one_of
from accounting.events import Event, Gaussian, Laplace, PureDp, ZcDp
from accounting.mechanisms.laplace import LaplaceLoss
from accounting.mechanisms.plain import RandomizedResponseLoss
from accounting.numbers import MAX_EVENTS
from accounting.privacy_loss import is_amplified, loss_of
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, Amounts, to_nano_up

#: Costs that are not rational are enlarged by this much, relatively, before they are rounded up to a nano-unit. The
#: moments carry their own allowance already.
TRANSCENDENTAL_ALLOWANCE = Fraction(1, 10**12)
NO_AMPLIFICATION = "no_amplification"


@dataclass(frozen=True, slots=True)
class CostWarning:
    """A sentence that belongs beside a cost, with a stable code."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Amounts in nano-units, rounded up; one, or one per order."""

    amounts: Amounts
    warnings: tuple[CostWarning, ...] = ()


def exact(number: float) -> Fraction:
    """The shortest decimal that reads back to ``number``, as a rational number."""
    return Fraction(Decimal(repr(float(number))))


def pure_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """Sum of epsilons."""
    total = Fraction(0)
    for index, event in enumerate(events):
        mechanism = event.mechanism
        if isinstance(mechanism, Laplace):
            total += event.count * exact(relation.sensitivity) / exact(mechanism.noise_multiplier)
        elif isinstance(mechanism, PureDp):
            total += event.count * exact(mechanism.epsilon)
        else:
            raise _no_cost(event, index, "pure_dp", ["renyi_dp", "zcdp"])
    return Cost((to_nano_up(total),))


def zcdp_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """Sum of rhos; a sampled Gaussian counts as a full batch, with a warning."""
    total, unamplified = Fraction(0), False
    for event in events:
        total += event.count * _zcdp_rho(event, relation)
        unamplified = unamplified or is_amplified(event)
    return Cost((to_nano_up(total),), (_NO_AMPLIFICATION_IN_ZCDP,) if unamplified else ())


def _zcdp_rho(event: Event, relation: NeighboringRelation) -> Fraction:
    mechanism, sensitivity = event.mechanism, exact(relation.sensitivity)
    if isinstance(mechanism, Gaussian):
        return (sensitivity / exact(mechanism.noise_multiplier)) ** 2 / 2
    if isinstance(mechanism, ZcDp):
        return exact(mechanism.rho)
    loss = loss_of(event, relation)
    assert isinstance(loss, LaplaceLoss | RandomizedResponseLoss)
    return Fraction(loss.zcdp_rho) * (1 + TRANSCENDENTAL_ALLOWANCE)


def renyi_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation, orders: tuple[float, ...]) -> Cost:
    """Sum of Renyi divergences at each order."""
    amounts = []
    for order in orders:
        units = [_renyi_divergence(event.mechanism, event, relation, order) for event in events]
        if any(unit is None for unit in units):
            amounts.append(SATURATED)
            continue
        total = sum((event.count * unit for event, unit in zip(events, units, strict=True) if unit), Fraction(0))
        amounts.append(to_nano_up(total))
    return Cost(tuple(amounts))


def _renyi_divergence(mechanism: object, event: Event, relation: NeighboringRelation, order: float) -> Fraction | None:
    """Of one step, at one order, rounded up; None where it is too large to be evaluated."""
    if isinstance(mechanism, Gaussian) and not is_amplified(event):
        return exact(order) * (exact(relation.sensitivity) / exact(mechanism.noise_multiplier)) ** 2 / 2
    if isinstance(mechanism, ZcDp):
        return exact(order) * exact(mechanism.rho)
    moment = _log_moment(Event(event.mechanism, event.sampling), relation, order)
    if not math.isfinite(moment):
        return None
    return Fraction(moment) / (exact(order) - 1) * (1 + TRANSCENDENTAL_ALLOWANCE)


#: Below it a moment is bounded by its chord.
SMALLEST_TILT = 1e-2


@lru_cache(maxsize=MAX_EVENTS * 64)  # as many as one request can ask for
def _log_moment(step: Event, relation: NeighboringRelation, order: float) -> float:
    """The moment of one step at tilt order - 1. Orders are decimals, so the tilt is rounded to the nearest float."""
    tilt = float(exact(order) - 1)
    if tilt < SMALLEST_TILT:
        # The log-moment is convex and 0 at tilt 0, so its chord bounds it; so near 0 its own digits would cancel.
        return float(loss_of(step, relation).log_moment(np.array([SMALLEST_TILT]))[0]) * tilt / SMALLEST_TILT
    return float(loss_of(step, relation).log_moment(np.array([tilt]))[0])


def _no_cost(event: Event, index: int, kind: str, working: list[str]) -> NoCostInFilter:
    name = event.mechanism.kind
    return NoCostInFilter(
        f"a {name} event has no proved additive cost in a {kind} budget; it has one in {one_of(working)}",
        pointer=("events", index, "mechanism"),
    )


_NO_AMPLIFICATION_IN_ZCDP = CostWarning(
    NO_AMPLIFICATION,
    "Sampling does not lower the cost in a zcdp budget: no amplified zCDP holds for a sampled Gaussian, so it is "
    "charged as if every record took part in every step. A renyi_dp budget charges the amplified cost.",
)
