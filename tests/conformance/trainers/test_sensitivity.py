"""What one record can do to what is noised: never more than the plan was charged for, and as much in the worst case.

Neighbours are built against the trainer, under each relation that is accounted: a record that comes, one replaced by
its opposite, one replaced by the null record; of every size up to the largest float and not finite, at points near and
far. Both sides draw alike, and what they are given in place of their sums is alike: so what leads from the noisy sums
to the points may be anything, but for a second way of the records into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from accounting.relations import NeighboringRelation
from calibrators.bassily_guzman.tree import Problem, Trees
from calibrators.phases import TreePhase
from calibrators.plan import Phase, Plan
from tests.conformance.trainers.examples import FEATURES, data, every_dtype, every_gradient_plan, model, plans
from tests.conformance.trainers.streams import RecordingStreams
from tests.conformance.trainers.sums import SumAt, given_sums
from trainer.algorithms import ALGORITHMS
from trainer.loop import Task, Trainer
from trainer.records import default_capacity, prepare
from trainer.run import rows_per_step

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


def trainer_of(plan: Plan, streams: RecordingStreams, some: Data, dtype: str, features: int = FEATURES) -> Trainer:
    records = prepare(model(features), *some, dtype, lanes_for(rows_per_step(plan)), streams.lanes)
    return ALGORITHMS[plan.algorithm].make(Task(plan, model(features), records, streams, dtype))


POINTS = (np.zeros(FEATURES), np.full(FEATURES, -1e5))


def taken(
    plan: Plan, some: Data, dtype: str, seed: int, step: int, batches: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], dict[str, Any]]:
    """What a step sums at the points, the rows of all steps given; and the state that it leads to.

    The sums that the steps go on with depend on their number alone.
    """
    found: list[np.ndarray] = []
    asked: list[int] = []

    def give(sum_at: SumAt) -> np.ndarray:
        if len(asked) == step:
            found.extend(sum_at(point) for point in POINTS)
        asked.append(len(asked))
        return np.random.default_rng(len(asked)).normal(size=FEATURES)

    trainer = trainer_of(plan, RecordingStreams(seed, batches=batches), some, dtype)
    with given_sums(give):
        for index in range(step + 1):
            trainer.step()
            assert len(asked) == index + 1, "a step that is charged once takes one sum"
    trainer.close()
    return found, without_draws(trainer.state()) | {"released": trainer.released()}


def without_draws(state: dict[str, Any]) -> dict[str, Any]:
    """What noisy sums have led to: all of a state but what draws the rows, which is private."""
    return {key: value for key, value in state.items() if key not in ("sampler", "sampling")}


@every_dtype
@every_gradient_plan
def test_one_record_moves_the_sum_by_at_most_what_was_charged(name: str, plan: Plan, dtype: str) -> None:
    """In a step of each phase; given the sums, it moves nothing else."""
    relation = plan.neighboring_relation
    first = 0
    for phase in plan.phases:
        assert isinstance(phase, Phase)
        bound = relation.sensitivity * phase.gradient_bound.contribution_bound
        seed, step, batches = draw_that_takes_the_last(plan, range(first, first + phase.steps))
        largest = 0.0
        for one, other in neighbours(relation, plan.dataset_size):
            sums, state = taken(plan, one, dtype, seed, step, batches)
            other_sums, other_state = taken(plan, other, dtype, seed, step, batches)
            for at_a_point, other_at_it in zip(sums, other_sums, strict=True):
                moved = float(np.linalg.norm(at_a_point - other_at_it))
                assert moved <= bound, (relation, one[0][-1], other[0][-1])
                largest = max(largest, moved)
            np.testing.assert_equal(state, other_state)
        assert largest >= 0.98 * bound, "the bound is reached, so that the test has power"
        first += phase.steps


def draw_that_takes_the_last(plan: Plan, steps: range) -> tuple[int, int, list[np.ndarray]]:
    """A seed, the first of these steps that takes the last record under it, and the rows of all steps so far."""
    for seed in range(100):
        streams = RecordingStreams(seed)
        trainer = trainer_of(plan, streams, data(plan.dataset_size), "float64")
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
            pair = [trainer_of(plan, RecordingStreams(seed, gumbel=gumbel), some, "float64") for some in (one, other)]
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
