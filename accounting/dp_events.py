"""Event lists as dp-accounting's `DpEvent`, and back: for users of JAX Privacy, TF Privacy and Opacus.

A `DpEvent` states neither the neighbouring relation nor, in practice, the unit of its noise multiplier. The
documentation of dp-accounting says that the multiplier is a multiple of the bound C on one record's contribution, which
is our convention under every relation. Its PLD accountant reads the multiplier in this way; its Renyi accountant reads
it as a multiple of the sensitivity, which is 2 C under replace_one (4.73 against 10.0 for one Gaussian of multiplier 1
at delta 1e-5). `NoiseOver` names the reading.

Several Gaussians on ONE sampled batch (a sampled event over a composition), even adaptive ones, are one sampled
Gaussian with 1/s^2 = sum of 1/s_k^2:

* add_or_remove_one, replace_special. With P0, P1 the outputs without and with the record, H_a((1-q)P0 + qP1 || P0) =
  q H_b(P1 || P0), b = 1 + (a-1)/q, and H_a(P0 || (1-q)P0 + qP1) = c H_(aq/c)(P0 || P1), c = 1 - a(1-q) > 0 (else 0): a
  pair that dominates (P1, P0) may be put in its place, and the Gaussian with mu^2 = sum of 1/s_k^2 does, by
  composition of Gaussian DP. Batches of the other records average out by joint convexity.
* replace_one, Poisson: the value function h(y1, y2) = (1 - beta y1 - alpha y2)_+ of `accounting.losses.poisson` has
  nonnegative second derivatives, mixed ones included, and averaging it over one more step keeps them so. Backwards,
  step by step, each step's covariance is therefore best at its largest entries (1, 4, 2)/s_k^2: they add up.
* without replacement: Zhu, Dong & Wang's pair is made of any pair that dominates the mechanism on the batch.

Repeating the sampled Gaussian instead would claim a fresh batch for each mechanism, and report too little loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from typing import Any

from accounting.dp_event_reader import Reader, event_of_json
from accounting.errors import InvalidValue, Unsupported, inside
from accounting.events import (
    DiscreteLaplace,
    Event,
    FullBatch,
    Gaussian,
    Laplace,
    Mechanism,
    Poisson,
    RandomizedResponse,
    Sampling,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
    ZcDp,
)
from accounting.events.schedules import check_event, resolve_schedules
from accounting.numbers import MAX_EVENTS
from accounting.relations import NeighboringRelation


class NoiseOver(StrEnum):
    """The unit of a `DpEvent`'s noise multiplier: the contribution bound or the sensitivity."""

    CONTRIBUTION_BOUND = "contribution_bound"
    """A multiple of C: documented by the classes, and assumed by dp-accounting's PLD accountant under every
    relation."""
    SENSITIVITY = "sensitivity"
    """A multiple of the sensitivity (2 C under replace_one, else C): assumed by dp-accounting's Renyi accountant."""

    def units(self, relation: NeighboringRelation) -> float:
        """Return the unit of the noise multiplier, in contribution bounds."""
        return relation.sensitivity if self is NoiseOver.SENSITIVITY else 1.0


def to_dp_event(
    events: Sequence[Event],
    relation: NeighboringRelation,
    *,
    noise_over: NoiseOver = NoiseOver.CONTRIBUTION_BOUND,
) -> Any:
    """Convert the list to one `DpEvent`.

    Args:
        events: Any number of events; an empty list gives `NoOpDpEvent`.
        relation: The neighbouring relation. A `DpEvent` does not carry it, so pass it on separately.
        noise_over: The unit of the multipliers that are written.

    Returns:
        A `dp_accounting.DpEvent`. Fixed schedules are written as the full batches one record takes part in.

    Guarantees:
        round_trip: `from_dp_event`, applied to the result with the same relation and unit, gives the same events,
            grouped as by `group_events` and with fixed schedules as full batches.
        floats_only: every number is a plain float or int, whatever type was given.

    Requires:
        An accountant that reads the multipliers in the unit ``noise_over``; accountants differ under replace_one.

    Raises:
        Unsupported: If the relation has no account for a sampling, or dp-accounting no event for a mechanism.

    >>> to_dp_event([Event(Gaussian(1), Poisson(0.5), 3)], NeighboringRelation.ADD_OR_REMOVE_ONE).count
    3
    """
    classes = import_module("dp_accounting.dp_event")
    resolved = resolve_schedules(events, NeighboringRelation(relation))
    units = noise_over.units(NeighboringRelation(relation))
    written = []
    for index, event in enumerate(resolved):
        with inside(index):
            written.append(_write(classes, event, units))
    if not written:
        return classes.NoOpDpEvent()
    return written[0] if len(written) == 1 else classes.ComposedDpEvent(written)


