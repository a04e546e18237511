"""What events cost in a budget, and how much of them would fit: the numerics of the ledger.

Both take milliseconds to seconds, so both are asked for outside every transaction: the price before the budget is
locked, and what would have fitted after a denial, from the amounts that the denial was decided on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from time import monotonic

from accounting.errors import AccountingError, NoCostInFilter, Unsupported
from accounting.events import Event, prefix_of_events
from accounting.filter_costs import Cost
from accounting.filters import PrivacyFilter
from accounting.privacy_loss import is_amplified
from accounting.relations import NeighboringRelation
from accounting.sampling.schedules import resolve_schedules
from accounting.units import Amounts

#: Pricing the different sampled steps of a list is given up after this many seconds. A thousand of them in
#: the default filter take two to five; an order or a noise that makes a single step slow takes longer. Adding up costs
#: that the engine has forgotten by then (it remembers 4096) takes as long again.
PRICE_SECONDS = 10.0


@lru_cache(maxsize=1024)
def price(budget_filter: PrivacyFilter, events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """What ``events`` cost in the filter. Remembered, so that a price asked for before the lock is free inside it.

    Raises:
        NoCostInFilter: the filter has no proved cost for an event.
        Unsupported: the price is not found in `PRICE_SECONDS`.
    """
    with suppress(NoCostInFilter):  # said below, with the event's place in the list
        _price_the_sampled_steps(budget_filter, events, relation)
    return budget_filter.cost(events, relation)


@dataclass(frozen=True)
class Shortfall:
    """A reservation that did not fit: the events, and the amounts that were used when it was decided."""

    filter: PrivacyFilter
    relation: NeighboringRelation
    events: tuple[Event, ...]
    used: Amounts

    def largest_count_that_fits(self) -> int:
        """The largest number of first steps of the list that would have been admitted.

        Guarantees: same_as_the_filters_own: `accounting.filters` says the same, and prices the list again for every
        step of its search. Here each event is priced once, which tells the answer but for the rounding of its price;
        the exact price is asked for only where that rounding decides.
        """
        events, zero = self.events, self.filter.zero
        costs = [self.filter.cost((event,), self.relation).amounts for event in events]
        sums = list(accumulate(costs, self.filter.add, initial=zero))
        # Each cost was rounded up by less than a unit; the price of the list is rounded once.
        surely = _last(lambda count: self._fits(sums[count]), 0, len(events))
        perhaps = _last(lambda count: self._fits(_less(sums[count], count)), surely, len(events))
        whole = _last(lambda count: self._fits(self._cost(events[:count])), surely, perhaps)
        if whole == len(events):
            return _steps(events)
        cut, before = (events[whole],), self._cost(events[:whole])
        # Two roundings, of the events before and of this one, against one.
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
    """Price each different step that takes time, alone, until the time is over; the engine remembers the latest."""
    deadline = monotonic() + PRICE_SECONDS
    try:
        resolve_schedules(events, relation)
    except AccountingError as error:
        raise error.inside("events") from None
    steps = dict.fromkeys(Event(event.mechanism, event.sampling) for event in events if is_amplified(event))
    for done, step in enumerate(steps):
        if monotonic() > deadline:
            detail = (
                f"these events take more than {PRICE_SECONDS:g} seconds to price: {done} of their {len(steps)} "
                "different sampled steps have a price by now; reserve fewer at once, or use a budget with fewer orders"
            )
            raise Unsupported(detail, pointer=("events",))
        budget_filter.cost((step,), relation)


def _less(amounts: Amounts, units: int) -> Amounts:
    return tuple(max(0, amount - units) for amount in amounts)


def _steps(events: tuple[Event, ...]) -> int:
    return sum(event.count for event in events)


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number from ``low`` to ``high`` for which it holds: it does for ``low``, and not beyond a limit."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
