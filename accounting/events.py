"""Privacy events: what a private computation did, as far as its privacy depends on it.

An `Event` is a mechanism, the sampling of its input and a count. `noise_multiplier` is always the scale of the noise
on the SUM of contributions over one record's contribution bound, under every neighbouring relation: the standard
deviation in l2 for Gaussian kinds, the scale b in l1 for Laplace kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import ClassVar, TypeVar

from accounting.canonical import Json
from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.numbers import (
    MAX_COUNT,
    MAX_DATASET_SIZE,
    MAX_EVENTS,
    MAX_NOISE_MULTIPLIER,
    MAX_ORDER,
    MAX_ORDERS,
    MIN_NOISE_MULTIPLIER,
    read_integer,
    read_real,
)

ASSIGNMENTS = ("by_position", "independent")


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
class ApproximateDp:
    """Any mechanism with a proof of (epsilon, delta)-DP, taken as stated for the relation of the request."""

    kind: ClassVar[str] = "approximate_dp"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_real("epsilon", self.epsilon, 0.0, 1e6))
        object.__setattr__(self, "delta", read_real("delta", self.delta, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class RenyiDp:
    """Any mechanism with a proof of (order, epsilon)-Renyi DP at each of some orders, taken as stated.

    Attributes:
        orders: 1 to 64 numbers above 1, increasing.
        epsilons: The Renyi divergence at each order; not decreasing, as divergences of one pair are.
    """

    kind: ClassVar[str] = "renyi_dp"
    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        orders = tuple(read_real("orders", order, 1.0, MAX_ORDER, open_lower=True) for order in self.orders)
        epsilons = tuple(read_real("epsilons", epsilon, 0.0, 1e6) for epsilon in self.epsilons)
        if not 1 <= len(orders) <= MAX_ORDERS or any(a >= b for a, b in pairwise(orders)):
            raise InvalidValue(f"orders must be 1 to {MAX_ORDERS} numbers above 1, increasing", pointer=("orders",))
        if len(epsilons) != len(orders):
            raise InvalidValue("epsilons must have one number for each order", pointer=("epsilons",))
        if any(a > b for a, b in pairwise(epsilons)):
            raise InvalidValue(
                "epsilons must not decrease: the Renyi divergence of a mechanism grows with the order",
                pointer=("epsilons",),
            )
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "epsilons", epsilons)


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


@dataclass(frozen=True, slots=True)
class WithoutReplacement:
    """Every step draws a batch of exactly ``batch_size`` of ``dataset_size`` records, all such batches alike likely."""

    kind: ClassVar[str] = "without_replacement"
    batch_size: int
    dataset_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset_size", read_integer("dataset_size", self.dataset_size, 1, MAX_DATASET_SIZE))
        object.__setattr__(self, "batch_size", read_integer("batch_size", self.batch_size, 1, MAX_DATASET_SIZE))
        if self.batch_size > self.dataset_size:
            raise InvalidValue(
                f"batch_size {self.batch_size} is larger than dataset_size {self.dataset_size}", pointer=("batch_size",)
            )

    @property
    def sampling_probability(self) -> float:
        """Of one record in one step."""
        return self.batch_size / self.dataset_size


@dataclass(frozen=True, slots=True)
class ShuffledEpochs:
    """Fixed batches cut from an ordering, each record in one of every ``steps_per_epoch`` steps; count = steps."""

    kind: ClassVar[str] = "shuffled_epochs"
    steps_per_epoch: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps_per_epoch", read_integer("steps_per_epoch", self.steps_per_epoch, 1, MAX_COUNT))


@dataclass(frozen=True, slots=True)
class DisjointBatches:
    """One pass over disjoint batches: each record is in one of the event's steps; count = steps.

    Attributes:
        assignment: ``"by_position"``: batches are cut from an ordering, so that a record's coming or going moves
            others. ``"independent"``: each record's batch is drawn, or computed, for that record alone.
    """

    kind: ClassVar[str] = "disjoint_batches"
    assignment: str

    def __post_init__(self) -> None:
        if self.assignment not in ASSIGNMENTS:
            raise InvalidValue(f"assignment must be {one_of(ASSIGNMENTS)}", pointer=("assignment",))


T = TypeVar("T")

Mechanism = Gaussian | Laplace | PureDp | ApproximateDp | ZcDp | RenyiDp
Sampling = FullBatch | Poisson | WithoutReplacement | ShuffledEpochs | DisjointBatches

MECHANISMS: dict[str, type[Mechanism]] = {
    cls.kind: cls for cls in (Gaussian, Laplace, PureDp, ApproximateDp, ZcDp, RenyiDp)
}
SAMPLINGS: dict[str, type[Sampling]] = {
    cls.kind: cls for cls in (FullBatch, Poisson, WithoutReplacement, ShuffledEpochs, DisjointBatches)
}
_ALL_SAMPLINGS = tuple(SAMPLINGS.values())
#: Which samplings have a proved pair of distributions with which mechanism.
SAMPLINGS_OF: dict[type[Mechanism], tuple[type[Sampling], ...]] = {
    Gaussian: _ALL_SAMPLINGS,
    Laplace: _ALL_SAMPLINGS,
    PureDp: (FullBatch,),
    ApproximateDp: (FullBatch,),
    ZcDp: (FullBatch,),
    RenyiDp: (FullBatch,),
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
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return {"kind": part.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _from_json(what: str, value: object, known: Mapping[str, type[T]]) -> T:
    if not isinstance(value, Mapping) or value.get("kind") not in known:
        raise InvalidValue(f"{what}.kind must be {one_of(list(known))}", pointer=(what, "kind"))
    return known[value["kind"]](**{key: _value(item) for key, item in value.items() if key != "kind"})


def _value(item: object) -> object:
    """A number, also where it is written as its canonical string; a word; or a tuple of numbers."""
    if isinstance(item, list | tuple):
        return tuple(_value(entry) for entry in item)
    try:
        return float(str(item))
    except ValueError:
        return item
