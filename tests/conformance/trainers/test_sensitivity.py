"""What one record can do to what is noised: never more than the plan was charged for, and as much in the worst case.

Neighbours are built against the trainer, under each relation that is accounted: a record that comes, one replaced by
its opposite, one replaced by the null record; of every size up to the largest float and not finite, at points near and
far. Steps are taken without noise and with the same draws on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from accounting.relations import NeighboringRelation
from calibrators.bassily_guzman.tree import Problem, Trees
from calibrators.phases import TreePhase
from calibrators.plan import Phase, Plan
from calibrators.release import LAST_ITERATE
from tests.conformance.trainers.examples import FEATURES, data, every_dtype, every_gradient_plan, model, plans
from tests.conformance.trainers.streams import RecordingStreams
from trainer.algorithms import ALGORITHMS
from trainer.loop import Task, Trainer
from trainer.records import lanes_for, prepare
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


def step_from(point: np.ndarray, plan: Plan, some: Data, dtype: str, seed: int) -> np.ndarray:
    """What the first step adds to a sum of contributions, without noise."""
    streams = RecordingStreams(seed, noise_factor=0.0)
    trainer = trainer_of(plan, streams, some, dtype)
    trainer.restore(trainer.state() | {"point": point})
    trainer.step()
    trainer.close()
    moved: np.ndarray = np.asarray(trainer.state()["point"])
    phase = plan.phases[0]
    assert isinstance(phase, Phase)
    return (point - moved) * phase.divisor / phase.step_size_at(0)


@every_dtype
@every_gradient_plan
def test_one_record_moves_the_sum_by_at_most_what_was_charged(name: str, plan: Plan, dtype: str) -> None:
    bare = replace(plan, domain=None, penalty=None, release=LAST_ITERATE)
    [phase] = bare.phases
    assert isinstance(phase, Phase)
    relation = plan.neighboring_relation
    bound = relation.sensitivity * phase.gradient_bound.contribution_bound
    seed = next(seed for seed in range(100) if draws_last(bare, seed))
    largest = 0.0
    for point in (np.zeros(FEATURES), np.full(FEATURES, 0.3), np.full(FEATURES, -1e5)):
        for one, other in neighbours(relation, bare.dataset_size):
            difference = step_from(point, bare, one, dtype, seed) - step_from(point, bare, other, dtype, seed)
            moved = float(np.linalg.norm(difference))
            assert moved <= bound, (relation, one[0][-1], other[0][-1])
            largest = max(largest, moved)
    assert largest >= 0.98 * bound, "the bound is reached, so that the test has power"


def draws_last(plan: Plan, seed: int) -> bool:
    streams = RecordingStreams(seed, noise_factor=0.0)
    trainer = trainer_of(plan, streams, data(plan.dataset_size), "float64")
    trainer.step()
    trainer.close()
    return bool(np.any(streams.drawn.batches[0] == plan.dataset_size - 1))


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
