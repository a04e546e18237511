"""Within an epoch each slot takes part as often as was charged, and epochs are independent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from accounting.events import (
    Blocks,
    DisjointBatches,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
)
from tests.trainer.samplers.drawing import sampler, steps_of
from trainer.samplers.padding import padded_size


def test_slots_take_part_once_at_most_and_in_every_step_alike_often() -> None:
    where = np.zeros((12, 3))
    for seed in range(3000):
        drawing = sampler(DisjointBatches("by_position"), rows=12, steps=3, divisor=4, size=12, seed=seed)
        batches = [drawing.draw() for _ in range(3)]
        assert sorted(row for batch in batches for row in batch) == list(range(12))
        for step, batch in enumerate(batches):
            where[batch, step] += 1
    assert stats.chisquare(where.ravel()).pvalue > 1e-3


def test_slots_draw_their_step() -> None:
    """Independently of each other: how many take part in a step is binomial."""
    sizes = []
    for seed in range(2000):
        drawing = sampler(DisjointBatches("independent"), rows=9, steps=3, seed=seed)
        batches = [batch[batch < 9] for batch in (drawing.draw() for _ in range(3))]
        assert sorted(row for batch in batches for row in batch) == list(range(9))
        sizes.append(len(batches[0]))
    expected = stats.binom.pmf(np.arange(10), 9, 1 / 3) * 2000
    counts = np.bincount(sizes, minlength=10)
    merged = np.append(counts[:6], counts[6:].sum()), np.append(expected[:6], expected[6:].sum())
    assert stats.chisquare(*merged).pvalue > 1e-3


@pytest.mark.parametrize("sampling", [DisjointBatches("independent"), RandomAllocation(20, 1)])
def test_batches_that_slots_draw_are_padded_alike(sampling: Sampling) -> None:
    """As Poisson batches are: each has the size that is exceeded with probability 2^-60 in all steps together."""
    for seed in range(5):
        drawing = sampler(sampling, rows=1000, steps=20, seed=seed)
        assert {np.asarray(drawing.draw()).size for _ in range(20)} == {padded_size(1000, 0.05, 20)}


EPOCHS, BINS, ROWS = 3000, 5, 20


@pytest.fixture(scope="module")
def allocated() -> np.ndarray:
    """The bin of each slot in each epoch: shape (EPOCHS, ROWS)."""
    taken = steps_of(RandomAllocation(BINS, 1), rows=ROWS, steps=EPOCHS * BINS).reshape(EPOCHS, BINS, ROWS)
    assert np.all(taken.sum(axis=1) == 1), "each slot is in one step of every epoch"
    return np.argmax(taken, axis=1)


def test_allocated_slots_are_in_every_step_alike_often(allocated: np.ndarray) -> None:
    counts = np.stack([np.bincount(allocated[:, slot], minlength=BINS) for slot in range(ROWS)])
    assert stats.chisquare(counts, EPOCHS / BINS, axis=1).pvalue.min() > 1e-3 / ROWS


def test_allocated_slots_are_independent_of_each_other_and_of_earlier_epochs(allocated: np.ndarray) -> None:
    """All pairs of bins are alike likely: of two slots in one epoch, and of one slot in two epochs."""
    between_slots = [(allocated[:, one], allocated[:, one + 1]) for one in range(ROWS - 1)]
    between_epochs = [(allocated[:-lag, slot], allocated[lag:, slot]) for slot in range(ROWS) for lag in (1, 2)]
    for pairs in (between_slots, between_epochs):
        values = [stats.chisquare(np.bincount(a * BINS + b, minlength=BINS * BINS)).pvalue for a, b in pairs]
        assert min(values) > 1e-3 / len(values)


def test_loads_of_allocated_batches_are_binomial(allocated: np.ndarray) -> None:
    """A permutation that is dealt out has loads that do not vary: this is what catches it."""
    loads = (allocated == 0).sum(axis=1)
    expected = stats.binom.pmf(np.arange(ROWS + 1), ROWS, 1 / BINS) * EPOCHS
    common = expected >= 8
    counts = np.bincount(loads, minlength=ROWS + 1)
    observed = np.append(counts[common], counts[~common].sum())
    assert stats.chisquare(observed, np.append(expected[common], expected[~common].sum())).pvalue > 1e-3


def test_slots_draw_a_step_of_every_block() -> None:
    """Seven steps in two blocks, of three and of four, and then again; a phase of ten steps ends within the third."""
    runs = np.stack([steps_of(Blocks(7, 2), rows=30, steps=10, seed=seed) for seed in range(400)])
    for start, end in ((0, 3), (3, 7), (7, 10)):
        block = runs[:, start:end]
        assert np.all(block.sum(axis=1) == 1)
        counts = block.sum(axis=(0, 2))
        assert stats.chisquare(counts).pvalue > 1e-3
    load = runs[:, 3].sum(axis=1)
    assert np.var(load) == pytest.approx(30 * 0.25 * 0.75, rel=0.3), "dealt out, it would not vary"
    both = int((runs[:, 0] & runs[:, 3]).sum())
    assert stats.binomtest(both, runs[:, 0].size, 1 / 12).pvalue > 1e-3


def test_an_allocation_that_is_cut_short_leaves_slots_out() -> None:
    """A phase that ends after two of five steps: two fifths of the slots have had their step."""
    seen = np.array([steps_of(RandomAllocation(5, 1), rows=50, steps=2, seed=seed).sum() for seed in range(200)])
    assert abs(seen.mean() - 20.0) < 5 * math.sqrt(50 * 0.4 * 0.6 / 200)


def test_shuffled_batches_have_public_sizes_and_every_place_once_an_epoch() -> None:
    taken = steps_of(ShuffledEpochs(3), rows=11, steps=3 * 2000).reshape(2000, 3, 11)
    assert np.all(taken.sum(axis=1) == 1)
    assert np.unique(taken.sum(axis=2), axis=0).tolist() == [[3, 4, 4]]
    places = taken.sum(axis=0)
    assert stats.chisquare(places, np.array([[3], [4], [4]]) / 11 * 2000, axis=0).pvalue.min() > 1e-3 / 11
    again = (taken[:-1, 0] & taken[1:, 0]).mean()
    assert again == pytest.approx((3 / 11) ** 2, abs=5 * math.sqrt((3 / 11) ** 2 / taken[1:, 0].size))
