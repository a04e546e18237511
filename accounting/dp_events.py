"""Event lists as dp-accounting's `DpEvent`, and back: for users of JAX Privacy, TF Privacy and Opacus.

A `DpEvent` says neither the neighbouring relation nor, in practice, what its noise multiplier is a multiple of. Its
documentation says: of the bound C on one record's contribution, which is our convention under every relation. Its PLD
accountant reads it so; its Renyi accountant reads it as a multiple of the sensitivity, which under replace_one is 2 C
(4.73 against 10.0 for one Gaussian of multiplier 1 at delta 1e-5). `NoiseOver` names the reading.

Several Gaussians on ONE sampled batch (a sampled event over a composition) are one sampled Gaussian with
1/s^2 = sum of 1/s_k^2, adaptively too:

* add_or_remove_one, replace_special. With P0, P1 the outputs without and with the record, H_a((1-q)P0 + qP1 || P0) =
  q H_b(P1 || P0), b = 1 + (a-1)/q, and H_a(P0 || (1-q)P0 + qP1) = c H_(aq/c)(P0 || P1), c = 1 - a(1-q) > 0 (else 0): a
  pair that dominates (P1, P0) may be put in its place, and the Gaussian with mu^2 = sum of 1/s_k^2 does, by
  composition of Gaussian DP. Batches of the other records average out by joint convexity.
* replace_one, Poisson: the value function h(y1, y2) = (1 - beta y1 - alpha y2)_+ of `sampling.poisson` has
  nonnegative second derivatives, mixed ones included, and averaging it over one more step keeps them so. Backwards,
  step by step, each step's covariance is therefore best at its largest entries (1, 4, 2)/s_k^2: they add up.
* without replacement: Zhu, Dong & Wang's pair is made of any pair that dominates the mechanism on the batch.

Repeating the sampled Gaussian instead would claim a fresh batch for each mechanism, and report too little loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from accounting.errors import AccountingError, InvalidValue, Unsupported, one_of
from accounting.events import (
    Event,
    FullBatch,
    Gaussian,
    Laplace,
    Mechanism,
    Poisson,
    Sampling,
    WithoutReplacement,
    ZcDp,
)
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, MAX_EVENTS, read_integer, read_real
from accounting.relations import NeighboringRelation
from accounting.sampling.schedules import relations_of, resolve_schedules

#: Compositions inside one another, and events in all: more are a mistake, or an attack.
MAX_DEPTH = 64
MAX_NODES = 200_000

#: Why an event of dp-accounting has no counterpart here, and what would do.
REFUSED = {
    "NonPrivateDpEvent": "it stands for an operation without any privacy guarantee",
    "UnsupportedDpEvent": "it stands for an operation that nobody has described",
    "RandomizedResponseDpEvent": "randomised response is not covered yet; state its guarantee as pure_dp",
    "DiscreteLaplaceDpEvent": "the discrete Laplace mechanism is not covered yet; state its guarantee as pure_dp",
    "SampledWithReplacementDpEvent": "sampling with replacement is not covered yet; use batches without replacement",
    "SingleEpochTreeAggregationDpEvent": "tree aggregation is not covered yet; state its guarantee as zcdp",
    "RepeatAndSelectDpEvent": "selection among a random number of repetitions is no composition; state its guarantee",
    "MixtureOfGaussiansDpEvent": "mixtures of Gaussians are not covered yet; state its guarantee",
    "TruncatedSubsampledGaussianDpEvent": "truncated Poisson batches are not covered yet; use Poisson batches",
}


class NoiseOver(StrEnum):
    """What a `DpEvent`'s noise multiplier is a multiple of."""

    CONTRIBUTION_BOUND = "contribution_bound"
    """As the classes document it, and as dp-accounting's PLD accountant reads it under every relation."""
    SENSITIVITY = "sensitivity"
    """As its Renyi accountant reads it: of 2 C under replace_one, else of C."""

    def units(self, relation: NeighboringRelation) -> float:
        """The unit in contribution bounds."""
        return relation.sensitivity if self is NoiseOver.SENSITIVITY else 1.0


