"""Steps that are independent of each other have the law that was charged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from accounting.events import (
    TruncatedPoisson,
    WithoutReplacement,
)
from tests.trainer.samplers.drawing import CUT, SLOTS, sampler
from trainer.samplers import (
    PoissonSampler,
    TruncatedPoissonSampler,
)
from trainer.streams import random_streams

STEPS = 4000


class GivenWords:
    """A stream of chosen 64-bit words, in place of a random one."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, size: int) -> np.ndarray:
        drawn, self._words = self._words[:size], self._words[size:]
        return np.array(drawn + [0] * (size - len(drawn)), dtype=np.uint64)


def inclusions(rows: int, probability: float, steps: int, seed: int) -> np.ndarray:
    sampler = PoissonSampler(rows, probability, steps, random_streams(seed).sampling)
    taken = np.zeros((steps, rows + 1), dtype=bool)
    for step in taken:
        step[sampler.draw()] = True
    return taken[:, :rows]


@pytest.mark.parametrize("probability", [0.3, 0.017, 2.0**-16, 3e-5, 1.0 - 2.0**-20, 1.0, 1e-300, math.pi / 4])
def test_realised_probability_is_not_above_the_charged(probability: float) -> None:
    """Four rows whose variates are the last one below the threshold, the threshold, 0 and the largest."""
    threshold = math.floor(probability * 2**53)
    variates = [max(threshold - 1, 0), min(threshold, 2**53 - 1), 0, 2**53 - 1]
    leading = sum((u >> 37) << (16 * i) for i, u in enumerate(variates))
    tied = [u for u in variates if u >> 37 == threshold >> 37]
    stream = GivenWords(leading, *[(u & (2**37 - 1)) << 27 for u in tied])
    taken = PoissonSampler(4, probability, 1, stream).draw()  # type: ignore[arg-type]
    assert taken[taken < 4].tolist() == [i for i, u in enumerate(variates) if u < threshold]
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
    assert set(PoissonSampler(50, 1e-12, 9, random_streams(1).sampling).draw().tolist()) == {50}
    whole = PoissonSampler(50, 1.0, 9, random_streams(1).sampling).draw()
    assert whole.tolist() == list(range(50))


def test_a_step_that_draws_too_many_takes_another_batch() -> None:
    """Its law stays exact: nothing is dropped, and only its time, with probability 2^-60, may show it."""
    sampler = PoissonSampler(50, 0.5, 3, random_streams(1).sampling)
    sampler._size = 7
    drawn = sampler.draw()
    assert drawn.size % 7 == 0
    assert drawn[drawn < 50].size > 7


def test_batches_of_slots_are_equally_likely() -> None:
    """All pairs out of six, by a chi-square test; and no slot is drawn twice in a step."""
    drawing = sampler(WithoutReplacement(2, 6), rows=6, size=6)
    counts = np.zeros((6, 6))
    for _ in range(15_000):
        one, other = sorted(drawing.draw())
        counts[one, other] += 1
    assert stats.chisquare(counts[np.triu_indices(6, 1)]).pvalue > 1e-3
    assert counts.sum() == counts[np.triu_indices(6, 1)].sum()


def test_a_cut_batch_is_a_uniform_subset_of_its_poisson_batch() -> None:
    """Beside what its coins say: of a batch of a > 12 places each is kept with probability 12 / a."""
    steps = 6000
    cut = sampler(CUT, rows=50, steps=steps)
    assert isinstance(cut, TruncatedPoissonSampler)
    whole, kept = np.zeros((steps, 51), dtype=bool), np.zeros((steps, 51), dtype=bool)
    draw = cut._coins.draw

    def watched() -> np.ndarray:
        drawn = draw()
        whole[step, drawn] = True
        return drawn

    cut._coins.draw = watched  # type: ignore[method-assign]
    for step in range(steps):
        batch = cut.draw()
        assert batch.size == 12, "padded to one size, whatever was drawn"
        kept[step, batch] = True
    whole, kept = whole[:, :50], kept[:, :50]
    assert np.all(whole | ~kept)
    np.testing.assert_array_equal(kept.sum(axis=1), np.minimum(whole.sum(axis=1), 12))
    chance = 12 / np.maximum(whole.sum(axis=1, keepdims=True), 12)
    large = whole & (chance < 1.0)
    excess = (kept & large).sum(axis=0) - (large * chance).sum(axis=0)
    spread = np.sqrt((large * chance * (1.0 - chance)).sum(axis=0))
    assert np.abs(excess / spread).max() < 4.5
    # Who is kept in one step has nothing to do with who is kept in the next.
    again = (kept[1:] & kept[:-1]).mean()
    assert again == pytest.approx(kept.mean() ** 2, abs=5 * math.sqrt(kept.mean() ** 2 / kept[1:].size))


def test_slots_are_cut_whether_or_not_they_hold_a_record() -> None:
    """Of 60 slots, each draws its coin, and each is as likely as any other to be among the 12 that are kept."""
    steps = 8000
    drawn = sampler(SLOTS, rows=60, steps=steps)
    taken = np.zeros((steps, 61), dtype=bool)
    for row in taken:
        batch = drawn.draw()
        assert isinstance(batch, np.ndarray)
        assert batch.size == 12, "padded to one size, whatever was drawn"
        row[batch] = True
    taken = taken[:, :60]
    law, sizes = stats.binom(60, 0.2), np.arange(61)
    rate = float(np.sum(law.pmf(sizes) * np.minimum(sizes, 12))) / 60
    spread = math.sqrt(steps * rate * (1.0 - rate))
    assert np.abs(taken.sum(axis=0) - steps * rate).max() < 4.5 * spread
    full = int((taken.sum(axis=1) == 12).sum())
    assert stats.binomtest(full, steps, float(law.sf(11))).pvalue > 1e-4


def test_equal_words_are_drawn_again() -> None:
    """Of three places two are kept; the first words of the last two are equal, and so are their last bits."""
    cut = TruncatedPoissonSampler(
        np.arange(3), TruncatedPoisson(1.0, 2, 3, truncation="random"), 1, GivenWords(0, *[0] * 3, 8, 4, 5, 9, 7, 3)
    )  # type: ignore[arg-type]
    assert cut.draw().tolist() == [2, 1]
