"""The base class of privacy filters: caps, the costs that count against them, their meaning as epsilon, and their
JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import ClassVar, Self

from accounting.canonical import Json
from accounting.conversions.rounding import rounded_up
from accounting.errors import InvalidValue, one_of
from accounting.events import Event, check_events, prefix_of_events
from accounting.filters.costs import Cost
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation
from accounting.units import MAX_LIMIT, NANO, SATURATED, Amounts, add_saturating, exact, to_nano_down


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The refund for steps of a plan that will never be taken.

    Attributes:
        amounts: The amounts to subtract from what the plan was charged. A negative amount is spent.
        most: An upper bound of each amount that could be given back.
    """

    amounts: Amounts
    most: Amounts


class PrivacyFilter(ABC):
    """A budget's rule of admission. It is immutable. Two filters are equal if their kinds and limits are.

    Attributes:
        kind: Name in the HTTP contract and in stored descriptions.
        limits: The names of the fields that say how much the filter admits, in order.
        price_tolerance: The relative amount by which a price may exceed the least one that could be proved.
        prefix_may_depend_on_outputs: Whether a commit may charge a prefix of its reservation that was chosen after
            looking at outputs. It may if the steps of a list add up one by one in the filter's own currency.
        gives_back: Whether `given_back` ever gives anything.
        caps: The caps of each amount, in the filter's units, rounded down.
    """

    kind: ClassVar[str]
    limits: ClassVar[tuple[str, ...]]
    price_tolerance: ClassVar[float] = 0.0
    prefix_may_depend_on_outputs: ClassVar[bool] = True
    gives_back: ClassVar[bool] = False
    caps: Amounts

    @property
    def price_terms(self) -> tuple[str, tuple[float, ...]] | None:
        """Return the name and the numbers of the field on which prices depend besides the kind; None if there is no
        such field.

        A budget keeps these terms for ever, and budgets under it share them.
        """
        return None

    @abstractmethod
    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        """Return the cost of the events, rounded up.

        Args:
            events: One reservation, whose parameters do not depend on its own outputs.
            relation: The budget's relation.
            charge_delta: The delta at which the list is priced. Only an approximate_dp filter reads it.

        Raises:
            NoCostInFilter: If an event has no proved additive cost in this currency. The detail names the filters that
                do.
            Unsupported: If a sampling is not accounted under the relation.
        """

    @abstractmethod
    def least_cost(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Return the certified lower end of `cost`: no price of this table may be below it, however it is rounded.

        `cost` is rounded up by allowances that exceed the errors of the computation. Here they are subtracted, twice if
        the error may be on either side, and the result is rounded up to whole units, since amounts are whole. A smaller
        charge is therefore below the table of costs. If only a bound is known, but not how far it is above the table's
        number, the lower end is weaker, down to 0; but a positive loss costs at least one unit.

        Guarantees: never_above_the_cost.

        Args, Raises: As `cost`.
        """

    def given_back(
        self,
        held: Amounts,
        events: Sequence[Event],
        kept: Sequence[Event],
        relation: NeighboringRelation,
        failure: int | None = None,
    ) -> GivenBack | None:
        """Return the refund for a plan whose tail is given up for ever, after looking at its outputs.

        Args:
            held: The amounts that the plan was charged when it started.
            events: The plan.
            kept: The steps whose noise may have been drawn: the plan with counts reduced and later events dropped.
            relation: The budget's relation.
            failure: The delta that may be spent for the refund, in atto-units; None leaves the choice to the filter.

        Returns:
            None if the filter gives nothing back for this plan or for this tail.

        Guarantees: what_is_left_still_holds: the filter's theorem, when ``amounts`` have been subtracted from ``held``.

        Raises:
            NoCostInFilter, Unsupported: As `cost` does.
        """
        return None

    def may_give_back(self, held: Amounts, back: Amounts) -> bool:
        """Return whether `given_back` could have returned these amounts for a plan that was charged ``held``."""
        return False

    def describe_given_back(self, back: Amounts) -> dict[str, Json]:
        """Return the amounts given back and those spent for it, in the filter's own fields."""
        raise NotImplementedError(f"a {self.kind} filter gives nothing back")

    def admits(self, total_amounts: Amounts) -> bool:
        """Return whether a budget whose charges add up to ``total_amounts`` is within its limit.

        Guarantees: never_passes_every_cap. With one cap, total <= cap; with several orders, some order is within its
            cap.
        """
        return min(total_amounts) >= 0 and self.headroom(total_amounts) >= 0

    def headroom(self, used: Amounts) -> int:
        """Return the room that decides admission, in the filter's units: with several orders, the largest of their
        rooms.

        Guarantees: admits_exactly_where_not_negative, if ``used`` is at least 0.
        """
        return max(cap - amount for cap, amount in zip(self.caps, used, strict=True))

    def share(self, amounts: Amounts, room: Amounts) -> float:
        """Return the amounts as a share of a room; with several orders, the smallest of their shares.

        Args:
            amounts, room: Amounts in the filter's units. The room is that of the whole limit, or what remains of it.

        Returns:
            The share, rounded up; inf if there is no room.
        """
        return float(min(shares_of(amounts, room), default=math.inf))

    @property
    def stated_limit(self) -> int:
        """The first number of `limits`, in nano-units, rounded down."""
        return to_nano_down(exact(getattr(self, self.limits[0])))

    def stated(self, amounts: Amounts) -> int:
        """Convert the amounts to the quantity in which the limit is stated, in nano-units, rounded up.

        That quantity is an epsilon at the delta of the limit, a rho or a mu. Epsilon and mu do not add up: what a
        charge adds depends on what was charged before it.

        Guarantees: never_above_the_limit_where_admitted.
        """
        return amounts[0]

    def left(self, used: Amounts) -> int:
        """Return the limit less the use, in the quantity in which the limit is stated, in nano-units, rounded down."""
        return max(0, self.stated_limit - self.stated(used))

    def share_used(self, used: Amounts) -> float:
        """Return the used share of a budget's limit, in the quantity in which the limit is stated.

        Returns:
            The share, rounded up: above 1 if the limit is passed, inf if an amount is beyond what the filter counts.

        Guarantees: at_most_one_where_admitted.

        >>> from accounting.filters import GaussianDpFilter
        >>> GaussianDpFilter(2.0).share_used((1_000_000_000,))
        0.5
        """
        stated = self.stated(used)
        return math.inf if stated >= SATURATED else rounded_up(Fraction(stated, self.stated_limit))

    def estimate(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Estimate the cost, for a search that certifies its result. The amounts bound nothing.

        Args, Raises: as `cost`.
        """
        return self.cost(events, relation, charge_delta).amounts

    def add(self, first: Amounts, second: Amounts) -> Amounts:
        """Add amounts position by position, up to at most `units.SATURATED`, which is beyond every cap and far from
        overflow."""
        return add_saturating(first, second)

    @property
    def zero(self) -> Amounts:
        """The amounts of a budget to which nothing was charged."""
        return (0,) * len(self.caps)

    def remaining(self, used: Amounts) -> Amounts:
        """Return the amount left under each cap; 0 if the order is closed or the cap is exceeded."""
        return tuple(max(0, cap - amount) for cap, amount in zip(self.caps, used, strict=True))

    def largest_count_that_fits(
        self,
        events: Sequence[Event],
        relation: NeighboringRelation,
        used: Amounts,
        charge_delta: float | None = None,
    ) -> int:
        """Return the largest number of first steps of the list that is still admitted on top of ``used``; 0 if none.

        Guarantees: one_more_does_not_fit: unless it is the whole list.
        """
        price = self.cost if charge_delta is None else partial(self.cost, charge_delta=charge_delta)
        low, high = 0, sum(event.count for event in check_events(events)) + 1
        room, below, above, count, step = self.remaining(used), 0.0, math.inf, high - 1, 0
        while high - low > 1:
            amounts = price(prefix_of_events(events, count), relation).amounts
            share = self.share(amounts, room)
            if self.admits(self.add(used, amounts)):
                low, below = count, share
            else:
                high, above = count, share
            # A price may need a search of its own, so few are computed; between two counts, prices are nearly linear.
            step += 1
            between = (1.0 - below) / (above - below) if step % 4 and below < 1.0 < above < math.inf else 0.5
            count = min(max(low + int(between * (high - low)), low + 1), high - 1)
        return low

    def epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """Return an upper bound of the epsilon, at ``delta``, of all charges that add up to ``amounts``.

        Args:
            amounts: Amounts of at least 0, in the filter's units.
            delta: In [0, 0.5]; it need not be the budget's own.

        Returns:
            The bound, rounded up (to a float whose shortest decimal is no smaller); 0.0 if nothing was charged; None if
            no finite epsilon follows at this delta.

        Guarantees: valid_for_adaptive_charges: for any epsilon fixed beforehand, an interaction that stops before this
            number would exceed it is (that epsilon, delta)-DP, whatever its charges depended on.

        Raises:
            InvalidValue: If a delta is out of range.
        """
        delta = read_real("delta", delta, 0.0, 0.5)
        return self._epsilon_at(amounts, delta) if any(amounts) else 0.0

    @abstractmethod
    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """Return `epsilon_at` for amounts that are not all 0."""

    def limit_epsilon_at(self, delta: float) -> float | None:
        """Return the epsilon at ``delta`` of a full budget: it covers everything that the filter would ever admit.

        Guarantees: bounds_every_admitted_total: `epsilon_at` of amounts that are admitted is not larger.
        """
        return self.epsilon_at(self.caps, delta)

    def with_limit(self, limit: Mapping[str, object]) -> Self:
        """Return a filter of the same kind and price terms with another limit.

        Args:
            limit: Fields of `to_json`, as numbers or their canonical strings. Fields that are absent or None do not
                change.

        Raises:
            InvalidValue: If the kind or the price terms differ, a field is unknown, or a limit is refused. The pointer
                names the field.

        >>> from accounting.filters import ZcdpFilter
        >>> ZcdpFilter(1.0).with_limit({"rho": "0.25"})
        ZcdpFilter(rho=0.25)
        """
        fields = self.to_json()
        given = {name: value for name, value in limit.items() if value is not None}
        if given.get("kind", self.kind) != self.kind:
            raise self._other_kind()
        for name in given:
            if name not in fields:
                raise InvalidValue(f"a {self.kind} limit has no {name}; it has {one_of(list(fields))}", pointer=(name,))
        other = self.from_json({**fields, **given})
        other.check_child_of(self)
        return other

    def check_child_of(self, parent: PrivacyFilter) -> None:
        """Refuse a filter whose charges a budget with the filter ``parent`` could not add to its own.

        Raises:
            InvalidValue: If the kind or the price terms differ.
        """
        if self.kind != parent.kind:
            raise parent._other_kind()
        if self.price_terms != parent.price_terms:
            assert parent.price_terms is not None, "filters of one kind must have the same price terms"
            name, values = parent.price_terms
            shown = ", ".join(repr(value).removesuffix(".0") for value in values)
            raise InvalidValue(
                f"{name} must be {shown}, or left out: a budget keeps the value that it was created with, and the "
                "budgets below it share that value",
                pointer=(name,),
            )

    def _other_kind(self) -> InvalidValue:
        return InvalidValue(
            f"kind must be {self.kind}: a budget keeps the kind of filter that it was created with, and the "
            "budgets below it share that kind, because amounts of different kinds cannot be added up",
            pointer=("kind",),
        )

    @abstractmethod
    def describe(self, amounts: Amounts) -> dict[str, Json]:
        """Return the amounts in the filter's own fields, as exact decimal strings."""

    def describe_remaining(self, used: Amounts) -> dict[str, Json]:
        """Return the amounts that are left, in the same fields."""
        return self.describe(self.remaining(used))

    def describe_limit(self) -> dict[str, Json]:
        """Return the limit, in the same fields."""
        return self.describe(self.caps)

    def to_json(self) -> dict[str, Json]:
        """Return the kind and the limits as they were given, which a ledger stores and hashes."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in self.limits}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        """Read what `to_json` wrote (numbers, or their canonical strings)."""
        return cls(*(read_number(value, name) for name in cls.limits))


def shares_of(amounts: Amounts, room: Amounts) -> list[float]:
    """Return each amount over its room, rounded up, for the positions with room and a finite amount."""
    known = (pair for pair in zip(amounts, room, strict=True) if pair[1] > 0 and pair[0] < SATURATED)
    return [rounded_up(Fraction(amount, left)) for amount, left in known]


def read_limit(name: str, value: object, *, smallest: float = 1e-9, largest: float = MAX_LIMIT) -> float:
    """Read a limit, which must be at least one of its units and below the point where amounts saturate."""
    number = float(value) if isinstance(value, Decimal) else value
    return read_real(name, number, smallest, largest)


def read_number(description: Mapping[str, object], name: str) -> float:
    """Read a field that `PrivacyFilter.to_json` wrote: a number, or its canonical string."""
    return to_number(description.get(name), name)


def to_number(value: object, *pointer: str | int) -> float:
    """Return a number, which may be written as its canonical string."""
    try:
        return float(str(value))
    except ValueError:
        raise InvalidValue(f"{pointer[0]} must be a number, got {value!r}", pointer=pointer) from None


def float_of_nano(amount: int) -> float:
    """Return the smallest float whose shortest decimal is at least the amount, in nano-units.

    >>> float_of_nano(300_000_000), float_of_nano(2**61)
    (0.3, 2305843009.213694)
    """
    nearest = amount / NANO
    return nearest if exact(nearest) * NANO >= amount else math.nextafter(nearest, math.inf)
