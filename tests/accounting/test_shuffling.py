"""Shuffled epochs from below, against published numbers, samples of the outcomes, and what they are charged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, FullBatch, Gaussian, RandomAllocation, ShuffledEpochs
from accounting.losses.largest_coordinate import LargestCoordinateLoss
from accounting.relations import NeighboringRelation
from accounting.shuffling import about_shuffling

SPECIAL = NeighboringRelation.REPLACE_SPECIAL
soak = pytest.mark.soak


def loop(noise: float, batches: int, count: int) -> Event:
    return Event(Gaussian(noise), ShuffledEpochs(batches), count)


@pytest.mark.parametrize(
    ("noise", "batches", "epochs", "delta", "attained", "allocated"),
    [
        (1.0, 1000, 1, 1e-6, 3.72388, 0.171729),
        (2.0, 100, 50, 1e-5, 1.9108, 1.4564),
        pytest.param(0.5, 10_000, 1, 1e-6, 10.99478, 1.942, marks=soak),
    ],
)
def test_published_settings(
    noise: float, batches: int, epochs: int, delta: float, attained: float, allocated: float
) -> None:
    """The attained numbers rounded their losses down, so that ours are no less, up to the cells."""
    events = [loop(noise, batches, batches * epochs)]
    found = about_shuffling(events, SPECIAL, delta)
    assert found is not None
    assert found.allocated is not None
    assert attained - 2e-4 <= found.attained <= epsilon_for_delta(events, SPECIAL, delta).value.upper
    assert found.attained == pytest.approx(attained, abs=6e-3)
    assert found.allocated.value.upper == pytest.approx(allocated, abs=2e-3)
    assert found.poisson_is_refuted


def test_the_larger_of_both_ways_counts() -> None:
    """With much noise the others had better be nothing: the pair of random allocation, exactly."""
    events = [loop(8.0, 10, 40)]
    found = about_shuffling(events, SPECIAL, 1e-5)
    assert found is not None
    assert found.allocated is not None
    assert found.attained == found.allocated.value.lower
    direct = epsilon_for_delta([Event(Gaussian(8.0), RandomAllocation(10, 1), 40)], SPECIAL, 1e-5)
    assert found.allocated.value == direct.value


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_cells_of_the_largest_step_against_samples(epsilon: float) -> None:
    """Hockey sticks of the largest coordinate itself are no less, and hardly more."""
    noise, batches, draws = 0.9, 12, 400_000
    rng = np.random.default_rng(5)
    z = noise * rng.standard_normal((draws, batches))
    z[:, 0] += 2.0
    x = z.max(axis=1)
    gap = (x - 2.0) / noise, (x - 1.0) / noise
    others = (batches - 1) * np.exp(-0.5 * (x / noise) ** 2)

    densities = [np.exp(-0.5 * v * v) * ndtr(x / noise) + others * ndtr(v) for v in gap]
    losses = np.log(densities[0] / densities[1])
    terms = np.maximum(-np.expm1(epsilon - losses), 0.0)
    error = 5.0 * float(terms.std()) / math.sqrt(draws)
    ours = float(LargestCoordinateLoss(noise, batches).excess(np.array([epsilon]), remove=True)[0])
    assert terms.mean() - error <= ours * 1.001 <= (terms.mean() + error) * 1.001


def test_begun_passes_count_by_their_steps() -> None:
    """Half a pass is attained as a part of an allocation; a list without shuffled epochs has nothing to say."""
    half = about_shuffling([loop(1.0, 20, 10)], SPECIAL, 1e-5)
    whole = about_shuffling([loop(1.0, 20, 20)], SPECIAL, 1e-5)
    assert half is not None
    assert whole is not None
    assert 0.0 < half.attained < whole.attained
    assert about_shuffling([Event(Gaussian(1.0), FullBatch(), 3)], SPECIAL, 1e-5) is None
    assert about_shuffling([loop(1.0, 1, 3)], SPECIAL, 1e-5) is None


def test_other_events_and_replacement() -> None:
    events = [loop(2.0, 30, 60), Event(Gaussian(20.0), FullBatch(), 9)]
    alone = about_shuffling(events[:1], SPECIAL, 1e-5)
    both = about_shuffling(events, SPECIAL, 1e-5)
    replaced = about_shuffling(events, NeighboringRelation.REPLACE_ONE, 1e-5)
    assert alone is not None
    assert both is not None
    assert replaced is not None
    assert alone.attained < both.attained <= epsilon_for_delta(events, SPECIAL, 1e-5).value.upper
    assert replaced.allocated is None
    assert replaced.poisson is None
    assert not replaced.poisson_is_refuted
    assert both.attained <= replaced.attained
