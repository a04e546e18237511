"""Check that entries charge what their events cost: each different price is computed once, and every entry compared
with it.

This module is pure: it receives entries while the books are read, and calls a function that computes prices. An entry's
charge is *too low* if some amount is below the certified lower end of today's price (`PrivacyFilter.least_cost`), which
rounding cannot explain. It is also too low if the budget has no cost for such events at all. No version of the ledger
has admitted these: later versions have only added mechanisms and samplings with a cost, and an `approximate_dp` budget
has never priced without a delta events that need one. (Early versions did not enter the delta of a correction, so such
a correction is undecided.) A charge between the lower end and today's price is *undecided*, and so is one without a
price today. A charge above today's price is *high*.

The price of an entry follows from what the ledger does (`app.ledger.transitions`):

| entry | charges |
|---|---|
| reserve, a charge by hand | the price of its events |
| commit | what was held; of a part, for each amount, the smaller of the part's price and what was held |
| commit, the rest given up | the price of all events less what the rest is worth, for the failure that it says |
| correct, with other events | the price of these |
| correct, without | the price of the events that were paid for, or what was charged before, where that is more |

Memory is bounded. For each price the different amounts are kept, with their counts and the place of the first entry. If
these become too many, they are judged, counted and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import gt, lt
from typing import NamedTuple

from accounting import ENGINE_VERSION
from accounting.events import Event
from accounting.filters import PrivacyFilter
from accounting.relations import NeighboringRelation
from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord
from app.ledger.amounts import amounts_in_words
from app.ledger.books import BadPlace
from app.ledger.rebuild import History
from app.ledger.states import ReservationState
from app.tables.states import Amounts

# These stand here because they are compared for every entry, and looking up a member in its class would take longer
# than the rest of the work.
_RESERVE, _COMMIT, _CORRECT = EntryKind.RESERVE, EntryKind.COMMIT, EntryKind.CORRECT

#: The most charges that are held in memory, and the most events in them. Beyond either, all are judged and forgotten.
MOST_HELD, MOST_EVENTS = 20_000, 200_000
#: The most judgements of each kind that a report lists; all are counted.
LISTED = 100


class PriceClass(StrEnum):
    """An entry's charge, compared with what its events cost today, is one of these."""

    TOO_LOW = "too_low"
    """Some amount is below the certified lower end of the price, or the budget has no cost for such events at all."""
    UNDECIDED = "undecided"
    """Some amount is below the price, none below its lower end; or there is no price today."""
    RIGHT = "right"
    """The amounts are the price."""
    HIGH = "high"
    """No amount is below the price, and some are above it: an older engine found more."""


class Priced(NamedTuple):
    """Events that are priced in a filter, whatever its limit is.

    Attributes:
        kept: The part of the events that happened, if the rest was given up.
        failure: The delta that was spent for that, in atto-units.
    """

    filter: PrivacyFilter
    events: tuple[Event, ...]
    relation: NeighboringRelation
    charge_delta: float | None
    kept: tuple[Event, ...] | None = None
    failure: int = 0


class Ends(NamedTuple):
    """Today's price: its certified lower end, and the amounts that would be charged."""

    least: Amounts
    most: Amounts


class Unpayable(NamedTuple):
    """A budget of this kind has no price for the events, and never had one.

    Attributes:
        reason: Why.
        lacks_delta: Whether it would have one at a delta, and none is said.
    """

    reason: str
    lacks_delta: bool = False


#: Finds prices, in the order of the charges: both ends of a price, or that there is none, or why it is unknown today.
FindPrices = Callable[[Sequence[Priced]], Iterable[Ends | Unpayable | str]]


@dataclass(frozen=True)
class Judgement:
    """Entries that charge the same amounts for the same events.

    Attributes:
        verdict: How the amounts compare with the price.
        entries: The number of these entries.
        budget_id, sequence, leaf_index: The place of the first of them.
        charged: What an entry charges, in the filter's own fields.
        least, price: Both ends of today's price, also in the filter's own fields; None if there is no price.
        reason: The reason why there is no price; None if there is one.
    """

    verdict: PriceClass
    entries: int
    budget_id: str
    sequence: int
    leaf_index: int
    charged: dict[str, object]
    least: dict[str, object] | None = None
    price: dict[str, object] | None = None
    reason: str | None = None

    @property
    def bad_place(self) -> BadPlace:
        """Return the first of the entries, as a fault of the books."""
        more = f" ({self.entries - 1} more entries charge the same)" if self.entries > 1 else ""
        if self.reason is not None:
            reason = f"the price is too low: the entry charges {_said(self.charged)}, and {self.reason}{more}"
            return BadPlace(self.budget_id, self.sequence, self.leaf_index, reason)
        reason = (
            f"the price is too low: the entry charges {_said(self.charged)}, and engine {ENGINE_VERSION} finds "
            f"that its events cost at least {_said(self.least or {})}{more}"
        )
        return BadPlace(self.budget_id, self.sequence, self.leaf_index, reason)


