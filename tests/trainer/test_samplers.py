"""The sampling that was charged is the sampling that runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from accounting.errors import InvalidValue, Unsupported
from accounting.events import DisjointBatches, FullBatch, Poisson, Sampling, ShuffledEpochs, WithoutReplacement
from trainer.samplers import (
    DisjointBatchesByPosition,
    DisjointBatchesIndependent,
    FullBatchSampler,
    PoissonSampler,
    Sampler,
    WithoutReplacementSampler,
    sampler_for,
)
from trainer.streams import random_streams

STEPS = 4000


class GivenWords:
    """A stream of chosen 64-bit words, in place of a random one."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def random_raw(self, size: int) -> np.ndarray:
        drawn, self._words = self._words[:size], self._words[size:]
        assert len(drawn) == size
        return np.array(drawn, dtype=np.uint64)


def inclusions(rows: int, probability: float, steps: int, seed: int) -> np.ndarray:
    sampler = PoissonSampler(rows, probability, random_streams(seed).sampling)
    taken = np.zeros((steps, rows), dtype=bool)
    for step in taken:
        step[sampler.draw()] = True
    return taken


@pytest.mark.parametrize("probability", [0.3, 0.017, 2.0**-16, 3e-5, 1.0 - 2.0**-20, 1.0, 1e-300, math.pi / 4])
def test_realised_probability_is_not_above_the_charged(probability: float) -> None:
    """Four rows whose variates are the last one below the threshold, the threshold, 0 and the largest."""
    threshold = math.floor(probability * 2**53)
    variates = [max(threshold - 1, 0), min(threshold, 2**53 - 1), 0, 2**53 - 1]
    leading = sum((u >> 37) << (16 * i) for i, u in enumerate(variates))
    tied = [u for u in variates if u >> 37 == threshold >> 37]
    stream = GivenWords(leading, *[(u & (2**37 - 1)) << 27 for u in tied])
    taken = PoissonSampler(4, probability, stream).draw()
    assert taken.tolist() == [i for i, u in enumerate(variates) if u < threshold]
    assert threshold / 2**53 <= probability


@pytest.mark.parametrize(("rows", "probability"), [(200, 0.05), (37, 0.5), (1000, 0.0017)])
def test_batch_sizes_are_binomial(rows: int, probability: float) -> None:
    sizes = inclusions(rows, probability, STEPS, seed=31).sum(axis=1)
    support = np.arange(rows + 1)
    expected = stats.binom.pmf(support, rows, probability) * STEPS
    common = expected >= 8
    observed = np.bincount(sizes, minlength=rows + 1)
    counts = np.append(observed[common], observed[~common].sum())
    means = np.append(expected[common], expected[~common].sum())
    assert stats.chisquare(counts, means).pvalue > 1e-3


def test_inclusions_are_independent() -> None:
    taken = inclusions(40, 0.25, 20_000, seed=37).astype(np.float64)
    assert abs(taken.mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / taken.size)
    between_rows = np.asarray(np.corrcoef(taken.T))[np.triu_indices(40, 1)]
    between_steps = [np.asarray(np.corrcoef(taken[:-1, i], taken[1:, i]))[0, 1] for i in range(40)]
    for correlations in (between_rows, np.array(between_steps)):
        assert stats.kstest(correlations * math.sqrt(20_000), "norm").pvalue > 1e-3


def test_batches_may_be_empty_or_whole() -> None:
    assert PoissonSampler(50, 1e-12, random_streams(1).sampling).draw().size == 0
    assert PoissonSampler(0, 0.5, random_streams(1).sampling).draw().size == 0
    whole = PoissonSampler(50, 1.0, random_streams(1).sampling).draw()
    assert whole.tolist() == list(range(50))


def sampler(
    sampling: Sampling, *, rows: int = 60, steps: int = 4, divisor: int = 10, size: int = 50, seed: int = 1
) -> Sampler:
    return sampler_for(sampling, steps, divisor, size, np.arange(rows), random_streams(seed).sampling)


