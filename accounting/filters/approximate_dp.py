"""The filter of approximate differential privacy: both epsilon and delta add up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from accounting.accountant import epsilon_for_delta
from accounting.canonical import Json
from accounting.errors import AccountingError, inside
from accounting.events import Event, check_events
from accounting.filters.costs import (
    SMALLEST_DELTA,
    Cost,
    charged,
    checked,
    same_randomizer_warning,
    total,
    without_failures,
)
from accounting.filters.privacy_filter import PrivacyFilter, float_of_nano, read_limit, shares_of
from accounting.filters.pure_dp import pure_epsilon
from accounting.intervals import Interval
from accounting.losses.rules import rules_of
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation
from accounting.units import (
    SATURATED,
    Amounts,
    exact,
    from_atto,
    from_nano,
    to_atto_down,
    to_atto_up,
    to_nano_down,
    to_nano_up,
)


def approximate_dp_cost(
    events: tuple[Event, ...], relation: NeighboringRelation, charge_delta: float | None = None
) -> Cost:
    """Return epsilon and delta of the list as a whole.

    A list of pure, Laplace and approximate_dp events alone costs the sums of their epsilons and deltas, whatever
    ``charge_delta`` is. Any other list costs one certified epsilon of the whole list at ``charge_delta``, in which
    approximate_dp events count as pure ones, and ``charge_delta`` plus the deltas that these events state. An (eps,
    delta)-DP step is, with probability 1 - delta at least, an eps-DP one (Kairouz, Oh & Viswanath 2015, Theorem 3.1),
    so the deltas add up.

    Args:
        events, relation: One reservation.
        charge_delta: In [1e-18, 0.5].

    Returns:
        Nano-units of epsilon (`SATURATED` if no bound is finite) and atto-units of delta.

    Guarantees: above_the_certified_epsilon; stated_deltas_are_charged; same_randomiser_is_said_to_be_required.

    Raises:
        NoCostInFilter, Unsupported: As `pure_dp_cost` does.
        AccountingError: With code ``missing_charge_delta``, if an event needs a charge delta and none is given.

    >>> from accounting.events import Gaussian
    >>> approximate_dp_cost((Event(Gaussian(1.0)),), NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-5).amounts
    (4377178096, 10000000000000)
    """
    events = checked(events, relation, "approximate_dp")
    as_pure, stated = without_failures(events)
    unpriced = [event.mechanism.kind for event in as_pure if not _is_summed(event)]
    if not unpriced:
        return Cost((to_nano_up(total(as_pure, relation, pure_epsilon).most), to_atto_up(stated)))
    if charge_delta is None:
        raise _missing_delta(unpriced[0])
    with inside("charge"):
        delta = read_real("delta", charge_delta, SMALLEST_DELTA, 0.5)
    epsilon = _tight(as_pure, relation, delta).upper
    amounts = _nano(epsilon, as_pure), to_atto_up(exact(delta) + stated)
    return Cost(amounts, same_randomizer_warning(events))


def least_approximate_dp_cost(
    events: tuple[Event, ...], relation: NeighboringRelation, charge_delta: float | None = None
) -> Amounts:
    """Return the lower end of `approximate_dp_cost`: the certified epsilon's lower end, and the deltas themselves.

    Raises:
        NoCostInFilter, Unsupported, AccountingError: As `approximate_dp_cost` does.
    """
    events = checked(events, relation, "approximate_dp")
    as_pure, stated = without_failures(events)
    if all(map(_is_summed, as_pure)):
        return to_nano_up(total(as_pure, relation, pure_epsilon).least), to_atto_up(stated)
    if charge_delta is None:
        raise _missing_delta(next(event.mechanism.kind for event in as_pure if not _is_summed(event)))
    with inside("charge"):
        delta = read_real("delta", charge_delta, SMALLEST_DELTA, 0.5)
    return _nano(_tight(as_pure, relation, delta).lower, as_pure), to_atto_up(exact(delta) + stated)


# Verification asks for the lower and the upper end of a price, one after the other, and each computation takes seconds.
@lru_cache(maxsize=16)
def _tight(events: tuple[Event, ...], relation: NeighboringRelation, delta: float) -> Interval:
    return epsilon_for_delta(events, relation, delta).value


def _nano(epsilon: float, events: tuple[Event, ...]) -> int:
    return to_nano_up(charged(Fraction(epsilon), *events)) if math.isfinite(epsilon) else SATURATED


def _missing_delta(kind: str) -> AccountingError:
    return AccountingError(
        f"a {kind} event has no epsilon without a delta: set charge.delta, from 1e-18 to 0.5, to the delta at "
        "which this reservation is priced; that delta is charged together with the epsilon",
        code="missing_charge_delta",
        pointer=("charge", "delta"),
    )


def _is_summed(event: Event) -> bool:
    """Return whether the event's epsilon is charged as it is, at delta 0."""
    return rules_of(event.mechanism).sums_epsilons and event.sampling.filters is None


