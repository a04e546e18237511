"""Canaries: what their rows are, and where one run holds independent trials."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accounting.events import (
    Blocks,
    DisjointBatches,
    Event,
    FullBatch,
    Gaussian,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    WithoutReplacement,
)
from accounting.relations import NeighboringRelation
from calibrators.geometry import Box, L2Ball
from calibrators.plan import Clip, Normalize, Phase, Plan
from calibrators.release import RandomIterate
from tests.trainer.plans import phase_of, plan_of
from trainer.audit.canaries import OPPOSED, ORTHOGONAL, dependence, largest_number_of_rows, rows

MEMBERS = np.array([True, False, True])


@pytest.mark.parametrize(
    ("relation", "levels"),
    [
        (NeighboringRelation.ADD_OR_REMOVE_ONE, [[1, 0, 0], [0, 0, 1]]),
        (NeighboringRelation.REPLACE_SPECIAL, [[1, 0, 0], [0, 0, 0], [0, 0, 1]]),
        (NeighboringRelation.REPLACE_ONE, [[1, 0, 0], [0, -1, 0], [0, 0, 1]]),
    ],
)
def test_two_sets_of_canaries_that_differ_in_one_coin_are_neighbours(
    relation: NeighboringRelation, levels: list[list[int]]
) -> None:
    plan = replace(plan_of("dp_sgd", phase_of(Clip(3.0))), neighboring_relation=relation)
    features = rows(plan, MEMBERS, ORTHOGONAL)
    np.testing.assert_array_equal(features / np.max(features), levels)
    assert np.max(features) > 1000 * 3.0


@pytest.mark.parametrize("bound", [Clip(1e-6), Clip(40.0), Normalize(0.0), Normalize(25.0)])
def test_opposed_canaries_outweigh_what_opposes_them_and_both_are_bounded(bound: Clip | Normalize) -> None:
    name = "dp_sgd" if isinstance(bound, Clip) else "dp_nsgd"
    other, canary = rows(plan_of(name, phase_of(bound)), np.array([True]), OPPOSED)[:, 0]
    contribution = bound.contribution_bound
    assert other < -100 * contribution
    assert canary > 100 * -other
    if isinstance(bound, Normalize):
        assert -other / (bound.regularizer - other) > 0.998


def with_sampling(sampling: Sampling) -> Plan:
    phase = Phase(Event(Gaussian(1.0), sampling, 2), Clip(1.0), 4, 0.5)
    return Plan("dp_sgd", 8, NeighboringRelation.ADD_OR_REMOVE_ONE, (phase,))


@pytest.mark.parametrize(
    "sampling", [FullBatch(), Poisson(0.1), RandomAllocation(4, 1), Blocks(5, 2), DisjointBatches("independent")]
)
def test_canaries_are_independent_where_nothing_ties_them(sampling: Sampling) -> None:
    assert dependence(with_sampling(sampling)) == ""
    assert dependence(replace(with_sampling(sampling), domain=Box(-1.0, 1.0))) == ""
    assert dependence(replace(with_sampling(sampling), algorithm="dp_adam")) == ""


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (with_sampling(WithoutReplacement(2, 8)), "without_replacement"),
        (with_sampling(ShuffledEpochs(2)), "shuffled_epochs"),
        (with_sampling(DisjointBatches("by_position")), "disjoint_batches"),
        (replace(with_sampling(FullBatch()), domain=L2Ball(1.0)), "projection"),
        (replace(with_sampling(FullBatch()), release=RandomIterate()), "one step"),
        (replace(with_sampling(FullBatch()), algorithm="dp_accmd"), "dp_accmd"),
    ],
)
def test_whatever_ties_canaries_together_is_named(plan: Plan, reason: str) -> None:
    assert reason in dependence(plan)


def test_batches_of_a_fixed_size_have_as_many_places_as_declared() -> None:
    assert largest_number_of_rows(with_sampling(WithoutReplacement(2, 8))) == 8
    assert largest_number_of_rows(with_sampling(Poisson(0.5))) > 10**6