def from_dp_event(
    dp_event: Any,
    relation: NeighboringRelation,
    *,
    noise_over: NoiseOver = NoiseOver.CONTRIBUTION_BOUND,
) -> tuple[Event, ...]:
    """Return the events that a `DpEvent` stands for.

    Args:
        dp_event: a `dp_accounting.DpEvent`, composed and sampled ones included, or its JSON form
            (`accounting.dp_event_reader`).
        relation: The neighbouring relation under which its owner accounts (dp-accounting's accountants assume
            add_or_remove_one if none is given).
        noise_over: The unit of its multipliers. The default never reports too little: if the owner meant the
            sensitivity, the true multiplier under replace_one is twice as large.

    Returns:
        The events in the order of their first appearance, with equal events counted together. Empty if nothing is
        released.

    Guarantees:
        same_events_for_the_same_numbers: ints, floats and NumPy scalars give equal events.
        one_batch_is_sampled_once: several Gaussians on one sampled batch become one Gaussian with less noise (rounded
            down), never a repeated sampled Gaussian.

    Raises:
        InvalidValue: If ``dp_event`` is not a `DpEvent`, or a number is outside its range. The pointer leads to it.
        Unsupported: If no theorem here covers the event (by its name), or its sampling under this relation.

    >>> from dp_accounting import dp_event as dp
    >>> batch = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2), 4)
    >>> [event] = from_dp_event(dp.PoissonSampledDpEvent(0.5, batch), NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> event.count, round(event.mechanism.noise_multiplier, 12)
    (1, 1.0)
    """
    relation = NeighboringRelation(relation)
    reader = Reader(noise_over.units(relation), relation.sensitivity)
    counts: dict[tuple[Mechanism, Sampling], int] = {}
    for event in reader.read(event_of_json(dp_event), 1, 0):
        check_event(event, relation)
        key = (event.mechanism, event.sampling)
        counts[key] = counts.get(key, 0) + event.count
        if len(counts) > MAX_EVENTS:
            raise InvalidValue(f"the event holds more than {MAX_EVENTS} different steps")
    return tuple(Event(mechanism, sampling, count) for (mechanism, sampling), count in counts.items())


def _write(classes: Any, event: Event, units: float) -> Any:
    mechanism, sampling = event.mechanism, event.sampling
    if isinstance(sampling, TruncatedPoisson) and isinstance(mechanism, Gaussian):
        if sampling.truncation != "random":
            raise Unsupported(
                "dp-accounting assumes that a truncated batch is a uniformly random subset of the sampled "
                "records; an arbitrary cut may cost more, and empty slots do not exist there",
                pointer=("sampling", "truncation"),
            )
        written = classes.TruncatedSubsampledGaussianDpEvent(
            sampling.dataset_size,
            sampling.sampling_probability,
            sampling.max_batch_size,
            mechanism.noise_multiplier / units,
        )
    else:
        written = _sampled(classes, sampling, _write_mechanism(classes, mechanism, units))
    if isinstance(mechanism, TreeAggregation):
        # A restart begins another tree, in which a record may take part again.
        return classes.SelfComposedDpEvent(written, event.count * (1 + mechanism.restarts))
    return written if event.count == 1 else classes.SelfComposedDpEvent(written, event.count)


def _write_mechanism(classes: Any, mechanism: Mechanism, units: float) -> Any:
    if isinstance(mechanism, Gaussian):
        return classes.GaussianDpEvent(mechanism.noise_multiplier / units)
    if isinstance(mechanism, Laplace):
        return classes.LaplaceDpEvent(mechanism.noise_multiplier / units)
    if isinstance(mechanism, DiscreteLaplace):
        return classes.DiscreteLaplaceDpEvent(mechanism.grid / mechanism.noise_multiplier, round(1.0 / mechanism.grid))
    if isinstance(mechanism, RandomizedResponse):
        return classes.RandomizedResponseDpEvent(mechanism.flip_probability, mechanism.num_categories)
    if isinstance(mechanism, TreeAggregation):
        return classes.SingleEpochTreeAggregationDpEvent(mechanism.noise_multiplier / units, mechanism.num_leaves)
    if isinstance(mechanism, ZcDp):
        return classes.ZCDpEvent(mechanism.rho)
    raise Unsupported(
        f"dp-accounting has no event for {mechanism.kind}; it has one for gaussian, laplace, discrete_laplace, "
        "randomized_response, tree_aggregation and zcdp",
        pointer=("mechanism", "kind"),
    )


def _sampled(classes: Any, sampling: Sampling, written: Any) -> Any:
    if isinstance(sampling, Poisson):
        return classes.PoissonSampledDpEvent(sampling.sampling_probability, written)
    if isinstance(sampling, WithoutReplacement):
        return classes.SampledWithoutReplacementDpEvent(sampling.dataset_size, sampling.batch_size, written)
    if isinstance(sampling, WithReplacement):
        return classes.SampledWithReplacementDpEvent(sampling.dataset_size, sampling.batch_size, written)
    if not isinstance(sampling, FullBatch):
        raise Unsupported(f"dp-accounting has no event for {sampling.kind} batches", pointer=("sampling", "kind"))
    return written
