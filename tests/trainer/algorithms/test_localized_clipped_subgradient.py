"""Localised blocks: the worked trajectory, who is read when, what one record moves, where points may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian
from accounting.relations import NeighboringRelation
from calibrators.geometry import L1Ball, L2Ball
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.plan import Clip, Phase, Plan
from tests.conformance.trainers.streams import RecordingStreams
from tests.conformance.trainers.sums import SumAt, given_sums
from tests.trainer import given
from tests.trainer.given import GivenStreams
from tests.transcriptions.localized_clipped_subgradient import algorithm_3, ball
from trainer.blocks import project_near
from trainer.grid import Grid
from trainer.loop import Trainer
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.run import run
from trainer.streams import RandomStreams, random_streams

Floats = npt.NDArray[np.float64]
NOISES = (0.1, -0.2, 0.05)
EXPECTED = (0.08333333333, 0.1930555556, 0.1723958333)
X = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)


def phase_of(**changes: Any) -> LocalizedPhase:
    """Two blocks of 4 and 2 records, with noise that is hardly any."""
    usual: dict[str, Any] = {
        "event": Event(Gaussian(1e-3)),
        "records": (4, 2),
        "inner_iterations": (3, 2),
        "max_grad_norm": (1.0, 0.5),
        "noise_stddev_on_mean": (0.01, 0.01),
        "step_size": (0.5, 0.25),
        "regularizer": (1.0, 2.0),
        "radius": (0.4, 0.1),
    }
    return LocalizedPhase(**(usual | changes))


def plan_of(phase: LocalizedPhase | Phase, size: int = 8, **changes: Any) -> Plan:
    usual: dict[str, Any] = {"domain": L2Ball(1.0)}
    name = "localized_clipped_subgradient"
    return Plan(name, size, NeighboringRelation.REPLACE_ONE, (phase,), **(usual | changes))


def trainer_of(plan: Plan, features: Floats, labels: Floats, streams: RandomStreams) -> Trainer:
    model = LinearModel(Squared(), features.shape[1], fit_intercept=False)
    return given.trainer_of(plan, model, features, labels, streams)


def test_the_worked_trajectory_of_algorithm_3() -> None:
    """1/2 (w - x)^2 with all six records in each step; the reference's, and the trainer's in units twice as large."""
    path = algorithm_3(
        np.zeros(1),
        lambda w, i: w - X[i],
        range(6),
        iter(np.array([[z] for z in NOISES])),
        T=3,
        eta=0.25,
        lam=2.0,
        C=0.5,
        sigma=1.0,
        W=ball(1.0),
        radius=0.3,
    )
    assert np.concatenate(path) == pytest.approx(EXPECTED, rel=1e-9)
    phase = phase_of(
        records=(6,),
        inner_iterations=(3,),
        max_grad_norm=(0.25,),
        noise_stddev_on_mean=(0.5,),
        step_size=(0.25,),
        regularizer=(2.0,),
        radius=(0.15,),
    )
    streams = GivenStreams([np.array([z]) for z in NOISES])
    trainer = trainer_of(plan_of(phase, 6, domain=L2Ball(0.5)), np.ones((6, 1)), np.array(X) / 2.0, streams)
    ours = []
    for _ in NOISES:
        trainer.step()
        ours.append(2.0 * float(trainer.released()[0]))
    assert ours == pytest.approx(EXPECTED, abs=1e-5)


def test_each_block_reads_its_own_slots_and_no_others() -> None:
    """Watched by gradients that name their record: in every step of a block the same, in the secret order."""
    phase, seed = phase_of(), 3
    order = random_streams(seed).sampling.generator().permutation(8)
    expected = [order[:4], order[4:6]]
    trainer = trainer_of(plan_of(phase), np.eye(8), np.ones(8), random_streams(seed))
    seen: list[list[int]] = []

    def give(sum_at: SumAt, grid: Grid) -> Floats:
        seen.append(np.flatnonzero(sum_at(np.zeros(8))).tolist())
        return np.zeros(8)

    with given_sums(give):
        for _ in range(5):
            trainer.step()
    assert seen == [sorted(expected[0])] * 3 + [sorted(expected[1])] * 2
    counts = np.zeros(8)
    for seed in range(400):
        counts[random_streams(seed).sampling.generator().permutation(8)[:4]] += 1.0
    assert np.abs(counts - 200.0).max() < 5.0 * 10.0


ADVERSARIES = [0.3, 1.0, -1.0, 1e9, -1e60, 1.7e308, np.nan, np.inf]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("at", [0.0, 0.5, -0.9])
def test_one_record_moves_its_blocks_sums_by_at_most_the_bound_and_the_others_not_at_all(at: float) -> None:
    """Replaced by one with the opposite label, in every slot; both sides go on with the same sums."""
    phase, reached = phase_of(), 0.0
    grids: list[Grid] = []

    def sums(features: Floats, labels: Floats) -> Iterator[Floats]:
        found: list[Floats] = []

        def give(sum_at: SumAt, grid: Grid) -> Floats:
            found.append(sum_at(np.full(2, at)))
            grids.append(grid)
            return np.rint(0.1 * np.full(2, grid.steps_per_unit))

        trainer = trainer_of(plan_of(phase), features, labels, RecordingStreams(1, noise_factor=0.0))
        with given_sums(give):
            for _ in range(5):
                trainer.step()
        return iter(found)

    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(8, 2)), rng.choice([-1.0, 1.0], 8)
    ends = list(accumulate(phase.inner_iterations))
    order = random_streams(1).sampling.generator().permutation(8).tolist()
    for slot in range(8):
        block = next((index for index, end in enumerate((4, 6)) if order.index(slot) < end), None)
        for size in ADVERSARIES:
            one, other = features.copy(), features.copy()
            one[slot] = other[slot] = (size, 0.1)
            turned = labels.copy()
            turned[slot] = -labels[slot]
            for step, (first, second) in enumerate(zip(sums(one, labels), sums(other, turned), strict=True)):
                moved = sum((int(a) - int(b)) ** 2 for a, b in zip(first, second, strict=True))
                if block is None or not (ends[block] - phase.inner_iterations[block] <= step < ends[block]):
                    assert moved == 0
                else:
                    assert moved <= int(2.0 * grids[step].steps_per_unit) ** 2
                    reached = max(reached, moved**0.5 * grids[step].step)
    assert at or reached > 1.99, "at 0 the label turns the gradient round"


def test_sums_are_divided_by_public_sizes() -> None:
    """Given the sums, the points are the same whatever number of rows is in the slots."""

    def points(rows: int) -> list[list[float]]:
        trainer = trainer_of(plan_of(phase_of()), np.ones((rows, 2)), np.ones(rows), random_streams(1))
        found = []
        with given_sums(lambda sum_at, grid: np.rint(np.array([0.3, -0.2]) * grid.steps_per_unit)):
            for _ in range(5):
                trainer.step()
                found.append(trainer.released().tolist())
        return found

    assert points(8) == points(3) == points(0) == points(9)


def test_points_stay_in_the_ball_about_their_blocks_start_and_in_the_domain() -> None:
    phase = phase_of(noise_stddev_on_mean=(30.0, 30.0), inner_iterations=(12, 12))
    trainer = trainer_of(plan_of(phase), np.ones((8, 3)), np.ones(8), random_streams(2))
    start, on_the_edge = trainer.released(), 0
    for step in range(24):
        if step == 12:
            start = trainer.released()
        trainer.step()
        point, radius = trainer.released(), phase.radius[step // 12]
        assert np.linalg.norm(point) <= 1.0 + 1e-12
        assert np.linalg.norm(point - start) <= radius * (1.0 + 1e-12)
        on_the_edge += np.linalg.norm(point - start) >= radius * (1.0 - 1e-12)
    assert on_the_edge > 12


def test_the_projection_on_two_balls_is_the_nearest_point() -> None:
    """The worked one; and <v - y, x - y> <= 0 for points x of both, down to balls far smaller than the domain."""
    worked = project_near(L2Ball(1.0), np.array([0.8, 0.0]), 0.5, np, np.array([1.5, 0.9]))
    assert worked == pytest.approx([0.86875, np.sqrt(1.0 - 0.86875**2)], rel=1e-12)
    rng = np.random.default_rng(4)
    for _ in range(1000):
        d = int(rng.integers(1, 5))
        centre = rng.normal(size=d)
        centre *= rng.choice([0.0, 0.5, 0.99, 1.0]) / np.linalg.norm(centre)
        radius = 10.0 ** rng.uniform(-9.0, 1.0)
        v = centre + rng.normal(size=d) * radius * 10.0 ** rng.uniform(-1.0, 2.0)
        y = project_near(L2Ball(1.0), centre, radius, np, v)
        assert np.linalg.norm(y) <= 1.0 + 1e-14
        assert np.linalg.norm(y - centre) <= radius * (1.0 + 1e-6)
        steps = rng.normal(size=(50, d))
        steps *= (radius * rng.uniform(size=50) / np.linalg.norm(steps, axis=1))[:, None]
        inside = centre + steps
        inside = inside[np.linalg.norm(inside, axis=1) <= 1.0]
        assert np.all((inside - y) @ (v - y) <= 1e-5 * radius * np.linalg.norm(v - y))
    assert project_near(None, np.zeros(2), np.inf, np, np.array([3.0, 4.0])).tolist() == [3.0, 4.0]
    assert project_near(None, np.zeros(2), 1.0, np, np.array([3.0, 4.0])) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    ("plan", "pointer"),
    [
        (plan_of(phase_of(step_size=(), regularizer=(), radius=())), ("phases", 0, "step_size")),
        (plan_of(phase_of(), 5), ("phases", 0, "records")),
        (plan_of(phase_of(max_grad_norm=(1e-200, 1.0))), ("phases", 0, "max_grad_norm")),
        (plan_of(phase_of(inner_iterations=(3, 10**10), noise_stddev_on_mean=(1.0, 1e3))),
         ("phases", 0, "inner_iterations")),
        (plan_of(phase_of(), domain=L1Ball(1.0)), ("phases",)),
        (plan_of(Phase(Event(Gaussian(1.0)), Clip(1.0), 8, 0.1)), ("phases",)),
        (replace(plan_of(phase_of()), neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE),
         ("neighboring_relation",)),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_carried_out_is_refused(plan: Plan, pointer: tuple[object, ...]) -> None:
    with pytest.raises(InvalidValue) as refused:
        run(plan, LinearModel(Squared(), 2, fit_intercept=False), np.ones((5, 2)), np.ones(5))
    assert refused.value.pointer == pointer
