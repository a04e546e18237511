"""The sampler of each sampling scheme, and what is refused because no sampler here draws it as it is charged."""

from __future__ import annotations

import numpy as np

from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events import (
    Blocks,
    CyclicPoisson,
    DisjointBatches,
    FixedOrderEpochs,
    FullBatch,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
)
from accounting.relations import NeighboringRelation
from trainer.keystream import Keystream
from trainer.records import Records
from trainer.samplers.epochs import AllocationSampler, ShuffledSampler
from trainer.samplers.independent import (
    FullBatchSampler,
    PoissonSampler,
    TruncatedPoissonSampler,
    WithoutReplacementSampler,
)
from trainer.samplers.sampler import Sampler
from trainer.samplers.turns import CyclicPoissonSampler, FixedOrderSampler, dealt_out

#: The sampling schemes that have a sampler.
SAMPLINGS = (
    FullBatch,
    Poisson,
    TruncatedPoisson,
    WithoutReplacement,
    RandomAllocation,
    Blocks,
    ShuffledEpochs,
    DisjointBatches,
    CyclicPoisson,
    FixedOrderEpochs,
)


def check_sampling(
    sampling: Sampling, steps: int, divisor: int, dataset_size: int, capacity: int, relation: NeighboringRelation
) -> None:
    """Refuse what `sampler_for` cannot draw as it is charged under the relation.

    Args:
        sampling, steps, divisor, dataset_size: As in `sampler_for`.
        capacity: Slots of the data set.
        relation: The relation under which the sampling is charged.

    Raises:
        InvalidValue: If disjoint batches need more records than there are, or if truncated ones are charged for another
            number.
        Unsupported: If the trainer has no sampler of this kind, none for more than one step of each allocation, or none
            that cuts batches in this way or under this relation.
    """
    if not isinstance(sampling, SAMPLINGS):
        raise Unsupported(
            f"the trainer has no sampler for {sampling.kind}; use {one_of([cls.kind for cls in SAMPLINGS])}",
            code="unsupported_sampling",
            pointer=("sampling", "kind"),
        )
    if isinstance(sampling, RandomAllocation) and sampling.participations > 1:
        raise Unsupported(
            f"the trainer draws one step of each allocation, not {sampling.participations}; use participations 1, or "
            "blocks",
            code="unsupported_sampling",
            pointer=("sampling", "participations"),
        )
    if isinstance(sampling, TruncatedPoisson):
        _check_truncation(sampling, dataset_size, capacity, relation)
    by_position = isinstance(sampling, DisjointBatches) and sampling.assignment == "by_position"
    if by_position and steps * divisor > dataset_size:
        raise InvalidValue(
            f"{steps} disjoint batches of {divisor} need {steps * divisor} records; dataset_size is {dataset_size}",
            pointer=("divisor",),
        )


def _check_truncation(
    sampling: TruncatedPoisson, dataset_size: int, capacity: int, relation: NeighboringRelation
) -> None:
    """Refuse truncated batches that are not charged for the places that are drawn: declared records, or all slots."""
    if not sampling.is_random:
        raise Unsupported(
            "the trainer can keep only a random subset of a batch that is too large; "
            'use truncation "random" or "random_slots"',
            code="unsupported_sampling",
            pointer=("sampling", "truncation"),
        )
    of_slots = sampling.truncation == "random_slots"
    if relation is NeighboringRelation.ADD_OR_REMOVE_ONE and not of_slots:
        raise Unsupported(
            "the trainer draws empty places, too, and this truncation is not charged for them under "
            'add_or_remove_one; use truncation "random_slots"',
            code="unsupported_sampling",
            pointer=("sampling", "truncation"),
        )
    what, places = ("slots", capacity) if of_slots else ("records", dataset_size)
    if sampling.dataset_size != places:
        name = "the data set has a capacity of" if of_slots else "dataset_size is"
        raise InvalidValue(
            f"truncated batches are charged for {sampling.dataset_size} {what}, and {name} {places}",
            pointer=("sampling", "dataset_size"),
        )


def sampler_for(
    sampling: Sampling, steps: int, divisor: int, dataset_size: int, records: Records, stream: Keystream
) -> Sampler:
    """Return the sampler that runs what ``sampling`` was charged for.

    Args:
        steps: The number of steps of the phase, and of draws.
        divisor: The nominal batch size, which is the size of disjoint batches by position.
        dataset_size: The declared size; no more than the records' capacity.
        records: The records whose slots are drawn.
        stream: The source of the draws.

    Requires:
        `check_sampling` does not refuse it.
    """
    sampler: Sampler
    match sampling:
        case FullBatch():
            sampler = FullBatchSampler(records.capacity)
        case Poisson():
            sampler = PoissonSampler(records.capacity, sampling.sampling_probability, steps, stream)
        case TruncatedPoisson():
            sampler = TruncatedPoissonSampler(records.positions, sampling, steps, stream)
        case WithoutReplacement():
            sampler = WithoutReplacementSampler(records.positions, sampling.batch_size, sampling.dataset_size, stream)
        case RandomAllocation() | Blocks():
            cuts = np.arange(sampling.participations + 1) * sampling.num_bins // sampling.participations
            sampler = AllocationSampler(records.capacity, cuts, steps, stream)
        case ShuffledEpochs():
            edges = np.arange(sampling.steps_per_epoch + 1) * dataset_size // sampling.steps_per_epoch
            sampler = ShuffledSampler(records.positions, edges, dataset_size, stream)
        case CyclicPoisson(assignment="by_position"):
            turn_of = dealt_out(records.positions, sampling.cycle_length, dataset_size, stream)
            sampler = CyclicPoissonSampler(turn_of, sampling, steps, stream)
        case CyclicPoisson():
            drawn = stream.generator().integers(sampling.cycle_length, size=records.capacity, dtype=np.int32)
            sampler = CyclicPoissonSampler(drawn, sampling, steps, stream)
        case FixedOrderEpochs():
            turn_of = dealt_out(records.positions, sampling.steps_per_epoch, dataset_size, stream)
            sampler = FixedOrderSampler(turn_of, sampling.steps_per_epoch)
        case DisjointBatches(assignment="by_position"):
            sampler = ShuffledSampler(records.positions, np.arange(steps + 1) * divisor, dataset_size, stream)
        case DisjointBatches():
            sampler = AllocationSampler(records.capacity, np.array([0, steps]), steps, stream)
        case _:
            raise AssertionError(f"{sampling.kind} is refused by check_sampling")
    return sampler
