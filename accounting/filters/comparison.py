"""Compares what a plan costs in one budget with its tight epsilon and with its price in budgets of other kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import sub

from accounting.accountant import epsilon_for_delta
from accounting.errors import AccountingError
from accounting.events import Event, check_events, prefix_of_events
from accounting.filters import FILTERS
from accounting.filters.privacy_filter import PrivacyFilter
from accounting.filters.renyi_dp import CANONNE
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from accounting.units import Amounts

#: The numbers of equal parts into which a plan is cut.
PARTS = (2, 4, 12)


@dataclass(frozen=True, slots=True)
class Alone:
    """The cost of a plan that is alone in its budget, as epsilons at one delta.

    Attributes:
        tight: The epsilon of the plan if everything is fixed before any output is seen.
        charged: The epsilon of the filter's charge; None if no finite one follows.
    """

    tight: Interval
    charged: float | None


def price_alone(
    budget_filter: PrivacyFilter, amounts: Amounts, events: Sequence[Event], relation: NeighboringRelation, delta: float
) -> Alone:
    """State a charge beside the tight epsilon of its plan.

    Args:
        budget_filter: The budget's filter.
        amounts: The filter's charge for the plan.
        events: The plan.
        relation: The budget's relation.
        delta: The delta at which both are stated; in (0, 0.5].

    Raises:
        Unsupported: If the plan has no tight epsilon.
    """
    tight = epsilon_for_delta(check_events(events), relation, delta).value
    return Alone(tight, budget_filter.epsilon_at(amounts, delta))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Prices as epsilons at one delta.

    Attributes:
        delta: The delta at which all of them are stated.
        tight: The epsilon of the plan if everything is fixed before any output is seen.
        charged: The charge of the budget's filter for the plan alone; None if no finite epsilon follows.
        kinds: The charge in a budget of each kind, by kind; None if the plan has no price there.
        parts: The charge by the number of equal parts in which the plan is reserved; None if it cannot be cut in this
            way.
        after_a_quarter: The net charge when the last three quarters of the steps are given up; None if that gives
            nothing back.
    """

    delta: float
    tight: Interval
    charged: float | None
    kinds: dict[str, float | None]
    parts: dict[int, float | None]
    after_a_quarter: float | None


def compare(
    budget_filter: PrivacyFilter,
    events: Sequence[Event],
    relation: NeighboringRelation,
    delta: float,
    charge_delta: float | None = None,
) -> Comparison:
    """Price a plan in every kind of budget, whole and in parts.

    Args:
        budget_filter: The budget's filter.
        events: The plan.
        relation: The budget's relation.
        delta: The delta at which prices are stated as epsilons; in (0, 0.5].
        charge_delta: The delta at which an approximate_dp budget prices the plan.

    Guarantees: charged_is_the_price: of the budget's own filter.

    Raises:
        NoCostInFilter, Unsupported, AccountingError: If the budget's own filter has no price.

    >>> from accounting.events import Gaussian
    >>> from accounting.filters import ZcdpFilter
    >>> found = compare(ZcdpFilter(1.0), [Event(Gaussian(4.0), count=8)], NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-5)
    >>> round(found.tight.upper, 4), round(found.charged, 4), found.kinds["pure_dp"]
    (2.9432, 3.189, None)
    """
    steps = check_events(events)
    tight = epsilon_for_delta(steps, relation, delta).value
    charged = _epsilon(budget_filter, steps, relation, delta, charge_delta, 1)
    kinds: dict[str, float | None] = {}
    for kind in FILTERS:
        if kind == budget_filter.kind:
            kinds[kind] = charged
            continue
        try:
            kinds[kind] = _epsilon(_budget_of(kind, tight.upper, delta), steps, relation, delta, 0.5 * delta, 1)
        except AccountingError:
            kinds[kind] = None
    parts = {number: _in_parts(budget_filter, steps, relation, delta, charge_delta, number) for number in PARTS}
    after_a_quarter = _after_a_quarter(budget_filter, steps, relation, delta)
    return Comparison(delta, tight, charged, kinds, parts, after_a_quarter)


def _after_a_quarter(
    budget_filter: PrivacyFilter, events: tuple[Event, ...], relation: NeighboringRelation, delta: float
) -> float | None:
    kept = prefix_of_events(events, sum(event.count for event in events) // 4)
    if not kept or not budget_filter.gives_back:
        return None
    paid = budget_filter.cost(events, relation).amounts
    back = budget_filter.given_back(paid, events, kept, relation)
    if back is None:
        return None
    return budget_filter.epsilon_at(tuple(map(sub, paid, back.amounts)), delta)


def _in_parts(
    budget_filter: PrivacyFilter,
    events: tuple[Event, ...],
    relation: NeighboringRelation,
    delta: float,
    charge_delta: float | None,
    number: int,
) -> float | None:
    if any(event.count % number for event in events):
        return None
    part = tuple(replace(event, count=event.count // number) for event in events)
    try:
        return _epsilon(budget_filter, part, relation, delta, charge_delta, number)
    except AccountingError:
        return None


def _epsilon(
    budget_filter: PrivacyFilter,
    events: tuple[Event, ...],
    relation: NeighboringRelation,
    delta: float,
    charge_delta: float | None,
    times: int,
) -> float | None:
    """Return the epsilon of ``times`` charges of these events."""
    at = charge_delta if budget_filter.kind == "approximate_dp" else None
    amounts = budget_filter.cost(events, relation, at).amounts
    return budget_filter.epsilon_at(tuple(times * amount for amount in amounts), delta)


def _budget_of(kind: str, epsilon: float, delta: float) -> PrivacyFilter:
    """Return a filter of a kind. If prices depend on its size, the size suits a plan of about this epsilon.

    Raises:
        InvalidValue: If no filter of this size exists.
    """
    described = {"epsilon": epsilon, "delta": delta, "rho": 1.0, "mu": 1.0}
    return FILTERS[kind].from_json({"conversion": CANONNE, **{name: described[name] for name in FILTERS[kind].limits}})