@dataclass
class PriceReport:
    """The result for all charges.

    Attributes:
        prices: How many different prices were computed or tried.
        entries: The number of entries that charge something, by verdict.
        listed: The first `LISTED` entries of each verdict except *right*; those that are too low come first.
    """

    prices: int = 0
    entries: dict[PriceClass, int] = field(default_factory=lambda: dict.fromkeys(PriceClass, 0))
    listed: list[Judgement] = field(default_factory=list)

    @property
    def first_too_low(self) -> Judgement | None:
        """Return the first entry in the books that charges too little."""
        found = [each for each in self.listed if each.verdict is PriceClass.TOO_LOW]
        return min(found, key=lambda each: each.leaf_index, default=None)

    def in_words(self) -> str:
        """Return the result in one clause."""
        counts = ", ".join(f"{self.entries[each]} {str(each).replace('_', ' ')}" for each in PriceClass)
        return f"{self.prices} different prices of {sum(self.entries.values())} charges: {counts}"


class PriceVerification:
    """Collect what entries charge, and compare it with prices.

    Args:
        find: The function that computes prices.
        most_held, most_events: Bounds on memory, as `MOST_HELD` and `MOST_EVENTS` describe them.
    """

    def __init__(self, find: FindPrices, most_held: int = MOST_HELD, most_events: int = MOST_EVENTS) -> None:
        self._find, self._most_held, self._most_events = find, most_held, most_events
        self._report = PriceReport()
        self._held: dict[_Key, dict[_Charged, _Met]] = {}
        self._known: dict[_Key, Ends | Unpayable | str] = {}
        self._lists: dict[int, _List] = {}
        self._groups = self._events = 0

    def add(
        self,
        leaf_index: int,
        history: History,
        record: EntryRecord,
        before: ReservationState | None,
        after: ReservationState,
    ) -> None:
        """Process the next entry about a reservation, as `app.ledger.books.Charges` asks."""
        kind = record.kind
        kept, failure = None, 0
        if record.tail is not None:
            assert before is not None, "a commit follows a reservation"
            events, held, kept, failure = before.events, None, record.events, -record.tail[1]
        elif kind is _COMMIT:
            assert before is not None, "a commit follows a reservation"
            in_full = record.amounts == before.cost
            events, held = (before.events, None) if in_full else (record.events, before.cost)
        elif kind is _RESERVE or before is None or (kind is _CORRECT and after.corrected):
            events, held = record.events, None
        elif kind is _CORRECT:
            events, held = before.priced_events, None
        else:
            return
        if not events:
            return
        budget_filter = history.filter
        named = self._lists.get(id(events)) or self._named(events)
        terms = budget_filter.price_terms
        key = (budget_filter.kind, terms, history.relation, after.charge_delta, named, kept, failure)
        may_lack_delta = kind is _CORRECT and before is not None
        charged = (record.amounts, held, may_lack_delta)
        met = self._held.setdefault(key, {})
        first = met.get(charged)
        if first is not None:
            first.entries += 1
            return
        met[charged] = _Met(budget_filter, leaf_index, record.budget_id, record.sequence)
        self._groups += 1
        if self._groups > self._most_held or self._events > self._most_events:
            self._settle()

    def finish(self) -> PriceReport:
        """Judge the remaining entries. Call this once, after the last entry."""
        self._settle()
        self._report.listed.sort(key=lambda each: (list(PriceClass).index(each.verdict), each.leaf_index))
        return self._report

    def _named(self, events: tuple[Event, ...]) -> _List:
        # The books share lists that are equal, and hashing a list takes as long as everything else that is done with an
        # entry.
        named = self._lists[id(events)] = _List(events)
        self._events += len(events)
        return named

    def _settle(self) -> None:
        """Compute the prices that are not known yet, judge the collected entries, and forget them."""
        held, self._held, self._groups = self._held, {}, 0
        missing = [key for key in held if key not in self._known]
        asked = [
            Priced(next(iter(held[key].values())).filter, named.events, relation, delta, kept, failure)
            for key in missing
            for _, _, relation, delta, named, kept, failure in [key]
        ]
        self._known.update(zip(missing, self._find(asked), strict=True))
        self._report.prices += len(missing)
        for key, met in held.items():
            for (amounts, most, may_lack_delta), first in met.items():
                price = self._known[key]
                if isinstance(price, Unpayable) and price.lacks_delta and may_lack_delta:
                    price = f"{price.reason}; earlier versions priced corrections at a delta that is in no entry"
                self._judge(amounts, most, first, price)
        if self._events > self._most_events or len(self._known) > self._most_held:
            # Prices that are forgotten here are computed again when they are needed.
            self._known, self._lists, self._events = {}, {}, 0

    def _judge(self, amounts: Amounts, held: Amounts | None, first: _Met, price: Ends | Unpayable | str) -> None:
        if isinstance(price, Unpayable):
            verdict = PriceClass.TOO_LOW
        else:
            verdict = PriceClass.UNDECIDED if isinstance(price, str) else judge(amounts, held, price)
        self._report.entries[verdict] += first.entries
        listed = sum(each.verdict is verdict for each in self._report.listed)
        if verdict is PriceClass.RIGHT or listed >= LISTED:
            return
        reason = least = most = None
        if isinstance(price, Unpayable):
            reason = f"this budget cannot pay for such events at any price: {price.reason}"
        elif isinstance(price, str):
            reason = price
        else:
            least = amounts_in_words(first.filter, _at_most(price.least, held))
            most = amounts_in_words(first.filter, _at_most(price.most, held))
        self._report.listed.append(
            Judgement(
                verdict=verdict,
                entries=first.entries,
                budget_id=first.budget_id,
                sequence=first.sequence,
                leaf_index=first.leaf_index,
                charged=amounts_in_words(first.filter, amounts),
                least=least,
                price=most,
                reason=reason,
            )
        )


