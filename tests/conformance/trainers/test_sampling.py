"""The rows of every step follow the sampling that was charged: how often each takes part, and how many together."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting.events import (
    CyclicPoisson,
    DisjointBatches,
    FixedOrderEpochs,
    FullBatch,
    Poisson,
    RandomAllocation,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
)
from calibrators.plan import Phase, Plan
from tests.conformance.trainers.examples import is_gradient_steps, model, plans, records_of
from tests.conformance.trainers.streams import RecordingStreams
from trainer.run import run

#: Steps that are looked at, in all, where each is drawn for itself; and runs, where a draw reaches over several.
STEPS, RUNS = 1000, 150


def of_sampling(kind: type) -> list[Any]:
    return [
        case
        for case in plans()
        if is_gradient_steps(case.values[1]) and isinstance(case.values[1].phases[0].event.sampling, kind)
    ]


def batches_of(plan: Plan, runs: int, places: int | None = None) -> np.ndarray:
    """Who takes part: shape (runs, steps, places), as many places as declared records where none are given."""
    features, labels = records_of(plan)
    taken = np.zeros((runs, plan.iterations, places or plan.dataset_size), dtype=bool)
    for number in range(runs):
        streams = RecordingStreams(number)
        run(plan, model(), features, labels, streams=streams)
        for step, batch in enumerate(streams.drawn.batches):
            taken[number, step, batch[batch < taken.shape[2]]] = True
    return taken


def assert_binomial(counts: np.ndarray, trials: int, probability: float) -> None:
    """Within five standard deviations of what a binomial law has in the mean."""
    spread = np.sqrt(trials * probability * (1.0 - probability))
    assert np.abs(counts - trials * probability).max() <= 5.0 * spread


def assert_pairs_are_independent(steps: np.ndarray, together: float) -> None:
    """Two rows take part in the same step as often as the law says."""
    for one, other in combinations(range(0, steps.shape[1], 5), 2):
        assert_binomial(np.array([(steps[:, one] & steps[:, other]).sum()]), len(steps), together)


def assert_steps_are_independent(taken: np.ndarray, probability: float) -> None:
    """A row takes part in two steps that follow each other as often as if they knew nothing of each other."""
    again = (taken[:, 1:] & taken[:, :-1]).reshape(-1, taken.shape[2])
    assert_binomial(again.sum(axis=0), len(again), probability**2)


@pytest.mark.parametrize(("name", "plan"), of_sampling(Poisson))
@pytest.mark.one_in(18)
def test_poisson_rows_take_part_independently(name: str, plan: Plan) -> None:
    [event] = plan.events
    assert isinstance(event.sampling, Poisson)
    probability = event.sampling.sampling_probability
    taken = batches_of(plan, -(-STEPS // plan.iterations))
    steps = taken.reshape(-1, plan.dataset_size)
    assert_binomial(steps.sum(axis=0), len(steps), probability)
    assert_pairs_are_independent(steps, probability**2)
    assert_steps_are_independent(taken, probability)
    # A batch's size is binomial: its variance is what a batch of a fixed size or a shuffled one has not.
    sizes = steps.sum(axis=1)
    assert np.var(sizes) == pytest.approx(plan.dataset_size * probability * (1.0 - probability), rel=0.2)


@pytest.mark.parametrize(("name", "plan"), of_sampling(TruncatedPoisson))
@pytest.mark.one_in(12)
def test_large_poisson_batches_keep_a_random_subset(name: str, plan: Plan) -> None:
    [event] = plan.events
    assert isinstance(event.sampling, TruncatedPoisson)
    places, probability, largest = (
        event.sampling.dataset_size,
        event.sampling.sampling_probability,
        event.sampling.max_batch_size,
    )
    assert places == plan.dataset_size * (2 if event.sampling.truncation == "random_slots" else 1)
    taken = batches_of(plan, -(-STEPS // plan.iterations), places)
    steps = taken.reshape(-1, places)
    law = stats.binom(places, probability)
    sizes = np.arange(places + 1)
    kept = float(np.sum(law.pmf(sizes) * np.minimum(sizes, largest)))
    assert_binomial(steps.sum(axis=0), len(steps), kept / places)
    assert_binomial((steps.sum(axis=1) == largest).sum(keepdims=True), len(steps), float(law.sf(largest - 1)))
    assert steps.sum(axis=1).max() == largest
    pairs = float(np.sum(law.pmf(sizes) * np.minimum(sizes, largest) * np.maximum(np.minimum(sizes, largest) - 1, 0)))
    assert_pairs_are_independent(steps, pairs / (places * (places - 1)))
    assert_steps_are_independent(taken, kept / places)


@pytest.mark.parametrize(("name", "plan"), of_sampling(WithoutReplacement))
@pytest.mark.one_in(12)
def test_batches_of_a_fixed_size_are_alike_likely(name: str, plan: Plan) -> None:
    [event] = plan.events
    assert isinstance(event.sampling, WithoutReplacement)
    size, records = event.sampling.batch_size, plan.dataset_size
    taken = batches_of(plan, -(-STEPS // plan.iterations))
    steps = taken.reshape(-1, records)
    assert set(steps.sum(axis=1).tolist()) == {size}
    assert_binomial(steps.sum(axis=0), len(steps), size / records)
    assert_pairs_are_independent(steps, size * (size - 1) / (records * (records - 1)))
    assert_steps_are_independent(taken, size / records)


@pytest.mark.parametrize(("name", "plan"), of_sampling(FullBatch))
def test_full_batches_are_everybody(name: str, plan: Plan) -> None:
    assert batches_of(plan, 2).all()


@pytest.mark.parametrize(("name", "plan"), of_sampling(DisjointBatches))
@pytest.mark.one_in(16)
def test_disjoint_batches_have_every_row_once_at_most_in_steps_alike_likely(name: str, plan: Plan) -> None:
    [phase] = plan.phases
    assert isinstance(phase, Phase)
    assert isinstance(phase.event.sampling, DisjointBatches)
    runs, steps = RUNS, plan.iterations
    taken = batches_of(plan, runs)
    by_position = phase.event.sampling.assignment == "by_position"
    times = taken.sum(axis=1)
    assert times.max() == 1
    # Batches that are cut may leave rows over; where each row draws its batch, none is.
    assert times.min() == (0 if by_position and steps * phase.divisor < plan.dataset_size else 1)
    share = phase.divisor / plan.dataset_size if by_position else 1.0 / steps
    for step in range(steps):
        assert_binomial(taken[:, step].sum(axis=0), runs, share)
    sizes = taken.sum(axis=2)
    if by_position:
        assert set(sizes.ravel().tolist()) == {phase.divisor}
    else:
        # Each row draws for itself: sizes are those of a multinomial law.
        assert np.var(sizes) == pytest.approx(plan.dataset_size * share * (1.0 - share), rel=0.2)


@pytest.mark.parametrize(("name", "plan"), of_sampling(RandomAllocation))
@pytest.mark.one_in(8)
def test_allocated_rows_draw_a_step_of_every_epoch_for_themselves(name: str, plan: Plan) -> None:
    [event] = plan.events
    assert isinstance(event.sampling, RandomAllocation)
    bins, runs = event.sampling.num_bins, RUNS
    assert bins < event.count < 2 * bins, "a whole epoch and a part of one"
    taken = batches_of(plan, runs)
    first, second = taken[:, :bins], taken[:, bins:]
    assert np.all(first.sum(axis=1) == 1)
    assert second.sum(axis=1).max() == 1
    for step in range(event.count):
        assert_binomial(taken[:, step].sum(axis=0), runs, 1.0 / bins)
    assert_pairs_are_independent(taken.reshape(-1, plan.dataset_size), 1.0 / bins**2)
    # Whoever was in the first step of an epoch is in that of the next one as often as anybody else.
    assert_binomial((first[:, 0] & second[:, 0]).sum(axis=0), runs, 1.0 / bins**2)
    # Dealt out from a permutation, batches would have one size.
    share = 1.0 / bins
    assert np.var(taken.sum(axis=2)) == pytest.approx(plan.dataset_size * share * (1.0 - share), rel=0.2)


@pytest.mark.parametrize(("name", "plan"), of_sampling(ShuffledEpochs))
@pytest.mark.one_in(16)
def test_shuffled_rows_are_dealt_out_anew_in_every_epoch(name: str, plan: Plan) -> None:
    [event] = plan.events
    assert isinstance(event.sampling, ShuffledEpochs)
    batches, runs = event.sampling.steps_per_epoch, RUNS
    taken = batches_of(plan, runs)
    assert np.all(taken[:, :batches].sum(axis=1) == 1)
    assert set(taken.sum(axis=2).ravel().tolist()) == {plan.dataset_size // batches}
    for step in range(event.count):
        assert_binomial(taken[:, step].sum(axis=0), runs, 1.0 / batches)
    assert_binomial((taken[:, 0] & taken[:, batches]).sum(axis=0), runs, 1.0 / batches**2)


@pytest.mark.parametrize(("name", "plan"), of_sampling(CyclicPoisson))
@pytest.mark.one_in(8)
def test_rows_are_drawn_at_the_turn_of_their_group_alone(name: str, plan: Plan) -> None:
    """Two steps of a row are a whole number of cycles apart: noise that reaches over a cycle is charged for that."""
    [event] = plan.events
    assert isinstance(event.sampling, CyclicPoisson)
    groups, rate, runs = event.sampling.cycle_length, event.sampling.sampling_probability, RUNS
    assert 2 * groups < event.count
    taken = batches_of(plan, runs)
    turns = np.stack([taken[:, turn::groups].any(axis=1) for turn in range(groups)])
    assert turns.sum(axis=0).max() == 1, "a row has one group for the whole run"
    for step in range(event.count):
        assert_binomial(taken[:, step].sum(axis=0), runs, rate / groups)
    assert_binomial((taken[:, 0] & taken[:, groups]).sum(axis=0), runs, rate**2 / groups)
    assert_binomial((taken[:, 0] & taken[:, groups] & taken[:, 2 * groups]).sum(axis=0), runs, rate**3 / groups)


@pytest.mark.parametrize(("name", "plan"), of_sampling(FixedOrderEpochs))
@pytest.mark.one_in(8)
def test_every_epoch_has_the_same_batches_in_the_same_order(name: str, plan: Plan) -> None:
    [event] = plan.events
    assert isinstance(event.sampling, FixedOrderEpochs)
    batches, runs = event.sampling.steps_per_epoch, RUNS
    assert batches < event.count
    taken = batches_of(plan, runs)
    assert np.all(taken[:, :batches].sum(axis=1) == 1)
    np.testing.assert_array_equal(taken[:, batches:], taken[:, : event.count - batches])
    for step in range(batches):
        assert_binomial(taken[:, step].sum(axis=0), runs, 1.0 / batches)


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("name", "plan"), [case for case in plans() if is_gradient_steps(case.values[1])])
def test_places_are_drawn_whatever_is_in_them(name: str, plan: Plan) -> None:
    """Nothing is drawn from the realised number of rows; schemes of a fixed size never read beyond the declared one."""
    features, labels = records_of(plan)
    every, fewer = RecordingStreams(3), RecordingStreams(3)
    run(plan, model(), features, labels, streams=every)
    run(plan, model(), features[:-4], labels[:-4], streams=fewer)
    sampling = plan.events[0].sampling
    np.testing.assert_equal(every.drawn.batches, fewer.drawn.batches)
    more = RecordingStreams(3)
    capacity = 2 * plan.dataset_size
    run(plan, model(), np.vstack([features] * 2), np.tile(labels, 2), streams=more, capacity=capacity)
    fixed = isinstance(sampling, WithoutReplacement | TruncatedPoisson | ShuffledEpochs | FixedOrderEpochs)
    if getattr(sampling, "truncation", "") == "random_slots":
        assert capacity > max(batch.max() for batch in more.drawn.batches) >= plan.dataset_size
    elif fixed or getattr(sampling, "assignment", "") == "by_position":
        assert max(batch.max() for batch in more.drawn.batches) < plan.dataset_size