def to_dp_event(
    events: Sequence[Event],
    relation: NeighboringRelation,
    *,
    noise_over: NoiseOver = NoiseOver.CONTRIBUTION_BOUND,
) -> Any:
    """The list as one `DpEvent`.

    Args:
        events: any number of events; none gives `NoOpDpEvent`.
        relation: the neighbouring relation; a `DpEvent` does not carry it, so hand it on beside it.
        noise_over: what the multipliers that are written are multiples of.

    Returns:
        A `dp_accounting.DpEvent`. Fixed schedules are written as the full batches one record takes part in.

    Guarantees:
        round_trip: `from_dp_event` of it, with the same relation and reading, gives the same events, as
            `group_events` groups them, with fixed schedules as full batches.
        floats_only: every number is a plain float or int, whatever came in.

    Requires:
        an accountant that reads the multipliers as ``noise_over`` says; under replace_one they differ.

    Raises:
        Unsupported: the relation has no account for a sampling, or dp-accounting no event for a mechanism.

    >>> to_dp_event([Event(Gaussian(1), Poisson(0.5), 3)], NeighboringRelation.ADD_OR_REMOVE_ONE).count
    3
    """
    classes = import_module("dp_accounting.dp_event")
    resolved = resolve_schedules(events, NeighboringRelation(relation))
    units = noise_over.units(NeighboringRelation(relation))
    written = []
    for index, event in enumerate(resolved):
        try:
            written.append(_write(classes, event, units))
        except AccountingError as error:
            raise error.inside(index) from None
    if not written:
        return classes.NoOpDpEvent()
    return written[0] if len(written) == 1 else classes.ComposedDpEvent(written)


def from_dp_event(
    dp_event: Any,
    relation: NeighboringRelation,
    *,
    noise_over: NoiseOver = NoiseOver.CONTRIBUTION_BOUND,
) -> tuple[Event, ...]:
    """The events that a `DpEvent` stands for.

    Args:
        dp_event: a `dp_accounting.DpEvent`, composed and sampled ones included.
        relation: the neighbouring relation that its owner accounts under (dp-accounting's accountants assume
            add_or_remove_one where none is given).
        noise_over: what its multipliers are multiples of. The default never reports too little: where the owner meant
            the sensitivity, the true multiplier under replace_one is twice as large.

    Returns:
        Events in the order of their first appearance, equal ones together. Empty for what releases nothing.

    Guarantees:
        same_events_for_the_same_numbers: ints, floats and NumPy scalars give equal events.
        one_batch_is_sampled_once: several Gaussians on one sampled batch become one Gaussian with less noise (rounded
            down), never a repeated sampled Gaussian.

    Raises:
        InvalidValue: not a `DpEvent`, or a number outside its range; the pointer leads to it.
        Unsupported: no theorem here covers the event (by its name), or its sampling under this relation.

    >>> from dp_accounting import dp_event as dp
    >>> batch = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2), 4)
    >>> [event] = from_dp_event(dp.PoissonSampledDpEvent(0.5, batch), NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> event.count, round(event.mechanism.noise_multiplier, 12)
    (1, 1.0)
    """
    relation = NeighboringRelation(relation)
    reader = _Reader(import_module("dp_accounting.dp_event"), noise_over.units(relation))
    counts: dict[tuple[Mechanism, Sampling], int] = {}
    for event in reader.read(dp_event, 1, 0):
        if relation not in relations_of(event.sampling):
            # The same sentence as every other refusal of the relation.
            resolve_schedules([event], relation)
        key = (event.mechanism, event.sampling)
        counts[key] = counts.get(key, 0) + event.count
        if len(counts) > MAX_EVENTS:
            raise InvalidValue(f"the event holds more than {MAX_EVENTS} different steps")
    return tuple(Event(mechanism, sampling, count) for (mechanism, sampling), count in counts.items())


def _write(classes: Any, event: Event, units: float) -> Any:
    mechanism, sampling = event.mechanism, event.sampling
    if isinstance(mechanism, Gaussian):
        written = classes.GaussianDpEvent(mechanism.noise_multiplier / units)
    elif isinstance(mechanism, Laplace):
        written = classes.LaplaceDpEvent(mechanism.noise_multiplier / units)
    elif isinstance(mechanism, ZcDp):
        written = classes.ZCDpEvent(mechanism.rho)
    else:
        raise Unsupported(
            f"dp-accounting has no event for the stated guarantee {mechanism.kind}; it has one for gaussian, laplace "
            "and zcdp",
            pointer=("mechanism", "kind"),
        )
    if isinstance(sampling, Poisson):
        written = classes.PoissonSampledDpEvent(sampling.sampling_probability, written)
    elif isinstance(sampling, WithoutReplacement):
        written = classes.SampledWithoutReplacementDpEvent(sampling.dataset_size, sampling.batch_size, written)
    return written if event.count == 1 else classes.SelfComposedDpEvent(written, event.count)


