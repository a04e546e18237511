"""Scores, against densities summed over every way in which a canary may have been drawn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from accounting.events import (
    Blocks,
    CyclicPoisson,
    DisjointBatches,
    Event,
    FixedOrderEpochs,
    FullBatch,
    Gaussian,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    WithoutReplacement,
)
from accounting.relations import NeighboringRelation
from calibrators.plan import Clip, Phase, Plan
from tests.trainer.plans import correlated_of
from trainer.audit.scores import (
    FIXED_BATCHES,
    FRESH_NOISE,
    LIKELIHOOD_RATIO,
    RELEASED_MODEL,
    TOTAL,
    Observation,
    scores,
)

STEPS = 4
SIGMA = 0.8


def plan_with(sampling: Sampling, relation: NeighboringRelation, steps: int = STEPS) -> Plan:
    phase = Phase(Event(Gaussian(SIGMA), sampling, steps), Clip(2.0), 3, 0.1)
    return Plan("dp_sgd", 8, relation, (phase,))


def density(column: np.ndarray, drawn: tuple[int, ...], level: float) -> float:
    return math.prod(math.exp(-((y - level * b) ** 2) / (2 * SIGMA**2)) for y, b in zip(column, drawn, strict=True))


def chance(drawn: tuple[int, ...], sampling: Sampling) -> float:
    """Probability that a record takes part in exactly these steps."""
    if isinstance(sampling, FullBatch):
        return float(all(drawn))
    if isinstance(sampling, DisjointBatches):
        return (sum(drawn) == 1) / len(drawn)
    if isinstance(sampling, Blocks):
        assert (sampling.num_bins, len(drawn)) == (3, 4), "blocks of one and of two steps, and the first one again"
        return (drawn[0] == drawn[3] == 1 == drawn[1] + drawn[2]) / 2
    if isinstance(sampling, RandomAllocation | ShuffledEpochs):
        bins = sampling.num_bins if isinstance(sampling, RandomAllocation) else sampling.steps_per_epoch
        epochs = [drawn[start : start + bins] for start in range(0, len(drawn), bins)]
        chances = {0: lambda steps: 1.0 - steps / bins, 1: lambda _: 1.0 / bins}
        return math.prod(chances.get(sum(each), lambda _: 0.0)(len(each)) for each in epochs)
    assert isinstance(sampling, Poisson | WithoutReplacement)
    rate = sampling.sampling_probability
    return math.prod(rate if b else 1.0 - rate for b in drawn)


def expected_ratio(column: np.ndarray, sampling: Sampling, other: float) -> float:
    patterns = list(itertools.product((0, 1), repeat=len(column)))
    member = sum(chance(p, sampling) * density(column, p, 1.0) for p in patterns)
    stand_in = sum(chance(p, sampling) * density(column, p, other) for p in patterns)
    return math.log(member / stand_in)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
@pytest.mark.parametrize(
    "sampling",
    [
        FullBatch(),
        Poisson(0.3),
        Poisson(1.0),
        WithoutReplacement(2, 8),
        DisjointBatches("independent"),
        RandomAllocation(2, 1),
        RandomAllocation(3, 1),
        Blocks(3, 2),
        ShuffledEpochs(3),
        ShuffledEpochs(7),
    ],
)
def test_the_likelihood_ratio_is_that_of_the_claim(sampling: Sampling, relation: NeighboringRelation) -> None:
    sums = np.random.default_rng(1).normal(0.3, 1.0, (STEPS, 5))
    found = scores(plan_with(sampling, relation), Observation(np.zeros(5), sums))[LIKELIHOOD_RATIO]
    other = -1.0 if relation is NeighboringRelation.REPLACE_ONE else 0.0
    np.testing.assert_allclose(found, [expected_ratio(sums[:, i], sampling, other) for i in range(5)], rtol=1e-10)


def test_phases_add_their_ratios() -> None:
    sums = np.random.default_rng(2).normal(size=(2 * STEPS, 3))
    first, second = (plan_with(s, NeighboringRelation.ADD_OR_REMOVE_ONE) for s in (Poisson(0.3), FullBatch()))
    both = Plan("dp_sgd", 8, first.neighboring_relation, (*first.phases, *second.phases))
    whole = scores(both, Observation(np.zeros(3), sums))
    parts = [
        scores(plan, Observation(np.zeros(3), part))[LIKELIHOOD_RATIO]
        for plan, part in ((first, sums[:STEPS]), (second, sums[STEPS:]))
    ]
    np.testing.assert_allclose(whole[LIKELIHOOD_RATIO], parts[0] + parts[1], rtol=1e-12)
    np.testing.assert_allclose(whole[TOTAL], sums.sum(axis=0) / SIGMA**2, rtol=1e-12)


def test_fixed_batches_are_scored_by_the_ratio_of_one_place_in_every_epoch() -> None:
    """With probability 1/2 an epoch has two steps: a canary is in steps 0 and 2, or in steps 1 and 3."""
    sums = np.random.default_rng(3).normal(size=(STEPS, 3))
    found = scores(plan_with(Poisson(0.5), NeighboringRelation.ADD_OR_REMOVE_ONE), Observation(np.zeros(3), sums))
    for i in range(3):
        member = 0.5 * (density(sums[:, i], (1, 0, 1, 0), 1.0) + density(sums[:, i], (0, 1, 0, 1), 1.0))
        expected = math.log(member / density(sums[:, i], (0, 0, 0, 0), 1.0))
        assert found[FIXED_BATCHES][i] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
@pytest.mark.parametrize(
    "sampling", [CyclicPoisson(0.3, 3, "independent"), CyclicPoisson(1.0, 4, "by_position"), FixedOrderEpochs(3)]
)
def test_correlated_noise_is_whitened_and_steps_of_other_groups_do_not_count(
    sampling: Sampling, relation: NeighboringRelation
) -> None:
    """By the densities of y = C x, over all coins of a canary whose turns are known."""
    coefficients, steps = (0.75, 0.5, 0.25), 8
    phase = correlated_of(*coefficients, noise_multiplier=SIGMA, sampling=sampling, steps=steps)
    plan = Plan("dp_bandmf", 8, relation, (phase,))
    rate = sampling.sampling_probability if isinstance(sampling, CyclicPoisson) else 1.0
    cycle = sampling.cycle_length if isinstance(sampling, CyclicPoisson) else 3
    dense = sum(c * np.eye(steps, k=-lag) for lag, c in enumerate(coefficients))
    sums = np.random.default_rng(4).normal(0.2, 1.0, (steps, cycle))
    turns = np.arange(steps)[:, None] % cycle == np.arange(cycle)
    found = scores(plan, Observation(np.zeros(cycle), sums, turns))

    def mean_density(column: np.ndarray, matrix: np.ndarray, own: np.ndarray, level: float) -> float:
        total = 0.0
        for coins in itertools.product((0, 1), repeat=own.size):
            moved = np.zeros(steps)
            moved[own] = level * np.array(coins)
            chance = math.prod(rate if coin else 1.0 - rate for coin in coins)
            total += chance * math.exp(-float(np.sum((matrix @ (column - moved)) ** 2)) / (2.0 * SIGMA**2))
        return total

    other = -1.0 if relation is NeighboringRelation.REPLACE_ONE else 0.0
    for i in range(cycle):
        own = np.flatnonzero(turns[:, i])
        for name, matrix in ((LIKELIHOOD_RATIO, dense), (FRESH_NOISE, np.eye(steps))):
            with_it, without = (mean_density(sums[:, i], matrix, own, level) for level in (1.0, other))
            assert found[name][i] == pytest.approx(math.log(with_it / without), rel=1e-9, abs=1e-12)
    expected = (1.0 - other) * np.sum(dense.T @ dense @ sums, axis=0) / SIGMA**2
    np.testing.assert_allclose(found[TOTAL], expected, rtol=1e-12)


def test_whoever_sees_the_model_alone_scores_by_it() -> None:
    found = scores(plan_with(FullBatch(), NeighboringRelation.REPLACE_ONE), Observation(np.array([0.5, 2.0]), None))
    assert {name: values.tolist() for name, values in found.items()} == {RELEASED_MODEL: [0.5, 2.0]}


def test_scores_stay_finite_for_the_smallest_noise() -> None:
    phase = Phase(Event(Gaussian(1e-3), Poisson(1e-6), 3), Clip(1.0), 3, 0.1)
    plan = Plan("dp_sgd", 8, NeighboringRelation.REPLACE_ONE, (phase,))
    for values in scores(plan, Observation(np.zeros(2), np.array([[1.0, -1.0]] * 3))).values():
        assert np.all(np.isfinite(values))
