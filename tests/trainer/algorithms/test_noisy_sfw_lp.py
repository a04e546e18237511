"""Noisy Frank-Wolfe over l_p balls: the worked updates, what one record does to each mean, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from calibrators.geometry import L2Ball, LpBall
from calibrators.phases.gradient_estimates import EstimatePhase
from calibrators.phases.gradient_trees import GradientTreePhase
from calibrators.phases.structured import StructuredPhase
from calibrators.plan import Plan
from tests.conformance.trainers.streams import RecordingStreams
from tests.trainer.algorithms.replayed import Data, cubed_norm, means_of, neighbours, trainer_of, under
from trainer.algorithms import EXECUTIONS
from trainer.algorithms.noisy_sfw_lp import PrefixTree
from trainer.clipped_sums import ClippedSums, Term
from trainer.grid import Grid
from trainer.loop import Task
from trainer.lp_geometry import least_in_ball
from trainer.models import MultilayerPerceptron
from trainer.records import prepare
from trainer.streams import random_streams

RELATIONS = (NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL)
ONE = Event(ZcDp(0.5))
SUMS = EstimatePhase(ONE, "sums", 1.5, 2.0, 3, 4, 2, 0.1, 0.1, lipschitz=3.0, smoothness=2.0, step_size=0.25)
TREES = GradientTreePhase(ONE, 1.5, 2.0, 2, 4, (0.1, 0.1, 0.1), lipschitz=3.0, smoothness=2.0)


def plan_of(phase: StructuredPhase, records: int, name: str = "noisy_sfw_lp", radius: float = 1.0) -> Plan:
    return Plan(name, records, NeighboringRelation.REPLACE_ONE, (phase,), domain=LpBall(1.5, radius))


def worked(records: int) -> Data:
    i = np.arange(records)
    return np.stack([np.cos(i), np.sin(2 * i)], axis=1), np.cos(3 * i) / 2


def without_noise(plan: Plan) -> Any:
    """A trainer that reads slots in their order."""
    made = trainer_of(plan, worked(plan.dataset_size), RecordingStreams(0, noise_factor=0.0))
    made.restore(made.state() | {"slots": {"order": np.arange(plan.dataset_size), "taken": 0}})
    return made


@pytest.mark.parametrize("estimator", ["sums", "prefix_tree"])
def test_without_noise_sums_and_prefix_trees_lead_where_the_worked_update_does(estimator: str) -> None:
    trainer = without_noise(plan_of(replace(SUMS, estimator=estimator), 8))
    for _ in range(3):
        trainer.step()
    assert np.asarray(trainer.released()) == pytest.approx(
        [0.00261683034575, -0.14782440905708], abs=1e-5
    )  # sums are on a grid


def test_without_noise_trees_lead_where_the_worked_update_does() -> None:
    trainer = without_noise(plan_of(TREES, 14))
    leaves = []
    for _ in range(6):
        trainer.step()
        estimates = trainer.state()["estimates"]
        leaves.append(float(estimates[str(len(estimates) - 1)][0]))
    assert np.asarray(trainer.released()) == pytest.approx(
        [0.05512619347021, -0.39102609313771], abs=1e-5
    )  # sums are on a grid
    expected = [-0.12094313333124, 0.31014552471879, -0.0242029046246, 0.50876164535439, 0.01606011281988]
    assert leaves == pytest.approx([*expected, -0.10850247362111], abs=1e-5)  # sums are on a grid


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("estimator", ["sums", "prefix_tree", "momentum"])
@pytest.mark.one_in(6)
def test_one_record_moves_one_mean_by_at_most_what_was_charged(estimator: str, relation: NeighboringRelation) -> None:
    """Means that are not the record's are the same, bit by bit; its own moves within its bound, which is reached."""
    phase = replace(SUMS, estimator=estimator, estimates=5, first_batch=6, batch=3, lipschitz=0.8, smoothness=1.5)
    name = "noisy_sfw_nonconvex_lp" if estimator == "momentum" else "noisy_sfw_lp"
    plan = under(plan_of(phase, 18, name), relation)
    reached = np.zeros(5)
    for seed in range(40):
        one, other = neighbours(plan, 3, seed)
        moved = [cubed_norm(found) for found in means_of(plan, one, other, seed=seed)]
        assert max(moved) <= relation.sensitivity**3
        assert sum(cube > 0 for cube in moved) <= 1
        reached = np.maximum(reached, np.array(moved, dtype=np.float64) ** (1 / 3) / relation.sensitivity)
    assert reached[0] > 0.98
    assert reached[1:].max() > 0.3


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_record_moves_one_node_by_at_most_what_was_charged(relation: NeighboringRelation) -> None:
    phase = replace(TREES, records_per_tree=8, lipschitz=0.8, smoothness=1.5)
    plan = under(plan_of(phase, 28), relation)
    reached = 0.0
    for seed in range(40):
        one, other = neighbours(plan, 3, seed)
        moved = [cubed_norm(found) for found in means_of(plan, one, other, seed=seed)]
        assert max(moved) <= relation.sensitivity**3
        assert sum(cube > 0 for cube in moved) <= 1
        reached = max(reached, float(max(moved)) ** (1 / 3) / relation.sensitivity)
    assert reached > 0.98


