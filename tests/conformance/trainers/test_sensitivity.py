"""What one record can do to what is noised: never more than the plan was charged for, and as much in the worst case.

Neighbours are built against the trainer, under each relation that is accounted: a record that comes, one replaced by
its opposite, one replaced by the null record; of every size up to the largest float and not finite, at points near and
far. Both sides draw alike, and what they are given in place of their sums is alike: so what leads from the noisy sums
to the points may be anything, but for a second way of the records into it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting.events import FullBatch
from accounting.relations import NeighboringRelation
from calibrators.bassily_guzman.tree import Problem, Trees
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import BoundedSteps, Plan
from tests.conformance.trainers.examples import FEATURES, data, every_dtype, every_gradient_plan, model, plans
from tests.conformance.trainers.streams import RecordingStreams
from tests.conformance.trainers.sums import SumAt, given_sums
from trainer.algorithms import EXECUTIONS
from trainer.grid import Grid
from trainer.loop import Task, Trainer
from trainer.records import prepare
from trainer.run import usual_capacity

Data = tuple[np.ndarray, np.ndarray]


def adversaries() -> list[tuple[np.ndarray, float]]:
    """Features and label of a record: at the origin its gradient is minus the label times the features."""
    axis = np.eye(FEATURES)[0]
    slope = np.linspace(1.0, 2.0, FEATURES)
    sizes = (1e-300, 0.3, 1.0, 1e9, 1e60, 1.7e308)
    found = [(size * direction, label) for size in sizes for direction in (axis, slope / 2.0) for label in (1.0, -1.0)]
    found += [(np.full(FEATURES, bad), 1.0) for bad in (np.nan, np.inf, -np.inf)]
    found += [(axis, bad) for bad in (np.nan, np.inf, 1e300)]
    return found


def neighbours(relation: NeighboringRelation, rows: int) -> Iterator[tuple[Data, Data]]:
    """Data sets that differ in their last record."""
    features, labels = data(rows - 1)
    null = np.full(FEATURES, np.nan), 0.0

    def with_last(record: tuple[np.ndarray, float]) -> Data:
        return np.vstack([features, record[0]]), np.append(labels, record[1])

    for record in adversaries():
        match relation:
            case NeighboringRelation.ADD_OR_REMOVE_ONE:
                yield with_last(record), (features, labels)
            case NeighboringRelation.REPLACE_SPECIAL:
                yield with_last(record), with_last(null)
            case _:
                for other in ((record[0], -record[1]), (-record[0][::-1], record[1]), null):
                    yield with_last(record), with_last(other)


def trainer_of(plan: Plan, streams: RecordingStreams, some: Data) -> Trainer:
    records = prepare(model(), *some, plan.dtype, usual_capacity(plan), streams.slots)
    return EXECUTIONS[plan.algorithm].make(Task(plan, model(), records, streams))


POINTS = (np.zeros(FEATURES), np.full(FEATURES, -1e5))


def taken(
    plan: Plan, some: Data, seed: int, step: int, batches: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], Grid, dict[str, Any]]:
    """What a step sums at the points, the places of all steps given, and its grid; and the state that it leads to.

    The sums that the steps go on with depend on their number alone.
    """
    found: list[np.ndarray] = []
    grids: list[Grid] = []
    asked: list[int] = []

    def give(sum_at: SumAt, grid: Grid) -> np.ndarray:
        if len(asked) == step:
            found.extend(sum_at(point) for point in POINTS)
            grids.append(grid)
        asked.append(len(asked))
        return np.rint(np.random.default_rng(len(asked)).normal(size=FEATURES) / grid.step)

    trainer = trainer_of(plan, RecordingStreams(seed, batches=batches), some)
    with given_sums(give):
        for index in range(step + 1):
            trainer.step()
            assert len(asked) == index + 1, "a step that is charged once takes one sum"
    trainer.close()
    return found, grids[0], without_draws(trainer.state()) | {"released": trainer.released()}


def without_draws(state: dict[str, Any]) -> dict[str, Any]:
    """What noisy sums have led to: all of a state but what draws the rows, which is private."""
    return {key: value for key, value in state.items() if key not in ("sampler", "sampling")}


@every_dtype
@every_gradient_plan
@pytest.mark.one_in(6)
def test_one_record_moves_the_sum_by_at_most_what_was_charged(name: str, plan: Plan, dtype: str) -> None:
    """In a step of each phase, as an inequality between integers; given the sums, it moves nothing else."""
    plan, relation = replace(plan, dtype=dtype), plan.neighboring_relation
    first = 0
    for phase in plan.phases:
        assert isinstance(phase, BoundedSteps)
        seed, step, batches = draw_that_takes_the_last(plan, range(first, first + phase.steps))
        largest, allowed = 0, 0
        for one, other in neighbours(relation, plan.dataset_size):
            sums, grid, state = taken(plan, one, seed, step, batches)
            other_sums, _, other_state = taken(plan, other, seed, step, batches)
            allowed = math.floor((Fraction(relation.sensitivity) / Fraction(grid.step)) ** 2)
            for at_a_point, other_at_it in zip(sums, other_sums, strict=True):
                moved = squared_steps(at_a_point, other_at_it)
                assert moved <= allowed, (relation, one[0][-1], other[0][-1])
                largest = max(largest, moved)
            np.testing.assert_equal(state, other_state)
        assert largest >= 0.96 * allowed, "the bound is reached, so that the test has power"
        first += phase.steps


def squared_steps(one: np.ndarray, other: np.ndarray) -> int:
    """The squared l2 distance of two sums of whole steps, exactly."""
    assert np.all(one == np.rint(one))
    assert np.all(other == np.rint(other))
    return sum((int(a) - int(b)) ** 2 for a, b in zip(one.tolist(), other.tolist(), strict=True))


@every_gradient_plan
@pytest.mark.one_in(18)
def test_a_record_that_is_not_drawn_moves_nothing(name: str, plan: Plan) -> None:
    """Amplification by sampling rests on it: not one integer changes, in either numeric type."""
    for dtype in ("float64", "float32"):
        narrow = replace(plan, dtype=dtype)
        for one, other in neighbours(plan.neighboring_relation, plan.dataset_size):
            places = [np.arange(plan.dataset_size - 1)] * plan.iterations
            first, second = (taken(narrow, some, 0, 0, places)[0] for some in (one, other))
            if not is_full_batch(plan):
                np.testing.assert_equal(first, second)


def is_full_batch(plan: Plan) -> bool:
    return any(isinstance(phase, BoundedSteps) and phase.event.sampling == FullBatch() for phase in plan.phases)


def draw_that_takes_the_last(plan: Plan, steps: range) -> tuple[int, int, list[np.ndarray]]:
    """A seed, the first of these steps that takes the last record under it, and the rows of all steps so far."""
    for seed in range(100):
        streams = RecordingStreams(seed)
        trainer = trainer_of(plan, streams, data(plan.dataset_size))
        for _ in range(steps.stop):
            trainer.step()
        trainer.close()
        batches = streams.drawn.batches
        for step in steps:
            if np.any(batches[step] == plan.dataset_size - 1):
                return seed, step, batches[: step + 1]
    raise AssertionError("the last record takes part in some run")


@pytest.mark.parametrize(
    ("name", "plan"), [case for case in plans() if isinstance(case.values[1].phases[0], TreePhase)]
)
def test_one_record_moves_a_nodes_estimate_by_at_most_what_was_charged(name: str, plan: Plan) -> None:
    """The selections given, a record moves the node that reads it, and what is added to it below."""
    [phase] = plan.phases
    assert isinstance(phase, TreePhase)
    problem = Problem(phase.lipschitz, phase.smoothness, 2.0 * getattr(plan.domain, "radius", 0.0))
    trees = Trees(phase.num_trees, phase.records_per_tree)
    factor = plan.neighboring_relation.sensitivity
    allowed = [
        factor * problem.contribution_bound(depth) / (phase.records_per_tree >> depth)
        for depth in range(trees.num_trees + 1)
    ]
    # Vertices that walk about, whatever the scores: far noise decides.
    gumbel = [1e12 * np.eye(2 * FEATURES)[(3 * step) % (2 * FEATURES)] for step in range(plan.iterations)]
    reached = 0.0
    for seed in range(3):
        for one, other in neighbours(plan.neighboring_relation, plan.dataset_size):
            pair = [trainer_of(plan, RecordingStreams(seed, gumbel=gumbel), some) for some in (one, other)]
            for _ in range(plan.iterations):
                for trainer in pair:
                    trainer.step()
                first, second = (trainer.state() for trainer in pair)
                assert np.array_equal(first["point"], second["point"])
                for depth, estimate in first["estimates"].items():
                    moved = float(np.abs(estimate - second["estimates"][depth]).max())
                    assert moved <= max(allowed[: int(depth) + 1]), depth
                    reached = max(reached, moved / allowed[0])
    assert reached >= 0.98
