"""The numerics of the ledger: they compute what events cost in a budget, and how many of them would fit.

Both take milliseconds to seconds, so both happen outside of transactions: the price is computed before the budget is
locked, and the number that would have fitted after a denial, from the amounts on which the denial was decided.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from time import monotonic

from accounting import ENGINE_VERSION
from accounting.effort import is_quick
from accounting.errors import AccountingError, NoCostInFilter, Unsupported
from accounting.events import Event, prefix_of_events
from accounting.events.schedules import resolve_schedules
from accounting.filters import PrivacyFilter
from accounting.relations import NeighboringRelation
from accounting.units import Amounts
from app.context import Context
from app.kit.process_pool import JobFailed
from app.ledger.commands import GivenUp, Quote
from app.ledger.states import BudgetState, Path

#: The seconds after which pricing the different sampled steps of a list is given up. In the default filter, a thousand
#: steps take two to five seconds; an order or a noise that makes a single step slow takes longer. Adding up costs that
#: the engine has forgotten meanwhile (it remembers 4096) takes as long again.
PRICE_SECONDS = 10.0


#: The number of prices that are remembered; beyond that, all are forgotten.
_MOST_PRICES = 4096
_Key = tuple[PrivacyFilter, tuple[Event, ...], NeighboringRelation, float | None]
_PRICES: dict[_Key, Quote] = {}


def remembered(
    budget_filter: PrivacyFilter, events: tuple[Event, ...], relation: NeighboringRelation, charge_delta: float | None
) -> Quote | None:
    """Return the result of `price` if it is remembered."""
    return _PRICES.get((budget_filter, events, relation, charge_delta))


def price(
    budget_filter: PrivacyFilter,
    events: tuple[Event, ...],
    relation: NeighboringRelation,
    charge_delta: float | None = None,
) -> Quote:
    """Price ``events`` in the filter, whatever its limit is.

    Raises:
        NoCostInFilter: the filter has no proved cost for an event.
        Unsupported: computing the price takes more than `PRICE_SECONDS`.
        AccountingError: ``missing_charge_delta``.
    """
    key = (budget_filter, events, relation, charge_delta)
    found = _PRICES.get(key)
    if found is None:
        found = _price(budget_filter, events, relation, charge_delta)
        _remember(key, found)
    return found


def _remember(key: _Key, quote: Quote) -> None:
    if len(_PRICES) >= _MOST_PRICES:
        _PRICES.clear()
    _PRICES[key] = quote


def price_within_limits(
    context: Context,
    budget_filter: PrivacyFilter,
    events: tuple[Event, ...],
    relation: NeighboringRelation,
    charge_delta: float | None,
) -> Quote:
    """Return `price`; for events that may take minutes, compute it in a process with limits of time and memory.

    Raises:
        NoCostInFilter, Unsupported, AccountingError: as `price`.
    """
    if is_quick(events):
        with context.numerics:
            return price(budget_filter, events, relation, charge_delta)
    found = remembered(budget_filter, events, relation, charge_delta)
    if found is None:
        try:
            found = context.processes.run(price, budget_filter, events, relation, charge_delta)
        except JobFailed as failure:
            detail = f"the price of these events was given up: {failure}; reserve fewer kinds of them at once"
            raise Unsupported(detail, pointer=("events",)) from None
        _remember((budget_filter, events, relation, charge_delta), found)
    return found


def given_up_within_limits(
    context: Context,
    budget_filter: PrivacyFilter,
    held: Amounts,
    events: tuple[Event, ...],
    kept: tuple[Event, ...],
    relation: NeighboringRelation,
    failure: int | None = None,
) -> GivenUp | None:
    """Compute what is given back for steps that will never be taken (`PrivacyFilter.given_back`); None if that is
    nothing.

    Raises:
        Unsupported: the computation exceeds the limits of a process.
    """
    asked = (held, events, kept, relation, failure)
    if is_quick(events):
        with context.numerics:
            back = budget_filter.given_back(*asked)
    else:
        try:
            back = context.processes.run(budget_filter.given_back, *asked)
        except JobFailed as given_up:
            detail = f"the amount to give back for the rest was not found: {given_up}; commit without give_up_tail"
            raise Unsupported(detail, pointer=("events",)) from None
    return None if back is None else GivenUp(held, back.amounts, ENGINE_VERSION)


def what_would_fit(
    context: Context, path: Path, events: tuple[Event, ...], charge_delta: float | None
) -> dict[str, int]:
    """Return `largest_count_that_fits` under its name; nothing if computing it would take too long."""
    if is_quick(events):
        with context.numerics:
            return {"largest_count_that_fits": largest_count_that_fits(path, events, charge_delta)}
    try:
        return {"largest_count_that_fits": context.processes.run(largest_count_that_fits, path, events, charge_delta)}
    except JobFailed:
        return {}


def _price(
    budget_filter: PrivacyFilter,
    events: tuple[Event, ...],
    relation: NeighboringRelation,
    charge_delta: float | None,
) -> Quote:
    if not events:
        return Quote(budget_filter.zero, ENGINE_VERSION)
    if budget_filter.prefix_may_depend_on_outputs:  # only such a list is priced step by step
        with suppress(NoCostInFilter):  # the error is raised below, with the event's position in the list
            _price_the_sampled_steps(budget_filter, events, relation)
    cost = budget_filter.cost(events, relation, charge_delta)
    warnings = tuple((warning.code, warning.detail) for warning in cost.warnings)
    return Quote(cost.amounts, ENGINE_VERSION, warnings)


def largest_count_that_fits(path: Path, events: tuple[Event, ...], charge_delta: float | None) -> int:
    """Return the largest number of first steps of the list that every budget of the path would have admitted."""
    return min(_largest_count(level, events, charge_delta) for level in path)


def _largest_count(budget: BudgetState, events: tuple[Event, ...], charge_delta: float | None) -> int:
    if not budget.filter.prefix_may_depend_on_outputs or len(events) == 1:
        # The price of a list may differ from the sum of its events' prices, so the filter prices whole lists.
        return budget.filter.largest_count_that_fits(events, budget.relation, budget.used, charge_delta)
    return _Search(budget, events).largest_count_that_fits()


class _Search:
    """A form of `PrivacyFilter.largest_count_that_fits` for long lists, in which each event is priced once.

    Guarantees: same_as_the_filters_own: the result is that of the filter's method, which prices the list again for
    every step of its search. Here the sums of the events' prices give the answer up to rounding, and the exact price is
    computed only if rounding decides.
    """

    def __init__(self, budget: BudgetState, events: tuple[Event, ...]) -> None:
        self.filter, self.relation, self.used, self.events = budget.filter, budget.relation, budget.used, events

    def largest_count_that_fits(self) -> int:
        events = self.events
        costs = [self.filter.cost((event,), self.relation).amounts for event in events]
        sums = list(accumulate(costs, self.filter.add, initial=self.filter.zero))
        # Each event's cost was rounded up by less than a unit, but the price of a list is rounded once.
        surely = _last(lambda count: self._fits(sums[count]), 0, len(events))
        perhaps = _last(lambda count: self._fits(_less(sums[count], count)), surely, len(events))
        whole = _last(lambda count: self._fits(self._cost(events[:count])), surely, perhaps)
        if whole == len(events):
            return _steps(events)
        cut, before = (events[whole],), self._cost(events[:whole])
        # The price of the events before and the price of this one are rounded separately, but their sum is rounded
        # once.
        fewest, most = (
            self.filter.largest_count_that_fits(cut, self.relation, self.filter.add(self.used, amounts))
            for amounts in (before, _less(before, 1))
        )
        first = _steps(events[:whole])
        return _last(
            lambda steps: self._fits(self._cost(prefix_of_events(events, steps))), first + fewest, first + most
        )

    def _fits(self, amounts: Amounts) -> bool:
        return self.filter.admits(self.filter.add(self.used, amounts))

    def _cost(self, events: tuple[Event, ...]) -> Amounts:
        return self.filter.cost(events, self.relation).amounts if events else self.filter.zero


def _price_the_sampled_steps(
    budget_filter: PrivacyFilter, events: tuple[Event, ...], relation: NeighboringRelation
) -> None:
    """Price each different step that takes long by itself, until the time is over; the engine remembers the latest
    prices."""
    deadline = monotonic() + PRICE_SECONDS
    try:
        resolve_schedules(events, relation)
    except AccountingError as error:
        raise error.inside("events") from None
    steps = dict.fromkeys(Event(event.mechanism, event.sampling) for event in events if event.sampling.is_amplified)
    for done, step in enumerate(steps):
        if monotonic() > deadline:
            detail = (
                f"pricing these events takes more than {PRICE_SECONDS:g} seconds: {done} of their {len(steps)} "
                "different sampled steps have a price by now; reserve fewer events at once, or use a budget with "
                "fewer orders"
            )
            raise Unsupported(detail, pointer=("events",))
        budget_filter.cost((step,), relation)


def _less(amounts: Amounts, units: int) -> Amounts:
    return tuple(max(0, amount - units) for amount in amounts)


def _steps(events: tuple[Event, ...]) -> int:
    return sum(event.count for event in events)


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number from ``low`` to ``high`` that satisfies a condition, which holds at ``low`` and up to
    some number."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