def judge(amounts: Amounts, held: Amounts | None, price: Ends) -> PriceClass:
    """Compare what is charged with a price.

    Args:
        amounts: What is charged.
        held: What was held, which is the most that a part may be charged; None if there is no such bound.
        price: The price of the events.

    >>> judge((5, 7), None, Ends((5, 8), (5, 9))), judge((5, 7), (9, 7), Ends((5, 8), (5, 9)))
    (<PriceClass.TOO_LOW: 'too_low'>, <PriceClass.RIGHT: 'right'>)
    """
    if any(map(lt, amounts, _at_most(price.least, held))):
        return PriceClass.TOO_LOW
    most = _at_most(price.most, held)
    if any(map(lt, amounts, most)):
        return PriceClass.UNDECIDED
    return PriceClass.HIGH if any(map(gt, amounts, most)) else PriceClass.RIGHT


def _at_most(amounts: Amounts, held: Amounts | None) -> Amounts:
    return amounts if held is None else tuple(map(min, amounts, held))


def _said(amount: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in _members(amount))


def _members(amount: dict[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in amount.items():
        yield name, " ".join(map(str, value)) if isinstance(value, list) else value


class _List:
    """A list of events with its hash."""

    __slots__ = ("_hash", "events")

    def __init__(self, events: tuple[Event, ...]) -> None:
        self.events, self._hash = events, hash(events)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _List) and self.events == other.events


@dataclass
class _Met:
    """The first place where amounts were charged, and how often they were charged."""

    filter: PrivacyFilter
    leaf_index: int
    budget_id: str
    sequence: int
    entries: int = 1


#: The filter's kind and price terms, the relation, the charge's delta, the events, the part of them that was kept, and
#: the failure.
_Key = tuple[
    str,
    tuple[str, tuple[float, ...]] | None,
    NeighboringRelation,
    float | None,
    _List,
    tuple[Event, ...] | None,
    int,
]
#: The charge, the amounts that were held if they bound it, and whether it may have been priced at a delta that no entry
#: states.
_Charged = tuple[Amounts, Amounts | None, bool]
