"""Costs in approximate_dp budgets: a tight price of the whole reservation, or sums."""

from __future__ import annotations

import math
from fractions import Fraction

from accounting.accountant import epsilon_for_delta
from accounting.errors import AccountingError
from accounting.events import ApproximateDp, Event, Laplace, PureDp
from accounting.filter_costs.additive import pure_epsilon
from accounting.filter_costs.table import (
    FILTERS_OF_SAMPLING,
    SAME_RANDOMIZER_REQUIRED,
    SMALLEST_DELTA,
    Cost,
    CostWarning,
    checked,
    exact,
    is_sampled,
    total,
)
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import same_randomizer_required
from accounting.units import SATURATED, to_atto_up, to_nano_up


def approximate_dp_cost(
    events: tuple[Event, ...], relation: NeighboringRelation, charge_delta: float | None = None
) -> Cost:
    """Epsilon and delta of the list as a whole.

    Pure, Laplace and approximate_dp events alone: the sums of their epsilons and deltas, whatever ``charge_delta`` is.
    Otherwise: one certified epsilon of the whole list at ``charge_delta``, in which approximate_dp events stand as
    pure ones, and ``charge_delta`` plus the deltas that those state. An (eps, delta)-DP step is, with probability
    1 - delta at least, an eps-DP one (Kairouz, Oh & Viswanath 2015, Theorem 3.1), so that the deltas add up.

    Args:
        events, relation: One reservation.
        charge_delta: In [1e-18, 0.5].

    Returns:
        Nano-units of epsilon (`SATURATED` where no bound is finite) and atto-units of delta.

    Guarantees: above_the_certified_epsilon; stated_deltas_are_charged; same_randomiser_is_said_to_be_required.

    Raises:
        NoCostInFilter, Unsupported: as `pure_dp_cost`.
        AccountingError: code ``missing_charge_delta``: an event needs it.

    >>> from accounting.events import Gaussian
    >>> approximate_dp_cost((Event(Gaussian(1.0)),), NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-5).amounts
    (4377178096, 10000000000000)
    """
    events = checked(events, relation, "approximate_dp")
    stated = sum(
        (
            event.count * exact(event.mechanism.delta)
            for event in events
            if isinstance(event.mechanism, ApproximateDp) and not is_sampled(event)
        ),
        Fraction(0),
    )
    as_pure = tuple(
        Event(PureDp(event.mechanism.epsilon), count=event.count)
        if isinstance(event.mechanism, ApproximateDp) and not is_sampled(event)
        else event
        for event in events
    )
    unpriced = [event.mechanism.kind for event in as_pure if not _is_summed(event)]
    if not unpriced:
        return Cost((to_nano_up(total(as_pure, relation, pure_epsilon)), to_atto_up(stated)))
    if charge_delta is None:
        raise AccountingError(
            f"a {unpriced[0]} event has an epsilon only at a delta: say in charge.delta, from 1e-18 to 0.5, at which "
            "delta this reservation is priced; that delta is charged together with the epsilon",
            code="missing_charge_delta",
            pointer=("charge", "delta"),
        )
    try:
        delta = read_real("delta", charge_delta, SMALLEST_DELTA, 0.5)
    except AccountingError as error:
        raise error.inside("charge") from None
    epsilon = epsilon_for_delta(as_pure, relation, delta).value.upper
    amounts = to_nano_up(Fraction(epsilon)) if math.isfinite(epsilon) else SATURATED, to_atto_up(exact(delta) + stated)
    requirement = same_randomizer_required(events)
    return Cost(amounts, () if requirement is None else (CostWarning(SAME_RANDOMIZER_REQUIRED, requirement),))


def _is_summed(event: Event) -> bool:
    """Whether its epsilon is charged as it is, at delta 0."""
    return isinstance(event.mechanism, PureDp | Laplace) and type(event.sampling) not in FILTERS_OF_SAMPLING