def test_the_sampler_is_the_one_that_was_charged() -> None:
    assert isinstance(sampler(FullBatch()), FullBatchSampler)
    assert isinstance(sampler(Poisson(0.5)), PoissonSampler)
    assert isinstance(sampler(WithoutReplacement(10, 50)), WithoutReplacementSampler)
    assert isinstance(sampler(DisjointBatches("by_position")), DisjointBatchesByPosition)
    assert isinstance(sampler(DisjointBatches("independent")), DisjointBatchesIndependent)
    with pytest.raises(Unsupported, match="full_batch, poisson, without_replacement or disjoint_batches"):
        sampler(ShuffledEpochs(4))


@pytest.mark.parametrize("sampling", [WithoutReplacement(10, 50), DisjointBatches("by_position")])
@pytest.mark.parametrize("rows", [0, 7, 50, 80])
def test_schemes_of_a_fixed_size_draw_from_the_declared_slots(sampling: Sampling, rows: int) -> None:
    """A slot without a row is empty, a row without a slot is never drawn, and the draws ignore how many there are."""
    few, many = sampler(sampling, rows=rows), sampler(sampling, rows=1000)
    for _ in range(4):
        drawn, slots = few.draw(), many.draw()
        assert isinstance(slots, np.ndarray)
        assert slots.size == 10
        assert slots.max() < 50
        np.testing.assert_array_equal(drawn, slots[slots < rows])


def test_rows_are_found_where_they_stand() -> None:
    positions = np.random.default_rng(1).permutation(30)
    one = sampler_for(WithoutReplacement(20, 30), 1, 20, 30, np.arange(30), random_streams(1).sampling).draw()
    other = sampler_for(WithoutReplacement(20, 30), 1, 20, 30, positions, random_streams(1).sampling).draw()
    assert other.tolist() == sorted(positions[one])


def test_batches_of_slots_are_alike_likely() -> None:
    """All pairs out of six, by a chi-square test; and no slot is drawn twice in a step."""
    drawing = sampler(WithoutReplacement(2, 6), rows=6, size=6)
    counts = np.zeros((6, 6))
    for _ in range(15_000):
        one, other = drawing.draw()
        counts[one, other] += 1
    assert stats.chisquare(counts[np.triu_indices(6, 1)]).pvalue > 1e-3
    assert counts.sum() == counts[np.triu_indices(6, 1)].sum()


def test_slots_take_part_once_at_most_and_in_every_step_alike_often() -> None:
    where = np.zeros((12, 3))
    for seed in range(3000):
        drawing = sampler(DisjointBatches("by_position"), rows=12, steps=3, divisor=4, size=12, seed=seed)
        batches = [drawing.draw() for _ in range(3)]
        assert sorted(row for batch in batches for row in batch) == list(range(12))
        for step, batch in enumerate(batches):
            where[batch, step] += 1
    assert stats.chisquare(where.ravel()).pvalue > 1e-3


def test_rows_draw_their_step() -> None:
    """Independently of each other: how many take part in a step is binomial."""
    sizes = []
    for seed in range(2000):
        drawing = sampler(DisjointBatches("independent"), rows=9, steps=3, seed=seed)
        batches = [drawing.draw() for _ in range(3)]
        assert sorted(row for batch in batches for row in batch) == list(range(9))
        sizes.append(len(batches[0]))
    expected = stats.binom.pmf(np.arange(10), 9, 1 / 3) * 2000
    counts = np.bincount(sizes, minlength=10)
    merged = np.append(counts[:6], counts[6:].sum()), np.append(expected[:6], expected[6:].sum())
    assert stats.chisquare(*merged).pvalue > 1e-3


def test_disjoint_batches_that_need_more_records_than_there_are_are_refused() -> None:
    with pytest.raises(InvalidValue, match="need 60 records; dataset_size is 50"):
        sampler(DisjointBatches("by_position"), steps=6)


@pytest.mark.parametrize(
    "sampling",
    [FullBatch(), Poisson(0.3), WithoutReplacement(10, 50), *map(DisjointBatches, ("by_position", "independent"))],
)
def test_restored_samplers_go_on(sampling: Sampling) -> None:
    stream, another = random_streams(1).sampling, random_streams(2).sampling
    one, other = (sampler_for(sampling, 5, 10, 50, np.arange(60), source) for source in (stream, another))
    one.draw()
    one.draw()
    other.restore(one.state())
    another.state = stream.state
    for _ in range(3):
        np.testing.assert_array_equal(other.draw(), one.draw())
