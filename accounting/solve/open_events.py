"""A list of events from which one field is left out, and the value of that field that meets a target.

| left out | the search returns | the cost is proved to be monotone |
|---|---|---|
| noise multiplier | the smallest that it finds | Gaussian, correlated and Laplace noise, trees: post-processing |
| count | the largest, and that the next one misses | always: a step less is post-processing |
| sampling probability | the largest that it finds | Poisson batches, also if they are cut in any way |
| batch size | the largest, and that the next one misses | batches of a fixed size without replacement |

In all other cases, the cost was monotone in every trial, but there is no proof. The returned value is still certified:
the cost at this very value meets the target. A larger or smaller value may meet it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from accounting.errors import InvalidValue, inside
from accounting.events import (
    MECHANISMS,
    SAMPLINGS,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    Sampling,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
)
from accounting.events.correlated_gaussian import Correlated
from accounting.events.event import check_events, event_from_json
from accounting.intervals import Answer
from accounting.numbers import MAX_COUNT, MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from accounting.relations import NeighboringRelation
from accounting.solve.integers import solve_batch_size, solve_count
from accounting.solve.noise import solve_noise
from accounting.solve.probability import solve_sampling_probability
from accounting.targets import Target


class OpenField(StrEnum):
    """The field that some events leave out; those events share its value."""

    NOISE_MULTIPLIER = "noise_multiplier"
    COUNT = "count"
    SAMPLING_PROBABILITY = "sampling_probability"
    BATCH_SIZE = "batch_size"

    @property
    def part(self) -> str | None:
        """The part of an event that has the field; None for the event itself."""
        if self is OpenField.COUNT:
            return None
        return "mechanism" if self is OpenField.NOISE_MULTIPLIER else "sampling"

    @property
    def is_integer(self) -> bool:
        """Return whether the field counts something."""
        return self in (OpenField.COUNT, OpenField.BATCH_SIZE)


@dataclass(frozen=True)
class OpenEvents:
    """A list of events, some of which lack one field.

    Attributes:
        events: The events as `Event.to_json` writes them, without the field.
        field: The open field.

    >>> steps = {"mechanism": {"kind": "gaussian"}, "sampling": {"kind": "full_batch"}, "count": 4}
    >>> OpenEvents((steps,), OpenField.NOISE_MULTIPLIER).at(2.0)[0].mechanism
    Gaussian(noise_multiplier=2.0)
    """

    events: tuple[Mapping[str, object], ...]
    field: OpenField

    @property
    def open(self) -> tuple[int, ...]:
        """The events that lack the field."""
        return tuple(index for index, event in enumerate(self.events) if self._lacks(event))

    def at(self, value: float) -> tuple[Event, ...]:
        """Return the list with this value.

        Raises:
            InvalidValue, Unsupported: If an event with this value is not valid. The pointer begins with the event's
                index.
        """
        events = []
        for index, filled in enumerate(self.filled(value)):
            with inside(index):
                events.append(event_from_json(filled))
        return check_events(events)

    def filled(self, value: float) -> tuple[dict[str, object], ...]:
        """Return the list with this value, still as JSON."""
        return tuple(self._filled(event, value) if self._lacks(event) else dict(event) for event in self.events)

    def _lacks(self, event: Mapping[str, object]) -> bool:
        part, name = self.field.part, self.field.value
        if part is None:
            return name not in event
        inner = event.get(part)
        if not isinstance(inner, Mapping) or name in inner:
            return False
        known = (MECHANISMS if part == "mechanism" else SAMPLINGS).get(str(inner.get("kind")))
        return known is not None and name in {each.name for each in fields(known)}

    def _filled(self, event: Mapping[str, object], value: float) -> dict[str, object]:
        part, known = self.field.part, int(value) if self.field.is_integer else value
        if part is None:
            return {**event, self.field.value: known}
        inner = event[part]
        assert isinstance(inner, Mapping), "it lacks the field"
        return {**event, part: {**inner, self.field.value: known}}


@dataclass(frozen=True)
class Solved:
    """A certified value of the field.

    Attributes:
        value: The noise multiplier, count, probability or size.
        events: The list with this value.
        achieved: The cost; its upper end meets the target.
        next_achieved: The cost of the next integer, which misses the target; None for real numbers.
        is_extreme: Whether it is proved that the cost is monotone in the field, so that no value beyond does better.
    """

    value: float
    events: tuple[Event, ...]
    achieved: Answer
    next_achieved: Answer | None
    is_extreme: bool


def solve_events(open_events: OpenEvents, relation: NeighboringRelation, target: Target) -> Solved:
    """Find the value of the field that is left out.

    Args:
        open_events: A list in which some event lacks the field.
        relation: The neighbouring relation.
        target: The target.

    Guarantees: never_misses: achieved.value.upper <= target.limit, evaluated at the value itself.

    Raises:
        InvalidValue: If no event lacks the field, or events that lack a batch size have data sets of several sizes.
        Unsupported, NoCostInFilter: If the engine has no number for these events, or none in the target's terms.
        Unreachable: If no value meets the target, or every one does.

    >>> from accounting.targets import ApproximateDpTarget
    >>> steps = {"mechanism": {"kind": "gaussian"}, "sampling": {"kind": "poisson", "sampling_probability": 0.01}}
    >>> open_events = OpenEvents(({**steps, "count": 10_000},), OpenField.NOISE_MULTIPLIER)
    >>> found = solve_events(open_events, NeighboringRelation.ADD_OR_REMOVE_ONE, ApproximateDpTarget(1.0, 1e-5))
    >>> round(found.value, 3), found.achieved.value.upper <= 1.0
    (3.813, True)
    """
    if not open_events.open:
        raise InvalidValue(
            f"no event leaves {open_events.field} out, so there is nothing to solve for; leave the field out of "
            "the events that share the unknown value",
            code="missing",
        )
    at: Callable[[float], tuple[Event, ...]] = open_events.at
    match open_events.field:
        case OpenField.COUNT:
            found = solve_count(at, relation, target, most=_most_steps(open_events))
            return _solved(open_events, found.value, found.achieved, found.next_achieved)
        case OpenField.BATCH_SIZE:
            found = solve_batch_size(at, relation, target, _dataset_size(open_events))
            return _solved(open_events, found.value, found.achieved, found.next_achieved)
        case OpenField.SAMPLING_PROBABILITY:
            real = solve_sampling_probability(at, relation, target)
        case _:
            real = solve_noise(at, relation, target, least=_least_noise(open_events))
    return _solved(open_events, real.value, real.achieved, None)


def _solved(open_events: OpenEvents, value: float, achieved: Answer, following: Answer | None) -> Solved:
    events = open_events.at(value)
    is_extreme = all(_is_monotone(events[index], open_events.field) for index in open_events.open)
    return Solved(value, events, achieved, following, is_extreme)


def _is_monotone(event: Event, field: OpenField) -> bool:
    mechanism, sampling = event.mechanism, event.sampling
    match field:
        case OpenField.COUNT:
            return True
        case OpenField.NOISE_MULTIPLIER:
            return isinstance(mechanism, Gaussian | Laplace | TreeAggregation | Correlated)
        case OpenField.SAMPLING_PROBABILITY:
            cut = isinstance(sampling, TruncatedPoisson) and sampling.truncation == "arbitrary"
            return cut or isinstance(sampling, Poisson)
        case _:
            return isinstance(sampling, WithoutReplacement)


def _correlated(open_events: OpenEvents, value: float) -> list[tuple[Correlated, Sampling, int]]:
    """Return the events of correlated noise that lack the field."""
    events = [open_events.at(value)[index] for index in open_events.open]
    return [(each.mechanism, each.sampling, each.count) for each in events if isinstance(each.mechanism, Correlated)]


def _least_noise(open_events: OpenEvents) -> float:
    """Return the smallest noise multiplier in range; for correlated noise it depends on a record's sensitivity."""
    runs = _correlated(open_events, MAX_NOISE_MULTIPLIER)
    return max([MIN_NOISE_MULTIPLIER, *(mechanism.least_noise(sampling, count) for mechanism, sampling, count in runs)])


def _most_steps(open_events: OpenEvents) -> int:
    """Return the largest number of steps in range: correlated noise has one, which depends on its coefficients."""
    if not _correlated(open_events, 1):
        return MAX_COUNT
    low, high = 1, MAX_COUNT + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            for mechanism, sampling, count in _correlated(open_events, middle):
                mechanism.resolved(sampling, count)
        except InvalidValue:
            high = middle
        else:
            low = middle
    return low


def _dataset_size(open_events: OpenEvents) -> int:
    events = open_events.at(1)
    sizes = {getattr(events[index].sampling, "dataset_size", 0) for index in open_events.open}
    if len(sizes) > 1:
        raise InvalidValue("events that share a batch size must have the same dataset_size", pointer=("events",))
    return int(sizes.pop())