@dataclass(frozen=True)
class ApproximateDpFilter(PrivacyFilter):
    """A budget in (epsilon, delta); both add up over reservations, each priced tightly at its own ``charge_delta``.

    Attributes:
        epsilon, delta: The guarantee of all charges together, even if they are chosen adaptively.
        caps: Epsilon in nano-units, delta in atto-units.

    The price of a reservation is that of its whole list, fixed in advance. A prefix that is chosen after looking at
    outputs may cost more than its own price: a thousand Gaussian steps of mu = 3 together, stopped at the worst moment,
    have delta 6.8e-3 although every prefix was priced at 1e-3. So ``prefix_may_depend_on_outputs`` is false.

    Guarantees: never_passes_a_cap.

    >>> budget = ApproximateDpFilter(1.0, 1e-5)
    >>> budget.admits((10**9, 10**13)), budget.admits((10**9, 10**13 + 1)), budget.admits((10**9 + 1, 0))
    (True, False, False)
    """

    kind: ClassVar[str] = "approximate_dp"
    limits = ("epsilon", "delta")
    prefix_may_depend_on_outputs: ClassVar[bool] = False
    epsilon: float
    delta: float
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_limit("epsilon", self.epsilon))
        object.__setattr__(self, "delta", read_limit("delta", self.delta, smallest=SMALLEST_DELTA, largest=0.5))
        object.__setattr__(self, "caps", (to_nano_down(exact(self.epsilon)), to_atto_down(exact(self.delta))))

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        """Return the cost of one reservation, priced as a whole.

        Args:
            events, relation: As for every filter.
            charge_delta: In [1e-18, 0.5]; needed if an event has no pure or stated (epsilon, delta) guarantee of its
                own.

        Raises:
            NoCostInFilter, Unsupported: As for every filter.
            AccountingError: With code ``missing_charge_delta``, if an event needs a charge delta and none is given.
        """
        return approximate_dp_cost(check_events(events), relation, charge_delta)

    def least_cost(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Return the lower ends of epsilon and delta."""
        return least_approximate_dp_cost(check_events(events), relation, charge_delta)

    def share(self, amounts: Amounts, room: Amounts) -> float:
        """Return the larger of the two shares, because both caps must hold."""
        shares = shares_of(amounts, room)
        return max(shares) if len(shares) == len(amounts) else math.inf

    def share_used(self, used: Amounts) -> float:
        """Return the larger of the shares of epsilon and of delta."""
        return self.share(used, self.caps)

    def headroom(self, used: Amounts) -> int:
        """Return the smaller of the two rooms, because both caps must hold."""
        return min(cap - amount for cap, amount in zip(self.caps, used, strict=True))

    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """Return the charges' own epsilon, at every delta of at least the charges' own."""
        epsilon, charged_delta = amounts
        known = epsilon < SATURATED and charged_delta <= to_atto_down(exact(delta))
        return float_of_nano(epsilon) if known else None

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        epsilon, delta = amounts
        return {"epsilon": from_nano(epsilon), "delta": from_atto(delta)}
