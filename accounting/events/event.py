"""A privacy event: a mechanism, the sampling of its input and a count; and lists of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accounting.canonical import Json
from accounting.described import from_json
from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events.mechanism import MECHANISMS, Mechanism
from accounting.events.samplings import FULL_BATCH, SAMPLINGS, Sampling
from accounting.numbers import MAX_COUNT, MAX_EVENTS, read_integer


@dataclass(frozen=True, slots=True)
class Event:
    """``count`` steps of one mechanism on inputs sampled in one way.

    >>> from accounting.events import Gaussian, Poisson
    >>> Event(Gaussian(1), Poisson(0.02), count=5000).count
    5000
    """

    mechanism: Mechanism
    sampling: Sampling = FULL_BATCH
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", read_integer("count", self.count, 1, MAX_COUNT))
        supported = self.mechanism.samplings
        if type(self.sampling) not in supported:
            raise Unsupported(
                f"no amplification by {self.sampling.kind} sampling is proved here for the mechanism "
                f"{self.mechanism.kind}; use {one_of([cls.kind for cls in supported])}",
                code="unsupported_sampling",
                pointer=("sampling", "kind"),
            )
        self.sampling.check_mechanism(self.mechanism)

    def to_json(self) -> dict[str, Json]:
        """Return the event as the HTTP contract writes it; `event_from_json` reads it back to an equal event."""
        return {"mechanism": self.mechanism.to_json(), "sampling": self.sampling.to_json(), "count": self.count}


def event_from_json(value: Mapping[str, object]) -> Event:
    """Read what `Event.to_json` wrote, or the same with numbers as canonical strings."""
    mechanism = from_json(value["mechanism"], MECHANISMS, "mechanism")
    sampling = from_json(value["sampling"], SAMPLINGS, "sampling")
    return Event(mechanism, sampling, int(str(value["count"])))


def check_events(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the list as a tuple, or refuse it unless it has 1 to `MAX_EVENTS` events."""
    if not 1 <= len(events) <= MAX_EVENTS:
        raise InvalidValue(f"a list of events must have 1 to {MAX_EVENTS} entries, got {len(events)}")
    return tuple(events)


def group_events(events: Sequence[Event]) -> tuple[Event, ...]:
    """Count equal steps together, in the order of their first appearance. The order does not change what a composition
    costs.

    Raises:
        InvalidValue: If equal steps together exceed `MAX_COUNT` (a saturated count would report too little loss).

    >>> from accounting.events import Gaussian, PureDp
    >>> group_events([Event(Gaussian(1.0)), Event(PureDp(0.1)), Event(Gaussian(1.0), count=2)])[0].count
    3
    """
    if len(events) == 1:
        return (events[0],)
    counts: dict[tuple[Mechanism, Sampling], int] = {}
    for event in events:
        key = (event.mechanism, event.sampling)
        counts[key] = counts.get(key, 0) + event.count
    return tuple(Event(mechanism, sampling, count) for (mechanism, sampling), count in counts.items())


def prefix_of_events(events: Sequence[Event], steps: int) -> tuple[Event, ...]:
    """Return the events of the first ``steps`` steps.

    >>> from accounting.events import Gaussian
    >>> [e.count for e in prefix_of_events([Event(Gaussian(1.0), count=3), Event(Gaussian(2.0), count=3)], 4)]
    [3, 1]
    """
    prefix: list[Event] = []
    for event in events:
        if steps <= 0:
            break
        taken = min(event.count, steps)
        prefix.append(Event(event.mechanism, event.sampling, taken))
        steps -= taken
    return tuple(prefix)
