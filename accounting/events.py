"""Privacy events: what a private computation did, as far as its privacy depends on it.

An `Event` is a mechanism, the sampling of its input and a count. `noise_multiplier` is always the scale of the noise
on the SUM of contributions over one record's contribution bound, under every neighbouring relation: the standard
deviation in l2 for Gaussian kinds, the scale b in l1 for Laplace kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

from accounting.canonical import Json
from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.numbers import (
    MAX_COUNT,
    MAX_EVENTS,
    MAX_NOISE_MULTIPLIER,
    MIN_NOISE_MULTIPLIER,
    read_integer,
    read_real,
)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """The Gaussian mechanism on a sum of contributions of l2 norm at most 1 (in units of the contribution bound)."""

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", _noise_multiplier(self.noise_multiplier))


@dataclass(frozen=True, slots=True)
class Laplace:
    """The Laplace mechanism on a sum of contributions of l1 norm at most 1 (in units of the contribution bound)."""

    kind: ClassVar[str] = "laplace"
    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", _noise_multiplier(self.noise_multiplier))


@dataclass(frozen=True, slots=True)
class PureDp:
    """Any mechanism with a proof of epsilon-DP, taken as stated for the relation of the request."""

    kind: ClassVar[str] = "pure_dp"
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_real("epsilon", self.epsilon, 0.0, 1e6))


@dataclass(frozen=True, slots=True)
class ZcDp:
    """Any mechanism with a proof of rho-zCDP, taken as stated for the relation of the request."""

    kind: ClassVar[str] = "zcdp"
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", read_real("rho", self.rho, 0.0, 1e6))


@dataclass(frozen=True, slots=True)
class FullBatch:
    """Every record takes part in every step."""

    kind: ClassVar[str] = "full_batch"


@dataclass(frozen=True, slots=True)
class Poisson:
    """Every record takes part in a step with the same probability, independently of all others and of all steps."""

    kind: ClassVar[str] = "poisson"
    sampling_probability: float

    def __post_init__(self) -> None:
        probability = read_real("sampling_probability", self.sampling_probability, 0.0, 1.0, open_lower=True)
        object.__setattr__(self, "sampling_probability", probability)


T = TypeVar("T")

Mechanism = Gaussian | Laplace | PureDp | ZcDp
Sampling = FullBatch | Poisson

MECHANISMS: dict[str, type[Mechanism]] = {cls.kind: cls for cls in (Gaussian, Laplace, PureDp, ZcDp)}
SAMPLINGS: dict[str, type[Sampling]] = {cls.kind: cls for cls in (FullBatch, Poisson)}
#: Which samplings have a proved pair of distributions with which mechanism.
SAMPLINGS_OF: dict[type[Mechanism], tuple[type[Sampling], ...]] = {
    Gaussian: (FullBatch, Poisson),
    Laplace: (FullBatch,),
    PureDp: (FullBatch,),
    ZcDp: (FullBatch,),
}


@dataclass(frozen=True, slots=True)
class Event:
    """``count`` steps of one mechanism on inputs sampled in one way.

    >>> Event(Gaussian(1), Poisson(0.02), count=5000).count
    5000
    """

    mechanism: Mechanism
    sampling: Sampling = FullBatch()
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", read_integer("count", self.count, 1, MAX_COUNT))
        supported = SAMPLINGS_OF[type(self.mechanism)]
        if type(self.sampling) not in supported:
            raise Unsupported(
                f"no amplification by {self.sampling.kind} sampling is proved here for the mechanism "
                f"{self.mechanism.kind}; use {one_of([cls.kind for cls in supported])}",
                code="unsupported_sampling",
                pointer=("sampling", "kind"),
            )

    def to_json(self) -> dict[str, Json]:
        """The event as the HTTP contract writes it; `event_from_json` reads it back to an equal event."""
        return {"mechanism": _to_json(self.mechanism), "sampling": _to_json(self.sampling), "count": self.count}


def event_from_json(value: Mapping[str, object]) -> Event:
    """Read what `Event.to_json` wrote, or the same with numbers as canonical strings."""
    mechanism = _from_json("mechanism", value["mechanism"], MECHANISMS)
    sampling = _from_json("sampling", value["sampling"], SAMPLINGS)
    return Event(mechanism, sampling, int(str(value["count"])))


def check_events(events: Sequence[Event]) -> tuple[Event, ...]:
    """The list as a tuple, when it has 1 to `MAX_EVENTS` events."""
    if not 1 <= len(events) <= MAX_EVENTS:
        raise InvalidValue(f"a list of events has 1 to {MAX_EVENTS} entries, got {len(events)}")
    return tuple(events)


def group_events(events: Sequence[Event]) -> tuple[Event, ...]:
    """Equal steps counted together, in order of first appearance: composition does not see the order.

    Raises:
        InvalidValue: together they exceed `MAX_COUNT` (a saturated count would report too little loss).

    >>> group_events([Event(Gaussian(1.0)), Event(PureDp(0.1)), Event(Gaussian(1.0), count=2)])[0].count
    3
    """
    counts: dict[tuple[Mechanism, Sampling], int] = {}
    for event in events:
        key = (event.mechanism, event.sampling)
        counts[key] = counts.get(key, 0) + event.count
    return tuple(Event(mechanism, sampling, count) for (mechanism, sampling), count in counts.items())


def prefix_of_events(events: Sequence[Event], steps: int) -> tuple[Event, ...]:
    """The events of the first ``steps`` steps.

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


def _noise_multiplier(value: object) -> float:
    return read_real("noise_multiplier", value, MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER)


def _to_json(part: Mechanism | Sampling) -> dict[str, Json]:
    return {"kind": part.kind} | {field.name: getattr(part, field.name) for field in fields(part)}


def _from_json(what: str, value: object, known: Mapping[str, type[T]]) -> T:
    if not isinstance(value, Mapping) or value.get("kind") not in known:
        raise InvalidValue(f"{what}.kind must be {one_of(list(known))}", pointer=(what, "kind"))
    arguments = {key: float(str(item)) for key, item in value.items() if key != "kind"}
    return known[value["kind"]](**arguments)
