"""The sampling that was charged is the sampling that runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from accounting.errors import Unsupported
from accounting.events import FullBatch, Poisson
from trainer.noise import random_streams
from trainer.samplers import FullBatchSampler, PoissonSampler, sampler_for

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


def test_the_sampler_is_the_one_that_was_charged() -> None:
    stream = random_streams(1).sampling
    assert isinstance(sampler_for(FullBatch(), 3, stream), FullBatchSampler)
    assert isinstance(sampler_for(Poisson(0.5), 3, stream), PoissonSampler)

    class Unknown:
        kind = "shuffled_epochs"

    with pytest.raises(Unsupported, match="full_batch or poisson"):
        sampler_for(Unknown(), 3, stream)  # type: ignore[arg-type]  # what a newer engine might charge