def test_a_prefix_is_the_sum_of_as_many_nodes_as_it_has_digits_and_a_change_in_few() -> None:
    """The noise and the changes are marked, so that each can be recognised in the result."""
    steps, tree = 13, PrefixTree(SUMS)
    tree.start(np.zeros(2 * steps))
    parts = np.zeros((steps, steps))  # which changes are in the node that step t completes

    class Change:
        def __init__(self, step: int) -> None:
            self.step = step

        def total(self, *, change: float = 0.0, gradient: float = 0.0) -> np.ndarray:
            assert (change, gradient) == (1.0, 0.0)
            found: np.ndarray = np.eye(2 * steps)[steps + self.step - 1]
            return found

        def noised(self, total: np.ndarray) -> np.ndarray:
            noisy: np.ndarray = total + np.eye(2 * steps)[self.step - 1]
            return noisy

    for step in range(1, steps + 1):
        estimate = tree.advance(step, Change(step))
        assert estimate[:steps].sum() == step.bit_count()
        assert estimate[steps:].tolist() == [1.0] * step + [0.0] * (steps - step)
        size = step & -step
        parts[step - 1, step - size : step] = 1.0
    assert parts.sum(axis=0).max() == math.floor(math.log2(steps)) + 1


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(plan_of(SUMS, 8), domain=L2Ball(1.0)), "l_p ball"),
        (replace(plan_of(SUMS, 8), domain=LpBall(1.6, 1.0)), "l_p ball"),
        (plan_of(SUMS, 7), "each record is read once"),
        (plan_of(TREES, 13), "each record is read once"),
        (plan_of(replace(SUMS, estimator="momentum"), 8), "no estimator named momentum"),
        (plan_of(SUMS, 8, "noisy_sfw_nonconvex_lp"), "no estimator named sums"),
        (plan_of(TREES, 14, "noisy_sfw_nonconvex_lp"), "gradient_estimates"),
        (plan_of(replace(SUMS, lipschitz=1e-120), 8), "at least 1e-100"),
        (under(plan_of(SUMS, 8), NeighboringRelation.ADD_OR_REMOVE_ONE), "by position"),
    ],
)
def test_plans_that_it_does_not_carry_out_are_refused(plan: Plan, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        trainer_of(plan, worked(8), random_streams(0))


def test_models_whose_gradients_do_not_factorise_are_refused() -> None:
    model = MultilayerPerceptron(2, 2, (3,))
    streams = random_streams(0)
    records = prepare(model, *worked(8), "float64", 14, streams.slots)
    for phase in (SUMS, TREES):
        with pytest.raises(Unsupported, match="factorises"):
            EXECUTIONS["noisy_sfw_lp"].make(Task(plan_of(phase, 14), model, records, streams))


@pytest.mark.parametrize("estimator", ["sums", "prefix_tree", "momentum"])
def test_without_records_the_noise_alone_leads(estimator: str) -> None:
    """The noise of each step has the step's scale and the planned order."""
    phase = replace(SUMS, estimator=estimator, noise_order=3.0, first_scale=0.2, scale=0.7, batch=1)
    name = "noisy_sfw_nonconvex_lp" if estimator == "momentum" else "noisy_sfw_lp"
    streams = RecordingStreams(2)
    trainer = trainer_of(plan_of(phase, 8, name), (np.zeros((0, 4)), np.zeros(0)), streams)
    for _ in range(3):
        trainer.step()
    z = streams.drawn.noises
    estimates = {
        "sums": [0.2 * z[0], 0.2 * z[0] + 0.7 * z[1], 0.2 * z[0] + 0.7 * z[1] + 0.7 * z[2]],
        "prefix_tree": [0.2 * z[0], 0.2 * z[0] + 0.7 * z[1], 0.2 * z[0] + 0.7 * z[2]],
        "momentum": [0.2 * z[0], 0.15 * z[0] + 0.7 * z[1], 0.1125 * z[0] + 0.525 * z[1] + 0.7 * z[2]],
    }[estimator]
    x = np.zeros(4)
    for estimate in estimates:
        x = 0.75 * x + 0.25 * least_in_ball(np, estimate, 1.5, 1.0)
    assert np.asarray(trainer.state()["point"]) == pytest.approx(x, abs=1e-5)  # noise is on a grid
    fresh = random_streams(2).generalized_gaussian_noise()
    assert all(noise == pytest.approx(fresh.rounded(4, 3.0, 2.0**20) / 2.0**20, abs=1e-4) for noise in z)


@pytest.mark.parametrize(("far", "distance"), [(0.1, 0.2), (1.0, 0.5)])
def test_changes_are_clipped_to_the_public_distance_and_never_beyond_what_was_planned(
    far: float, distance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The points are ``far`` from the centre on both sides; a step of the plan moves by at most 0.25 times 2."""
    bounds: list[float] = []
    method = ClippedSums.of

    def watched(self: ClippedSums, slots: Any, grid: Grid, unit: float, *terms: Term) -> Any:
        bounds.extend(term.bound for term in terms if term.earlier is not None)
        return method(self, slots, grid, unit, *terms)

    monkeypatch.setattr(ClippedSums, "of", watched)
    phase = replace(SUMS, lipschitz=0.5, smoothness=1.25)
    trainer = trainer_of(plan_of(phase, 8), worked(8), random_streams(1))
    trainer.step()
    axis = np.array([far, 0.0])
    trainer.restore(trainer.state() | {"point": axis, "before": -axis})
    trainer.step()
    assert bounds == [pytest.approx(1.25 * distance)]


def test_without_records_the_noise_of_the_nodes_on_its_path_leads_to_each_leaf() -> None:
    phase = replace(TREES, noise_order=3.0, scales=(0.2, 0.7, 0.4))
    streams = RecordingStreams(2)
    trainer = trainer_of(plan_of(phase, 14), (np.zeros((0, 4)), np.zeros(0)), streams)
    for _ in range(6):
        trainer.step()
    z = streams.drawn.noises
    first, second, right = 0.2 * z[0], 0.2 * z[2], 0.2 * z[2] + 0.7 * z[4]
    x = np.zeros(4)
    estimates = [first, first + 0.7 * z[1], second, second + 0.4 * z[3], right, right + 0.4 * z[5]]
    for k, estimate in enumerate(estimates):
        x = k / (k + 2.0) * x + 2.0 / (k + 2.0) * least_in_ball(np, estimate, 1.5, 1.0)
    assert np.asarray(trainer.released()) == pytest.approx(x, abs=1e-5)  # noise is on a grid
