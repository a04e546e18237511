"""Medians from shuffled bits: what one record moves, the promised error, refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.phases.shuffled_medians import ShuffledMedians
from calibrators.plan import Plan
from calibrators.registry import calibrate
from calibrators.spec import OpenEpsilon, Spec, Unknown
from tests.conformance.trainers.streams import RecordingStreams
from trainer.models import MeanModel
from trainer.run import run
from trainer.streams import random_streams

USERS, DIMENSION, RADIUS = 34, 3, 2.0


def plan_of(
    relation: NeighboringRelation = NeighboringRelation.REPLACE_ONE, users: int = USERS, **assumptions: float
) -> Plan:
    spec = Spec(
        users,
        OpenEpsilon(1e-5),
        Unknown.EPSILON,
        noise_multiplier=5.0,
        dimension=DIMENSION,
        assumptions={"truncation_radius": RADIUS, "num_groups": 1.0} | assumptions,
        neighboring_relation=relation,
    )
    return calibrate("shuffle_coordinatewise_mean", spec).plan


def phase_of(plan: Plan) -> ShuffledMedians:
    [phase] = plan.phases
    assert isinstance(phase, ShuffledMedians)
    return phase


def mean_of(plan: Plan, records: np.ndarray, streams: object) -> np.ndarray:
    found = run(plan, MeanModel(DIMENSION), records, np.zeros(len(records)), streams=streams)  # type: ignore[arg-type]
    return found.parameters["mean"]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("relation", [NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL])
def test_one_record_moves_the_counts_by_what_was_charged(relation, dtype):
    """Of one group, whose median is its mean."""
    plan = replace(plan_of(relation), dtype=dtype)
    phase = phase_of(plan)
    others = np.random.default_rng(2).normal(size=(USERS - 1, DIMENSION))
    null = np.full(DIMENSION, np.nan)
    largest = 0.0
    for seed in range(3):
        for size in (1e-300, 0.3, RADIUS, 1e9, 1.7e308):
            record = np.array([size, -size, size])
            pair = (record, null if relation is NeighboringRelation.REPLACE_SPECIAL else -record)
            some = [mean_of(plan, np.vstack([others, one]), RecordingStreams(seed, noise_factor=0.0)) for one in pair]
            moved = (some[0] - some[1]) * USERS * phase.levels / (2.0 * RADIUS)
            np.testing.assert_allclose(moved, np.round(moved), atol=1e-9)
            reach = float(np.linalg.norm(moved)) / phase.levels
            assert reach <= phase.reach * (1.0 + 1e-12)
            largest = max(largest, reach)
    assert largest >= 0.9 * phase.reach


def test_runs_err_by_no_more_than_the_bound_says():
    """At zeta 1/4; records of a law with a heavy tail."""
    known = {"moment_order": 3.0, "coordinate_moment_bound": 1.0, "mean_bound": 0.5, "failure_probability": 0.25}
    users = 1200
    spec = Spec(
        users,
        OpenEpsilon(1e-5),
        Unknown.EPSILON,
        noise_multiplier=5.0,
        dimension=DIMENSION,
        assumptions=known | {"truncation_radius": 6.0, "num_groups": 9.0},
    )
    found = calibrate("shuffle_coordinatewise_mean", spec)
    [bound] = [item.value for item in found.utility if item.name == "error_bound"]
    rng, mean = np.random.default_rng(3), np.array([0.3, -0.2, 0.1])
    errors = []
    for seed in range(60):
        deviations = rng.standard_t(5, size=(users, DIMENSION)) / 1.55  # of third absolute moment below 1
        errors.append(np.linalg.norm(mean_of(found.plan, mean + deviations, random_streams(seed)) - mean))
    assert np.mean(np.array(errors) > bound) <= 0.25
    assert max(errors) > 0.1 * bound


def test_medians_are_of_groups_whose_noise_is_that_of_their_coins():
    plan = plan_of(num_groups=5.0)
    phase = phase_of(plan)
    assert (phase.groups, phase.users) == (5, 6)
    zeros = np.zeros((USERS, DIMENSION))
    drawn = [mean_of(plan, zeros, random_streams(seed)) for seed in range(200)]
    # The median of five normal numbers has the standard deviation 0.536 of one.
    stddev = RADIUS * phase.counts.noise_multiplier / phase.users
    assert np.std(drawn) == pytest.approx(0.536 * stddev, rel=0.1)
    assert abs(np.mean(drawn)) < 5.0 * stddev / math.sqrt(600)


def test_plans_that_do_not_fit_are_refused():
    plan, null = plan_of(), plan_of(NeighboringRelation.REPLACE_SPECIAL)
    records = np.zeros((USERS, DIMENSION))
    for other, words in (
        (replace(null, neighboring_relation=NeighboringRelation.REPLACE_ONE), "smaller changes"),
        (replace(plan, neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE), "n is public"),
        (replace(plan, dataset_size=USERS - 1), "declared"),
        (replace(plan, phases=(phase_of(plan), phase_of(plan))), "one phase"),
        (replace(plan, phases=(replace(phase_of(plan), truncation_radius=1e-101),)), "rescale"),
    ):
        with pytest.raises(InvalidValue, match=words):
            mean_of(other, records, random_streams(1))
    with pytest.raises(InvalidValue, match="coordinates"):
        run(plan, MeanModel(DIMENSION + 1), np.zeros((USERS, DIMENSION + 1)), np.zeros(USERS))
