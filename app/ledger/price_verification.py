"""Check that entries charge what their events cost. Each different price is computed once, and every entry is compared
with its price.

This module is pure: it receives entries while `app.ledger.books` reads them, and calls a function that computes prices.
An entry's charge is *too low* if some amount is below the certified lower bound of today's price
(`PrivacyFilter.least_cost`); rounding cannot explain such a charge. The charge is also too low if the budget's filter
has no price for such events at all. No version of the ledger has ever admitted such events: later versions have only
added mechanisms and samplings that have a price, and an `approximate_dp` budget has never priced events that need a
delta without one. (Early versions did not record the delta of a correction, so such a correction is undecided.) A
charge between the lower bound and today's price is *undecided*. A charge whose price cannot be computed today is
undecided, too. A charge above today's price is *high*.

`app.ledger.transitions` determines what each kind of entry charges:

| entry | charges |
|---|---|
| reserve, a charge by hand | the price of its events |
| commit | what was held; of a part, for each amount, the smaller of the part's price and what was held |
| commit, the rest given up | the price of all events less what the rest is worth, for the failure that it says |
| correct, with other events | the price of these |
| correct, without | the price of the events that were paid for, or what was charged before, where that is more |

Memory is bounded. For each price, this module keeps the different amounts that were charged, with their counts and the
place of the first entry. When it holds too many of them, it judges and counts them, and then discards them.
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

# These members have names of their own because every entry is compared with them. Looking up a member in its class each
# time would take longer than the rest of the work.
_RESERVE, _COMMIT, _CORRECT = EntryKind.RESERVE, EntryKind.COMMIT, EntryKind.CORRECT

#: The largest number of charges in memory, and the largest number of events in them. When either is exceeded, all are
#: judged and discarded.
MOST_HELD, MOST_EVENTS = 20_000, 200_000
#: The largest number of judgements of each verdict that a report lists. The counts include all judgements.
LISTED = 100


class PriceClass(StrEnum):
    """The verdict of comparing an entry's charge with today's price of its events."""

    TOO_LOW = "too_low"
    """Some amount is below the certified lower end of the price, or the budget has no cost for such events at all."""
    UNDECIDED = "undecided"
    """Some amount is below the price, none below its lower end; or there is no price today."""
    RIGHT = "right"
    """The amounts are the price."""
    HIGH = "high"
    """No amount is below the price, and some are above it: an older engine found more."""


class Priced(NamedTuple):
    """Events and the filter in which they are priced. The filter's limit does not affect the price.

    Attributes:
        kept: The part of the events that happened, if the other events were given up.
        failure: The delta that was spent for giving them up, in units of 1e-18.
    """

    filter: PrivacyFilter
    events: tuple[Event, ...]
    relation: NeighboringRelation
    charge_delta: float | None
    kept: tuple[Event, ...] | None = None
    failure: int = 0


class Ends(NamedTuple):
    """Today's price: its certified lower bound, and the amounts that would be charged."""

    least: Amounts
    most: Amounts


class Unpayable(NamedTuple):
    """States that a budget of this kind has no price for the events, and never had one.

    Attributes:
        reason: The reason why there is no price.
        lacks_delta: Whether there would be a price if the request named a delta.
    """

    reason: str
    lacks_delta: bool = False


#: A function that finds prices, in the order of its argument. Each result is a price with its lower bound, the
#: statement that there is no price, or a text that says why the price is unknown today.
FindPrices = Callable[[Sequence[Priced]], Iterable[Ends | Unpayable | str]]


@dataclass(frozen=True)
class Judgement:
    """The verdict on all entries that charge the same amounts for the same events.

    Attributes:
        verdict: How the amounts compare with the price.
        entries: The number of these entries.
        budget_id, sequence, leaf_index: The place of the first of these entries.
        charged: The amounts that each entry charges, in the filter's own fields.
        least, price: The certified lower bound of today's price and today's price, also in the filter's own fields;
            None if there is no price.
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
        """Return the first of the entries as a `BadPlace` error."""
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
        prices: The number of different prices whose computation was attempted.
        entries: The number of entries that charge something, by verdict.
        listed: The first `LISTED` entries of each verdict except *right*; those that are too low come first.
    """

    prices: int = 0
    entries: dict[PriceClass, int] = field(default_factory=lambda: dict.fromkeys(PriceClass, 0))
    listed: list[Judgement] = field(default_factory=list)

    @property
    def first_too_low(self) -> Judgement | None:
        """Return the judgement whose first entry is the first in the ledger that charges too little; None if there is
        none."""
        found = [each for each in self.listed if each.verdict is PriceClass.TOO_LOW]
        return min(found, key=lambda each: each.leaf_index, default=None)

    def in_words(self) -> str:
        """Return the result in words, for use inside a sentence."""
        counts = ", ".join(f"{self.entries[each]} {str(each).replace('_', ' ')}" for each in PriceClass)
        return f"{self.prices} different prices of {sum(self.entries.values())} charges: {counts}"


class PriceVerification:
    """Collects the charges of entries, and compares them with today's prices.

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
        """Process the next entry about a reservation (`app.ledger.books.Charges`)."""
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
        # Equal lists of events are usually one object here, so lists are looked up by identity. Hashing a list would
        # take as long as all other work on an entry.
        named = self._lists[id(events)] = _List(events)
        self._events += len(events)
        return named

    def _settle(self) -> None:
        """Compute the prices that are not known yet, judge the collected entries, and discard them."""
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
            # Discarded prices are computed again when they are needed.
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
    """Return the verdict on the charged amounts, given the price of their events.

    Args:
        amounts: The amounts that are charged.
        held: The amounts that the reservation held, which bound the charge for a part of its events; None if there is
            no such bound.
        price: Today's price of the events.

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


#: The key of a price: the filter's kind and price terms, the relation, the charge's delta, the events, the part of them
#: that happened, and the failure probability.
_Key = tuple[
    str,
    tuple[str, tuple[float, ...]] | None,
    NeighboringRelation,
    float | None,
    _List,
    tuple[Event, ...] | None,
    int,
]
#: The charged amounts, the held amounts if they bound the charge, and whether the charge may have been priced at a
#: delta that no entry states.
_Charged = tuple[Amounts, Amounts | None, bool]
