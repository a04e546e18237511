"""The sampling that was charged is the sampling that runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accounting.errors import AccountingError
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
    WithReplacement,
)
from accounting.relations import NeighboringRelation
from tests.trainer.samplers.drawing import CUT, SLOTS, sampler, slots_of
from trainer.samplers import (
    AllocationSampler,
    CyclicPoissonSampler,
    FixedOrderSampler,
    FullBatchSampler,
    PoissonSampler,
    ShuffledSampler,
    TruncatedPoissonSampler,
    WithoutReplacementSampler,
    check_sampling,
    sampler_for,
)
from trainer.streams import random_streams


def test_the_sampler_is_the_one_that_was_charged() -> None:
    assert isinstance(sampler(FullBatch()), FullBatchSampler)
    assert isinstance(sampler(Poisson(0.5)), PoissonSampler)
    assert isinstance(sampler(WithoutReplacement(10, 50)), WithoutReplacementSampler)
    assert isinstance(sampler(CUT), TruncatedPoissonSampler)
    assert isinstance(sampler(SLOTS), TruncatedPoissonSampler)
    assert isinstance(sampler(RandomAllocation(5, 1)), AllocationSampler)
    assert isinstance(sampler(Blocks(7, 2)), AllocationSampler)
    assert isinstance(sampler(ShuffledEpochs(5)), ShuffledSampler)
    assert isinstance(sampler(CyclicPoisson(0.5, 3, "independent")), CyclicPoissonSampler)
    assert isinstance(sampler(CyclicPoisson(0.5, 3, "by_position")), CyclicPoissonSampler)
    assert isinstance(sampler(FixedOrderEpochs(3)), FixedOrderSampler)
    assert isinstance(sampler(DisjointBatches("by_position")), ShuffledSampler)
    assert isinstance(sampler(DisjointBatches("independent")), AllocationSampler)


def refusal(
    sampling: Sampling,
    *,
    steps: int = 4,
    relation: NeighboringRelation = NeighboringRelation.REPLACE_SPECIAL,
) -> tuple[str, tuple[str | int, ...]]:
    with pytest.raises(AccountingError) as caught:
        check_sampling(sampling, steps, 10, 50, 60, relation)
    return caught.value.detail, tuple(caught.value.pointer)


def test_what_is_not_drawn_as_it_is_charged_is_refused() -> None:
    check_sampling(CUT, 4, 10, 50, 60, NeighboringRelation.REPLACE_SPECIAL)
    for relation in NeighboringRelation:
        check_sampling(SLOTS, 4, 10, 50, 60, relation)
    for sampling, relation, words, pointer in (
        (WithReplacement(10, 50), "replace_one", "full_batch, poisson, truncated_poisson, without_re", "sampling/kind"),
        (RandomAllocation(5, 2), "replace_special", "one step of each allocation, not 2", "sampling/participations"),
        (TruncatedPoisson(0.2, 12, 50), "replace_special", "random subset", "sampling/truncation"),
        (CUT, "add_or_remove_one", 'use truncation "random_slots"', "sampling/truncation"),
        (replace(SLOTS, dataset_size=50), "add_or_remove_one", "a capacity of 60", "sampling/dataset_size"),
        (replace(SLOTS, dataset_size=61), "add_or_remove_one", "for 61 slots", "sampling/dataset_size"),
        (TruncatedPoisson(0.2, 12, 51, truncation="random"), "replace_one", "for 51 records", "sampling/dataset_size"),
        (DisjointBatches("by_position"), "replace_one", "need 60 records; dataset_size is 50", "divisor"),
    ):
        detail, place = refusal(sampling, steps=6, relation=NeighboringRelation(relation))
        assert words in detail
        assert "/".join(map(str, place)) == pointer


@pytest.mark.parametrize("sampling", [WithoutReplacement(10, 50), ShuffledEpochs(5), DisjointBatches("by_position")])
@pytest.mark.parametrize("slots", [50, 57, 80])
def test_schemes_of_a_fixed_size_draw_from_the_declared_places(sampling: Sampling, slots: int) -> None:
    """Whatever the capacity: a place beyond the declared ones is never drawn."""
    few, many = sampler(sampling, rows=slots), sampler(sampling, rows=1000)
    for _ in range(4):
        drawn, same = few.draw(), many.draw()
        assert isinstance(drawn, np.ndarray)
        assert drawn.size == 10
        assert drawn.max() < 50
        np.testing.assert_array_equal(drawn, same)


def test_places_are_found_in_their_slots() -> None:
    positions = np.random.default_rng(1).permutation(30)
    one, other = (
        sampler_for(WithoutReplacement(20, 30), 1, 20, 30, slots_of(where), random_streams(1).sampling).draw()
        for where in (np.arange(30), positions)
    )
    np.testing.assert_array_equal(other, positions[one])


@pytest.mark.parametrize(
    "sampling",
    [
        FullBatch(),
        Poisson(0.3),
        CUT,
        SLOTS,
        WithoutReplacement(10, 50),
        RandomAllocation(3, 1),
        Blocks(5, 2),
        ShuffledEpochs(3),
        CyclicPoisson(0.6, 3, "independent"),
        CyclicPoisson(0.6, 3, "by_position"),
        FixedOrderEpochs(3),
        *map(DisjointBatches, ("by_position", "independent")),
    ],
)
@pytest.mark.parametrize("done", [0, 2, 3])
def test_restored_samplers_go_on(sampling: Sampling, done: int) -> None:
    """Before the first step, within an epoch of three steps, and between two epochs."""
    stream, another = random_streams(1).sampling, random_streams(2).sampling
    one, other = (sampler_for(sampling, 5, 10, 50, slots_of(np.arange(60)), source) for source in (stream, another))
    for _ in range(done):
        one.draw()
    other.restore(one.state())
    another.state = stream.state
    for _ in range(5 - done):
        np.testing.assert_array_equal(other.draw(), one.draw())