@dataclass
class _Reader:
    """Walks a tree of events, in bounded depth and number."""

    classes: Any
    units: float
    nodes: int = 0

    def read(self, event: Any, count: int, depth: int) -> Iterator[Event]:
        """The events of ``count`` repetitions of ``event``, in order."""
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise InvalidValue(f"the event holds more than {MAX_DEPTH} levels or {MAX_NODES} events")
        kind = type(event)
        classes = self.classes
        if kind is classes.ComposedDpEvent:
            for index, part in enumerate(event.events):
                yield from self._inside(("events", index), part, count, depth)
        elif kind is classes.SelfComposedDpEvent:
            times = read_integer("count", event.count, 0, MAX_COUNT)
            if times:
                yield from self._inside(("event",), event.event, count * times, depth)
        elif kind is classes.PoissonSampledDpEvent:
            probability = read_real("sampling_probability", event.sampling_probability, 0.0, 1.0)
            sampling = Poisson(probability) if probability > 0.0 else None
            yield from self._sampled(event, sampling, count, depth)
        elif kind is classes.SampledWithoutReplacementDpEvent:
            size = read_integer("sample_size", event.sample_size, 0, MAX_DATASET_SIZE)
            fixed = WithoutReplacement(size, event.source_dataset_size) if size > 0 else None
            yield from self._sampled(event, fixed, count, depth)
        elif kind is not classes.NoOpDpEvent:
            yield Event(self._mechanism(event), FullBatch(), count)

    def _inside(self, path: tuple[str | int, ...], event: Any, count: int, depth: int) -> Iterator[Event]:
        try:
            yield from self.read(event, count, depth + 1)
        except AccountingError as error:
            raise error.inside(*path) from None

    def _mechanism(self, event: Any) -> Mechanism:
        kind, classes = type(event), self.classes
        if kind is classes.GaussianDpEvent:
            return Gaussian(self._noise(event))
        if kind is classes.LaplaceDpEvent:
            return Laplace(self._noise(event))
        if kind is classes.ZCDpEvent:
            if event.xi != 0.0:
                raise Unsupported(
                    "a ZCDpEvent with xi > 0 is not covered; state its curve as renyi_dp, xi + rho * order",
                    pointer=("xi",),
                )
            return ZcDp(event.rho)
        known = ["GaussianDpEvent", "LaplaceDpEvent", "ZCDpEvent", "their compositions", "their samples"]
        if not isinstance(event, classes.DpEvent):
            raise InvalidValue(f"{kind.__name__} is no DpEvent of dp-accounting; give {one_of(known)}")
        reason = REFUSED.get(kind.__name__, "this engine does not know it")
        raise Unsupported(f"{kind.__name__}: {reason}. Understood are {one_of(known)}")

    def _noise(self, event: Any) -> float:
        return read_real("noise_multiplier", event.noise_multiplier, 0.0, math.inf) * self.units

    def _sampled(self, event: Any, sampling: Sampling | None, count: int, depth: int) -> Iterator[Event]:
        """The steps of a mechanism on a sampled batch; ``sampling`` is None where the batch is always empty."""
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
        elif all(isinstance(inner.mechanism, Gaussian) for inner in batch):
            yield Event(one_gaussian(batch), sampling, count)
        else:
            raise Unsupported(
                "several mechanisms on one sampled batch are covered where all of them are Gaussian; one pair for a "
                f"batch that gets {one_of(sorted({inner.mechanism.kind for inner in batch}))} more than once is not "
                "known here",
                pointer=("event",),
            )


def one_gaussian(batch: Sequence[Event]) -> Gaussian:
    """The Gaussian mechanism that stands for several on the same input: 1/s^2 = sum of count / s_k^2.

    Args:
        batch: full-batch Gaussian events.

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
