"""What stands for a step where a group moves: noise on a grid, visible scales and selection, outcome by outcome."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.events import DiscreteGaussian, DiscreteLaplace, Event, Exponential, GaussianMixture
from accounting.groups import group_delta_for_epsilon, group_epsilon_for_delta
from accounting.relations import NeighboringRelation
from tests.accounting.references import mixture_delta

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE


def composed_delta(p: np.ndarray, q: np.ndarray, x: float) -> float:
    """Two equal steps, outcome by outcome."""
    return float(np.maximum(np.multiply.outer(p, p) - math.exp(x) * np.multiply.outer(q, q), 0.0).sum())


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE])
@pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian])
def test_noise_on_a_grid(kind: type[DiscreteLaplace | DiscreteGaussian], relation: NeighboringRelation) -> None:
    """exact: three records that agree, each half a unit of two grid steps; and no other move of theirs costs more."""
    noise, grid, size, x = 4.0, 0.5, 3, 1.1
    far = np.abs(np.arange(-500, 501)) * grid / noise
    law = np.exp(-far if kind is DiscreteLaplace else -0.5 * far**2)
    law /= law.sum()
    value = group_delta_for_epsilon([Event(kind(noise, grid), count=2)], relation, x, size).value
    farthest = size * round(relation.sensitivity / grid)
    moves = [composed_delta(law, np.roll(law, move), x) for move in range(farthest + 1)]
    assert max(moves) == moves[-1]
    assert value.lower <= moves[-1] * (1.0 + 1e-11)
    assert value.upper >= moves[-1] * (1.0 - 1e-11)
    assert value.width <= 1e-9 * value.upper


def test_more_grid_steps_than_are_told_apart() -> None:
    """Sound, and hardly above the continuous noise, below which no grid goes."""
    event = Event(DiscreteLaplace(40.0, 1e-4))
    for epsilon in (0.1, 0.3, 0.45):
        value = group_delta_for_epsilon([event], REPLACE, epsilon, 10).value
        continuous = -math.expm1(0.5 * (epsilon - 0.5))
        assert value.lower <= continuous <= value.upper <= continuous * (1.0 + 1e-4)
    lawless = group_epsilon_for_delta([event], REPLACE, 0.0, 10).value
    assert lawless.upper == pytest.approx(0.5, rel=1e-12)


def test_selection_by_groups() -> None:
    """as_one_mechanism_for_selection: two candidates attain one step; no scores of five cost more in two."""
    epsilon, size, delta = 0.4, 3, 1e-3
    event = Event(Exponential(epsilon))
    assert group_epsilon_for_delta([event], REPLACE, delta, size) == epsilon_for_delta(
        [Event(Exponential(size * epsilon))], REPLACE, delta
    )
    for x in (0.0, 0.5, 1.1):
        value = group_delta_for_epsilon([event], REPLACE, x, size).value
        # Every record takes the first candidate one sensitivity down and the other one up.
        ahead = np.linspace(-8.0, 8.0, 4001)
        before, after = 1.0 / (1.0 + np.exp(-ahead)), 1.0 / (1.0 + np.exp(size * epsilon - ahead))
        attained = float(np.maximum(before - math.exp(x) * after, 0.0).max())
        assert value.lower <= attained * (1.0 + 1e-5)
        assert value.upper == pytest.approx(attained, rel=1e-4)
        assert value.upper >= attained * (1.0 - 1e-12)
    rng, x = np.random.default_rng(8), 0.9
    twice = group_delta_for_epsilon([replace(event, count=2)], REPLACE, x, size).value
    for _ in range(50):
        scores = rng.normal(size=5) * 3.0
        moved = scores + rng.choice([-1.0, 1.0], (size, 5)).sum(axis=0)
        p, q = (np.exp(0.5 * epsilon * (each - each.max())) for each in (scores, moved))
        assert composed_delta(p / p.sum(), q / q.sum(), x) <= twice.upper
    # The group chooses its second pair after the first outcome: losses t or t - range, then the best one step.
    span = size * epsilon

    def best_of_one(y: np.ndarray) -> np.ndarray:
        inside = np.expm1(0.5 * (np.clip(y, -span, span) - span)) ** 2 / -math.expm1(-span)
        return np.where(y < -span, -np.expm1(np.minimum(y, 0.0)), inside)

    t = np.linspace(0.0, span, 20_001)
    likely = (math.exp(span) - np.exp(t)) / math.expm1(span)
    adaptive = float((likely * best_of_one(x - t) + (1.0 - likely) * best_of_one(x - t + span)).max())
    assert twice.lower <= adaptive * (1.0 + 1e-6)
    assert twice.upper >= adaptive * (1.0 - 1e-9)


def test_noise_of_a_visible_scale() -> None:
    """exact: the drawn scale is seen, and in each of them the group moves the sum by its size."""
    branches = [(0.7, 30.0), (0.3, 12.0)]
    event = Event(GaussianMixture((0.7, 0.3), (30.0, 12.0)), count=6)
    value = group_delta_for_epsilon([event], REPLACE, 1.0, 4).value
    truth = float(mixture_delta(branches, 6, 8.0, 1.0))
    assert value.lower <= truth * (1.0 + 1e-9)
    assert value.upper >= truth * (1.0 - 1e-9)
    assert value.width <= 1e-5 * truth
