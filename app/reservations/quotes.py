"""Prices of events in a budget. They are computed before any lock is taken, and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from accounting.errors import AccountingError
from accounting.events import Event
from accounting.filters import PrivacyFilter
from accounting.relations import NeighboringRelation
from app.context import Context
from app.db.database import Database
from app.ledger import pricing, rows
from app.ledger import repository as ledger
from app.ledger.commands import Commit, GivenUp, Quote
from app.ledger.journal import path_of
from app.ledger.states import ReservationState, is_prefix, minus
from app.ledger.transitions import needs_a_price
from app.problems import from_accounting, not_found, unprocessable
from app.reservations import repository

_NOTHING_GIVEN_BACK = (
    "nothing is given back for the rest of these events: an approximate_gaussian_dp budget gives back only for "
    "Gaussian steps on full batches or on batches that are drawn anew in every step, in plans without a pure epsilon; "
    "commit without give_up_tail, which charges all of it"
)


def quote(
    context: Context,
    budget_id: str,
    events: Sequence[Event],
    *,
    charge_delta: float | None = None,
    relation: NeighboringRelation | None = None,
) -> Quote:
    """Price events in a budget, before any lock is taken. The price of the same events is remembered.

    Args:
        context: The process's context.
        budget_id: The budget.
        events: The events that will be released, under the budget's own neighbouring relation.
        charge_delta: The delta at which an approximate_dp budget prices them.
        relation: The relation under which the caller calibrated, to compare it with the budget's.

    Raises:
        Problem: 404; 422 ``relation_mismatch``, ``no_cost_in_filter``, ``missing_charge_delta``, or ``unsupported``
            when it takes too long.
    """
    budget_filter, own_relation, _ = terms(context, budget_id)
    if relation not in (None, own_relation):
        raise unprocessable(
            "relation_mismatch",
            f"the budget's neighboring_relation is {own_relation}; events that were priced under another relation "
            "cannot be charged",
            "neighboring_relation",
        )
    if charge_delta is not None and budget_filter.kind != "approximate_dp":
        raise unprocessable(
            "unexpected_charge_delta",
            f"a {budget_filter.kind} budget prices events without a delta; leave the field charge out",
            "charge",
            "delta",
        )
    try:
        return pricing.price_within_limits(context, budget_filter, tuple(events), own_relation, charge_delta)
    except AccountingError as error:
        raise from_accounting(error) from None


def remembered_quote(
    context: Context, budget_id: str, events: tuple[Event, ...], *, charge_delta: float | None
) -> Quote | None:
    """Return the answer of `quote` if it is remembered; nothing is computed or read."""
    own = _TERMS.get(context.database, {}).get(budget_id)
    if own is None or (charge_delta is not None and own.filter.kind != "approximate_dp"):
        return None
    return pricing.remembered(own.filter, events, own.relation, charge_delta)


def quote_part(
    context: Context, reservation_id: str, events: Sequence[Event] | None, *, nothing_released: bool = False
) -> Quote | None:
    """Price a part of a reservation's events, if committing it charges less than what is held.

    Raises:
        Problem: 422 ``unsupported`` when finding the price takes too long.
    """
    if events is None:
        return None
    with context.database.read() as session:
        row = repository.find(session, reservation_id)
        if row is None:
            return None
        reservation, path = rows.reservation_state(row), path_of(session, row.budget_id)
    assert path is not None, "a reservation has a budget"
    command = Commit(tuple(events), nothing_released=nothing_released)
    if not reservation.is_open or not needs_a_price(command, reservation, path[0]):
        return None
    return quote(context, reservation.budget_id, events, charge_delta=reservation.charge_delta)


def quote_again(context: Context, state: ReservationState) -> Quote:
    """Price a reservation's events again: all of them, the part that was paid for, or all except a tail that was given
    up.

    Raises:
        Problem: as `quote`.
    """
    events = state.priced_events
    budget_filter, relation, _ = terms(context, state.budget_id)
    back = None if state.charged is None else minus(state.cost, state.charged)
    is_part = events != state.events and not state.corrected
    if back is None or not is_part or not budget_filter.may_give_back(state.cost, back):
        return quote(context, state.budget_id, events, charge_delta=state.charge_delta)
    whole = quote(context, state.budget_id, state.events)
    failure = -back[1]  # the failure probability that giving up the tail spends
    try:
        asked = whole.amounts, state.events, events, relation, failure
        found = pricing.given_up_within_limits(context, budget_filter, *asked)
    except AccountingError as error:
        raise from_accounting(error) from None
    return whole if found is None else replace(whole, amounts=minus(whole.amounts, found.back))


def given_up(context: Context, reservation_id: str, kept: Sequence[Event]) -> GivenUp | None:
    """Compute what is given back for the steps of a reservation that were not taken and never will be.

    Returns:
        None if all of them were taken, or if the commit is refused anyway.

    Raises:
        Problem: 422 ``nothing_given_back``; 422 ``unsupported`` when finding it takes too long.
    """
    with context.database.read() as session:
        row = repository.find(session, reservation_id)
        if row is None:
            return None
        state, path = rows.reservation_state(row), path_of(session, row.budget_id)
    assert path is not None, "a reservation has a budget"
    if not state.is_open or tuple(kept) == state.events or not is_prefix(kept, state.events):
        return None
    asked = path[0].filter, state.cost, state.events, tuple(kept), path[0].relation
    try:
        found = pricing.given_up_within_limits(context, *asked)
    except AccountingError as error:
        raise from_accounting(error) from None
    if found is None:
        raise unprocessable("nothing_given_back", _NOTHING_GIVEN_BACK, "give_up_tail")
    return found


def charge_delta_in(context: Context, budget_id: str, delta: float | None) -> float | None:
    """Return the caller's delta if the budget prices at one; None for every other budget.

    Raises:
        Problem: 404.
    """
    return delta if terms(context, budget_id).filter.kind == "approximate_dp" else None


class Terms(NamedTuple):
    """The terms on which a price depends, and the delta at which it is explained. They never change.

    Attributes:
        filter: A filter with the right kind and price terms; its limit may be an older one.
        report_delta: The delta of the budget's reports.
    """

    filter: PrivacyFilter
    relation: NeighboringRelation
    report_delta: float | None


_TERMS: WeakKeyDictionary[Database, dict[str, Terms]] = WeakKeyDictionary()
_MOST_TERMS = 100_000


def terms(context: Context, budget_id: str) -> Terms:
    """Return the terms on which prices in a budget depend; they are remembered.

    Raises:
        Problem: 404.
    """
    known = _TERMS.setdefault(context.database, {})
    found = known.get(budget_id)  # another thread may clear the cache at any time
    if found is None:
        with context.database.read() as session:
            row = ledger.find_budget(session, budget_id)
        if row is None:
            raise not_found("budget", budget_id)
        if len(known) >= _MOST_TERMS:
            known.clear()
        state = rows.budget_state(row)
        report_delta = None if row.report_delta is None else float(row.report_delta)
        found = known[budget_id] = Terms(state.filter, state.relation, report_delta)
    return found
