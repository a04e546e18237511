"""Read dp-accounting's events, given as objects or as JSON, by the names of their classes.

The JSON form follows `DpEvent.to_named_tuple`, with the fields as keys: ``{"class_name": "GaussianDpEvent",
"noise_multiplier": 1.1}``; nested events are objects of the same form, and ``module_name`` may be left out. Neither
form needs dp-accounting to be installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.errors import InvalidValue, Unsupported, inside, one_of
from accounting.events import (
    ApproximateDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    FullBatch,
    Gaussian,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    RandomAllocation,
    RandomizedResponse,
    ReportNoisyMax,
    Sampling,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
    ZcDp,
)
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, read_integer, read_real

#: The most levels of nested compositions, and the most events in all. A larger event is a mistake or an attack.
MAX_DEPTH = 64
MAX_NODES = 200_000

#: Why an event of dp-accounting has no counterpart here, and what to use instead.
REFUSED = {
    "NonPrivateDpEvent": "it stands for an operation without any privacy guarantee",
    "UnsupportedDpEvent": "it stands for an operation that nobody has described",
    "RepeatAndSelectDpEvent": (
        "selection among a random number of repetitions is not a list of steps; compute its tuning cost and state "
        "that cost as a renyi_dp or approximate_dp event"
    ),
    "MixtureOfGaussiansDpEvent": (
        "noise of one scale with a random sensitivity is not covered (in gaussian_mixture the scale of the noise "
        "is random); state its guarantee as a renyi_dp or approximate_dp event"
    ),
}
#: Fields of each class that is read, as in dp-accounting 0.6 and in its sources of 2026.
FIELDS: dict[str, tuple[str, ...]] = {
    "NoOpDpEvent": (),
    "GaussianDpEvent": ("noise_multiplier",),
    "LaplaceDpEvent": ("noise_multiplier",),
    "DiscreteLaplaceDpEvent": ("noise_parameter", "sensitivity"),
    "RandomizedResponseDpEvent": ("noise_parameter", "num_buckets"),
    "EpsilonDeltaDpEvent": ("epsilon", "delta"),
    "DiscreteGaussianDpEvent": ("sigma", "sensitivity", "dimension"),
    "ExponentialMechanismDpEvent": ("epsilon",),
    "PermuteAndFlipDpEvent": ("epsilon",),
    "RandomAllocationDpEvent": ("event", "num_selected", "num_steps"),
    "ZCDpEvent": ("rho", "xi"),
    "SingleEpochTreeAggregationDpEvent": ("noise_multiplier", "step_counts"),
    "TruncatedSubsampledGaussianDpEvent": (
        "dataset_size",
        "sampling_probability",
        "truncated_batch_size",
        "noise_multiplier",
    ),
    "ComposedDpEvent": ("events",),
    "SelfComposedDpEvent": ("event", "count"),
    "PoissonSampledDpEvent": ("sampling_probability", "event"),
    "SampledWithReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
    "SampledWithoutReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
}
_OPTIONAL: dict[str, dict[str, object]] = {
    "ZCDpEvent": {"xi": 0.0},
    "DiscreteGaussianDpEvent": {"sensitivity": 1.0, "dimension": None},
}
_KNOWN = ["GaussianDpEvent", "LaplaceDpEvent", "ZCDpEvent", "their compositions", "their samples"]


@dataclass(frozen=True)
class _Named:
    """An event from JSON."""

    class_name: str
    fields: Mapping[str, object]

    def __getattr__(self, name: str) -> object:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


def class_name(event: object) -> str:
    """Return the name of an event's class; empty if the object is not an event."""
    if isinstance(event, _Named):
        return event.class_name
    names = {cls.__name__ for cls in type(event).__mro__}
    return type(event).__name__ if "DpEvent" in names else ""


