"""The median of means as it is carried out: what one record can do to it, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian
from accounting.relations import NeighboringRelation
from calibrators.phases.median_of_means import MedianPhase
from calibrators.plan import Plan
from tests.trainer.given import GivenStreams
from tests.transcriptions.coordinatewise_mean import mean_oracle_2
from trainer.gradients import DenseGradients, Layer, OuterProducts
from trainer.median_of_means import MARGIN
from trainer.models import MeanModel, logistic_regression
from trainer.run import run
from trainer.streams import random_streams

RELATION = NeighboringRelation.REPLACE_ONE


def plan_of(records: int, groups: int, radius: float = 1.5, dimension: int = 3, multiplier: float = 0.5) -> Plan:
    size = records // groups
    noise = multiplier * radius * dimension**0.5 / size
    phase = MedianPhase(Event(Gaussian(multiplier)), groups, size, dimension, radius, noise)
    return Plan("coordinatewise_mean", records, RELATION, (phase,))


def released(plan: Plan, rows: np.ndarray, *, seed: int = 0, capacity: int | None = None) -> np.ndarray:
    """The medians, without noise."""
    streams = GivenStreams([np.zeros(rows.shape[1])], seed=seed)
    result = run(plan, MeanModel(rows.shape[1]), rows, np.zeros(len(rows)), streams=streams, capacity=capacity)
    return np.asarray(result.parameters["mean"])


@pytest.mark.parametrize("groups", [1, 4, 5])
def test_a_run_is_the_papers_oracle_on_the_records(groups: int) -> None:
    rng = np.random.default_rng(2)
    rows, noise = rng.standard_t(2.5, size=(43, 3)), rng.normal(size=3)
    plan = plan_of(43, groups)
    found = run(plan, MeanModel(3), rows, np.zeros(43), streams=GivenStreams([noise], seed=7)).parameters["mean"]
    order = random_streams(7).sampling.generator().permutation(43)
    size = 43 // groups
    members = [list(rows[order[i * size : (i + 1) * size]]) for i in range(groups)]
    [sigma] = plan.phases[0].noise_scale
    expected = mean_oracle_2(members, noise, tau=1.5 * (1.0 - MARGIN), sigma=sigma)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)  # sums and noise are on a grid


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("relation", [RELATION, NeighboringRelation.REPLACE_SPECIAL])
@pytest.mark.parametrize("groups", [1, 2, 3, 8])
@pytest.mark.one_in(12)
def test_one_record_moves_the_medians_by_at_most_what_was_charged(
    groups: int, relation: NeighboringRelation, dtype: str
) -> None:
    """Records against the trainer: of every size, where all other groups' means agree and where they do not."""
    records, radius, plan = 24, 1.5, replace(plan_of(24, groups), neighboring_relation=relation, dtype=dtype)
    allowed = relation.sensitivity * radius / (records // groups)
    reached = 0.0
    rng = np.random.default_rng(4)
    spread = rng.normal(size=(records, 3)) * 10.0 ** rng.integers(-3, 3, size=(records, 1))
    # Half of the groups' means far above, half far below, whoever is in them: the median is the changed group's.
    halves = np.where(np.argsort(random_streams(0).sampling.generator().permutation(records)) < 12, 1.0, -1.0)
    for others in (spread, np.zeros((records, 3)), halves[:, None] * np.full((records, 3), 9.0)):
        for size in (1e-300, 0.3, 1.5, 7.0, 1e60, 1.7e308, np.nan, np.inf):
            for place in (0, 5, 23):
                one, other = others.copy(), others.copy()
                one[place], other[place] = size, (np.nan if relation is not RELATION else -size)
                moved = np.abs(released(plan, one) - released(plan, other))
                assert moved.max() <= allowed
                assert np.linalg.norm(moved) <= allowed * 3**0.5
                reached = max(reached, float(moved.min()))
    # A median of an even number of groups, or of many, is moved in full by one record only where they lie so.
    assert reached >= (0.99 * allowed if groups == 1 else 0.0)


def test_the_charge_is_reached_where_the_other_groups_are_balanced() -> None:
    """Three groups of 8: one far above, one far below, and the record's own between: it moves the median in full."""
    plan, radius = plan_of(24, 3), 1.5
    order = random_streams(0).sampling.generator().permutation(24)
    rows = np.zeros((24, 3))
    rows[order[:8]], rows[order[8:16]] = 9.0, -9.0
    one, other = rows.copy(), rows.copy()
    one[order[16]], other[order[16]] = 9.0, -9.0
    moved = released(plan, one) - released(plan, other)
    np.testing.assert_allclose(moved, 2.0 * radius / 8 * (1.0 - MARGIN), atol=1e-5)  # sums are on a grid


def test_another_groups_mean_does_not_change_by_a_bit() -> None:
    """A record that is not in the median's group, and does not change which it is, changes nothing."""
    plan = plan_of(24, 3, radius=50.0)
    order = random_streams(0).sampling.generator().permutation(24)
    rows = np.random.default_rng(3).normal(size=(24, 3)) * 1e-3
    rows[order[:8]] += 9.0
    rows[order[8:16]] -= 9.0
    changed = rows.copy()
    changed[order[3]] = 33.3
    assert np.array_equal(released(plan, rows), released(plan, changed))


def test_rows_beyond_the_declared_size_are_not_read_and_array_libraries_agree() -> None:
    rows = np.random.default_rng(5).normal(size=(30, 3))
    plan = plan_of(20, 5)
    expected = released(plan, rows[:20])
    assert np.array_equal(released(plan, np.vstack([rows[:20], 1e6 + rows[20:]]), capacity=30), expected)
    strict = array_api_strict.asarray(rows[:20])
    result = run(plan, MeanModel(3), strict, array_api_strict.zeros(20), seed=0)
    np.testing.assert_array_equal(
        result.parameters["mean"], run(plan, MeanModel(3), rows[:20], np.zeros(20), seed=0).parameters["mean"]
    )


def test_gradients_entries_are_those_of_the_matrices_row_by_row() -> None:
    rng = np.random.default_rng(6)
    inputs, deltas, more = rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), rng.normal(size=(4, 1))
    layers = OuterProducts(np, (Layer(inputs, deltas, True), Layer(deltas, more, False)))
    expected = [
        np.concatenate([np.outer(x, g).ravel(), g, np.outer(g, h).ravel()])
        for x, g, h in zip(inputs, deltas, more, strict=True)
    ]
    np.testing.assert_allclose(layers.entries(), expected)
    total = np.zeros(layers.entries().shape[1])
    layers.add_to(total, np.ones(4), 2.0**40)
    np.testing.assert_allclose(total * 2.0**-40, layers.entries().sum(axis=0), atol=2.0**-40)
    assert DenseGradients(np, inputs.astype(np.float32)).entries().dtype == np.float64


