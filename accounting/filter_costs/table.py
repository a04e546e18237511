"""Which filters have a cost for which mechanism, and what a cost is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from accounting.errors import AccountingError, NoCostInFilter, one_of
from accounting.events import (
    MECHANISMS,
    Event,
    FullBatch,
    Mechanism,
    RandomAllocation,
    Sampling,
    ShuffleModel,
    TruncatedPoisson,
    WithReplacement,
)
from accounting.relations import NeighboringRelation
from accounting.sampling.schedules import resolve_schedules
from accounting.units import Amounts

#: Costs that are not rational are enlarged by this much, relatively, before they are rounded up to a nano-unit. The
#: moments carry their own allowance already.
TRANSCENDENTAL_ALLOWANCE = Fraction(1, 10**12)
NO_AMPLIFICATION = "no_amplification"
SAME_RANDOMIZER_REQUIRED = "same_randomizer_required"
#: One atto-unit, the grain in which delta is counted.
SMALLEST_DELTA = 1e-18

#: The filters that have a cost for a mechanism, under every sampling that is proved for it.
FILTERS_WITH_COST: dict[type[Mechanism], tuple[str, ...]] = {cls: cls.filters for cls in MECHANISMS.values()}

#: Samplings under which fewer filters have a cost: none is proved without amplification, as a record may be in a batch
#: many times, or let others in and out of it, and moments of all hits together, or of a cut, bound nothing.
FILTERS_OF_SAMPLING: dict[type[Sampling], tuple[str, ...]] = {
    WithReplacement: ("approximate_dp",),
    ShuffleModel: ("approximate_dp",),
    TruncatedPoisson: ("approximate_dp",),
}


@dataclass(frozen=True, slots=True)
class CostWarning:
    """A sentence that belongs beside a cost, with a stable code."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Amounts in the filter's units, rounded up; one, one per order, or epsilon and delta."""

    amounts: Amounts
    warnings: tuple[CostWarning, ...] = ()


def exact(number: float) -> Fraction:
    """The shortest decimal that reads back to ``number``, as a rational number."""
    return Fraction(Decimal(repr(float(number))))


def checked(events: tuple[Event, ...], relation: NeighboringRelation, kind: str) -> tuple[Event, ...]:
    """The list with its schedules resolved, when every event has a cost in the filter."""
    for index, event in enumerate(events):
        restricted = FILTERS_OF_SAMPLING.get(type(event.sampling), event.mechanism.filters)
        working = [each for each in event.mechanism.filters if each in restricted]
        if kind not in working:
            by_mechanism = kind not in event.mechanism.filters
            sampled = "" if by_mechanism else f" with {event.sampling.kind} batches"
            raise NoCostInFilter(
                f"a {event.mechanism.kind} event{sampled} has no proved additive cost in a {kind} budget; it has one "
                f"in {one_of(working)}",
                pointer=("events", index, "mechanism" if by_mechanism else "sampling"),
            )
    try:
        return resolve_schedules(events, relation)
    except AccountingError as error:
        raise error.inside("events") from None


def total(
    events: tuple[Event, ...], relation: NeighboringRelation, unit: Callable[[Event, NeighboringRelation], Fraction]
) -> Fraction:
    """Sum over all steps of what one step costs, without rounding."""
    return sum((participations(event) * unit(event, relation) for event in events), Fraction(0))


def participations(event: Event) -> int:
    """How often a cost of one step is met: of a random allocation, by what a record may have a part in."""
    sampling = event.sampling
    if isinstance(sampling, RandomAllocation):
        return sampling.participations * -(-event.count // sampling.num_bins)
    return event.count


def is_sampled(event: Event) -> bool:
    """Of a resolved list: every other schedule has become full batches."""
    return not isinstance(event.sampling, FullBatch)


def rounded_up(cost: float) -> Fraction:
    """A cost that is not rational, with its allowance."""
    return Fraction(cost) * (1 + TRANSCENDENTAL_ALLOWANCE)