def event_of_json(value: object, depth: int = 0) -> object:
    """Return a JSON object as something that `from_dp_event` reads; other values stay as they are.

    Raises:
        InvalidValue: If a field is missing, the class has no such field, or there are too many levels.

    >>> class_name(event_of_json({"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}))
    'GaussianDpEvent'
    """
    if depth > MAX_DEPTH:
        raise InvalidValue(f"the event holds more than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        name = value.get("class_name")
        if not isinstance(name, str):
            raise InvalidValue("an event must have a class_name, such as GaussianDpEvent", pointer=("class_name",))
        given = {key: item for key, item in value.items() if key not in {"class_name", "module_name"}}
        known = FIELDS.get(name)
        if known is not None:
            if unknown := sorted(set(given) - set(known)):
                raise InvalidValue(f"{name} has no field {unknown[0]}", pointer=(unknown[0],))
            optional = _OPTIONAL.get(name, {})
            if missing := [key for key in known if key not in given and key not in optional]:
                raise InvalidValue(f"{name} needs {missing[0]}", pointer=(missing[0],))
            given = {key: given.get(key, optional.get(key)) for key in known}
        read = {}
        for key, item in given.items():
            with inside(key):
                read[key] = event_of_json(item, depth + 1)
        return _Named(name, read)
    if isinstance(value, list):
        items = []
        for index, item in enumerate(value):
            with inside(index):
                items.append(event_of_json(item, depth))
        return items
    return value


@dataclass
class Reader:
    """Walks a tree of events, in bounded depth and number.

    Attributes:
        units: The factor that converts a noise multiplier to units of the contribution bound.
        sensitivity: The distance between two neighbours' sums, in contribution bounds.
        nodes: The number of events read so far.
    """

    units: float
    sensitivity: float = 1.0
    nodes: int = 0

    def read(self, event: Any, count: int, depth: int) -> Iterator[Event]:
        """Return the events of ``count`` repetitions of ``event``, in order."""
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise InvalidValue(f"the event holds more than {MAX_DEPTH} levels or {MAX_NODES} events")
        kind = class_name(event)
        if kind == "ComposedDpEvent":
            if not isinstance(event.events, Sequence):
                raise InvalidValue("events must be a list", pointer=("events",))
            for index, part in enumerate(event.events):
                yield from self._inside(("events", index), part, count, depth)
        elif kind == "SelfComposedDpEvent":
            times = read_integer("count", event.count, 0, MAX_COUNT)
            if times:
                yield from self._inside(("event",), event.event, count * times, depth)
        elif kind == "PoissonSampledDpEvent":
            probability = read_real("sampling_probability", event.sampling_probability, 0.0, 1.0)
            sampling = Poisson(probability) if probability > 0.0 else None
            yield from self._sampled(event, sampling, count, depth)
        elif kind == "SampledWithoutReplacementDpEvent":
            size = read_integer("sample_size", event.sample_size, 0, MAX_DATASET_SIZE)
            fixed = WithoutReplacement(size, event.source_dataset_size) if size > 0 else None
            yield from self._sampled(event, fixed, count, depth)
        elif kind == "SampledWithReplacementDpEvent":
            draws = read_integer("sample_size", event.sample_size, 0, MAX_DATASET_SIZE)
            hits = WithReplacement(draws, event.source_dataset_size) if draws > 0 else None
            yield from self._sampled(event, hits, count, depth)
        elif kind == "RandomAllocationDpEvent":
            yield from self._allocated(event, count, depth)
        elif kind == "TruncatedSubsampledGaussianDpEvent":
            yield from self._truncated(event, count)
        elif kind != "NoOpDpEvent":
            yield Event(self._mechanism(event), FullBatch(), count)

    def _truncated(self, event: Any, count: int) -> Iterator[Event]:
        probability = read_real("sampling_probability", event.sampling_probability, 0.0, 1.0)
        records = read_integer("dataset_size", event.dataset_size, 0, MAX_DATASET_SIZE)
        largest = read_integer("truncated_batch_size", event.truncated_batch_size, 0, MAX_DATASET_SIZE)
        if probability > 0.0 and records and largest:
            # dp-accounting keeps a uniformly random subset of a batch that is too large.
            cut = TruncatedPoisson(probability, largest, records, "random")
            yield Event(Gaussian(self._noise(event)), cut, count)

    def _allocated(self, event: Any, count: int, depth: int) -> Iterator[Event]:
        """Return ``count`` allocations, each with the given number of steps."""
        chosen = read_integer("num_selected", event.num_selected, 0, MAX_COUNT)
        steps = read_integer("num_steps", event.num_steps, 1, MAX_COUNT)
        batch = tuple(self._inside(("event",), event.event, 1, depth))
        if not batch or not chosen:
            return
        if len(batch) > 1 or batch[0].count > 1 or not isinstance(batch[0].sampling, FullBatch):
            raise Unsupported(
                "a random allocation is covered for a single Gaussian only, not for several mechanisms or for a "
                "sampled mechanism",
                pointer=("event",),
            )
        yield Event(batch[0].mechanism, RandomAllocation(steps, chosen), count * steps)

    def _inside(self, path: tuple[str | int, ...], event: Any, count: int, depth: int) -> Iterator[Event]:
        with inside(*path):
            yield from self.read(event, count, depth + 1)

    def _mechanism(self, event: Any) -> Mechanism:
        kind = class_name(event)
        read = self._mechanisms.get(kind)
        if read is not None:
            return read(event)
        if not kind:
            raise InvalidValue(f"{type(event).__name__} is not a DpEvent of dp-accounting; give {one_of(_KNOWN)}")
        reason = REFUSED.get(kind, "this engine does not know this class of events")
        raise Unsupported(f"{kind}: {reason}. These are understood: {one_of(sorted(FIELDS))}")

    @property
    def _mechanisms(self) -> Mapping[str, Callable[[Any], Mechanism]]:
        """Return the reader of each class that describes one release."""
        return {
            "GaussianDpEvent": lambda event: Gaussian(self._noise(event)),
            "LaplaceDpEvent": lambda event: Laplace(self._noise(event)),
            "DiscreteLaplaceDpEvent": _discrete_laplace,
            "DiscreteGaussianDpEvent": self._discrete_gaussian,
            "RandomizedResponseDpEvent": lambda event: RandomizedResponse(event.num_buckets, event.noise_parameter),
            "SingleEpochTreeAggregationDpEvent": self._tree,
            "ZCDpEvent": _zcdp,
            "EpsilonDeltaDpEvent": _approximate_dp,
            "ExponentialMechanismDpEvent": lambda event: Exponential(event.epsilon),
            "PermuteAndFlipDpEvent": lambda event: ReportNoisyMax(event.epsilon, "exponential"),
        }

    def _tree(self, event: Any) -> Mechanism:
        # Each record is in at most one tree, and the tree with the most leaves is the worst case.
        counts = event.step_counts if isinstance(event.step_counts, Sequence) else [event.step_counts]
        leaves = [read_integer("step_counts", leaf, 1, MAX_COUNT) for leaf in counts]
        if not leaves:
            raise InvalidValue("step_counts must have the leaves of at least one tree", pointer=("step_counts",))
        return TreeAggregation(self._noise(event), max(leaves), 0)

    def _discrete_gaussian(self, event: Any) -> Mechanism:
        """Read noise on one integer coordinate as it is, and other noise by its zCDP, which holds in every dimension.

        Source: Canonne, Kamath & Steinke 2020, Theorem 4 and its multivariate form: rho = sensitivity^2 / (2 sigma^2).
        """
        sigma = read_real("sigma", event.sigma, 0.0, math.inf, open_lower=True) * self.units
        sensitivity = read_real("sensitivity", event.sensitivity, 0.0, float(MAX_COUNT), open_lower=True)
        if event.dimension == 1 and sensitivity == math.floor(sensitivity):
            return DiscreteGaussian((1.0 - 2.0**-50) * sigma / sensitivity, 1.0 / sensitivity)
        return ZcDp(0.5 * (self.sensitivity * sensitivity / sigma) ** 2 * (1.0 + 2.0**-50))

    def _noise(self, event: Any) -> float:
        return read_real("noise_multiplier", event.noise_multiplier, 0.0, math.inf) * self.units

    def _sampled(self, event: Any, sampling: Sampling | None, count: int, depth: int) -> Iterator[Event]:
        """Return the steps of a mechanism on a sampled batch; ``sampling`` is None if the batch is always empty."""
        batch = tuple(self._inside(("event",), event.event, 1, depth))
        if sampling is None or not batch:
            return
        if any(not isinstance(inner.sampling, FullBatch) for inner in batch):
            raise Unsupported(
                "a sample of a sample is not covered; where both are Poisson, write one Poisson sample with the "
                "product of the two probabilities",
                pointer=("event",),
            )
        if len(batch) == 1 and batch[0].count == 1:
            yield Event(batch[0].mechanism, sampling, count)
        elif isinstance(sampling, WithReplacement):
            raise Unsupported(
                "several mechanisms on one batch that is sampled with replacement are not covered", pointer=("event",)
            )
        elif all(isinstance(inner.mechanism, Gaussian) for inner in batch):
            yield Event(one_gaussian(batch), sampling, count)
        else:
            raise Unsupported(
                "several mechanisms on one sampled batch are covered only if all of them are Gaussian; no "
                "dominating pair is known here for a batch that is used more than once by "
                f"{one_of(sorted({inner.mechanism.kind for inner in batch}))}",
                pointer=("event",),
            )


def _discrete_laplace(event: Any) -> Mechanism:
    # The noise has mass e^(-a |x|) on the integers, for contributions up to C. In units of C, its scale is 1 / (a C)
    # and its grid 1 / C.
    parameter = read_real("noise_parameter", event.noise_parameter, 0.0, math.inf, open_lower=True)
    bound = read_integer("sensitivity", event.sensitivity, 1, MAX_COUNT)
    return DiscreteLaplace((1.0 - 2.0**-50) / (parameter * bound), 1.0 / bound)


def _zcdp(event: Any) -> Mechanism:
    if event.xi != 0.0:
        raise Unsupported(
            "a ZCDpEvent with xi > 0 is not covered; state its curve as renyi_dp, xi + rho * order", pointer=("xi",)
        )
    return ZcDp(event.rho)


def _approximate_dp(event: Any) -> Mechanism:
    delta = read_real("delta", event.delta, 0.0, 1.0)
    return ApproximateDp(event.epsilon, delta) if delta > 0.0 else PureDp(event.epsilon)


def one_gaussian(batch: Sequence[Event]) -> Gaussian:
    """Return the Gaussian mechanism that stands for several on the same input: 1/s^2 = sum of count / s_k^2.

    Args:
        batch: Full-batch Gaussian events.

    Guarantees: noise_is_rounded_down: s is below the exact value, by a relative 2e-15 at most.

    Source: Dong, Roth & Su 2022, Corollary 3.3 (composition of Gaussian DP); the module's docstring for samples.

    >>> round(one_gaussian([Event(Gaussian(3.0)), Event(Gaussian(4.0))]).noise_multiplier, 12)
    2.4
    """
    precisions = [
        event.count / (event.mechanism.noise_multiplier * event.mechanism.noise_multiplier)
        for event in batch
        if isinstance(event.mechanism, Gaussian)
    ]
    return Gaussian((1.0 - 2.0**-50) / math.sqrt(math.fsum(precisions)))