@pytest.mark.parametrize(
    ("plan", "pointer"),
    [
        (
            replace(plan_of(20, 4), neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE),
            ("neighboring_relation",),
        ),
        (replace(plan_of(20, 4), dataset_size=19), ("phases", 0, "group_size")),
        (plan_of(20, 4, dimension=2), ("phases", 0, "dimension")),
        (plan_of(20, 4, radius=1e-200), ("phases", 0, "truncation_radius")),
    ],
)
def test_plans_that_it_cannot_keep_are_refused(plan: Plan, pointer: tuple[object, ...]) -> None:
    with pytest.raises(InvalidValue) as refused:
        run(plan, MeanModel(3), np.zeros((20, 3)), np.zeros(20))
    assert refused.value.pointer == pointer


def test_the_medians_of_any_models_gradients_are_a_step_from_its_start() -> None:
    """Of the logistic loss at 0 a record is half its label times its features."""
    rng = np.random.default_rng(8)
    rows, labels = rng.normal(size=(12, 3)), rng.integers(0, 2, 12)
    plan = plan_of(12, 1)
    streams = GivenStreams([np.zeros(3)])
    found = run(plan, logistic_regression(3, fit_intercept=False), rows, labels, streams=streams).parameters["weights"]
    expected = np.clip((labels - 0.5)[:, None] * rows, -1.5, 1.5).mean(axis=0)
    np.testing.assert_allclose(found, expected, atol=2e-5)
