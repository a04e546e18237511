"""Proximal rounds: what one record moves, which round is released, where points may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian
from accounting.relations import NeighboringRelation
from calibrators.geometry import L1Ball, L2Ball, L2Penalty
from calibrators.phases.proximal_phases import ProximalPhase
from calibrators.plan import Clip, Phase, Plan
from calibrators.release import LAST_ITERATE, RandomIterate
from tests.conformance.trainers.streams import RecordingStreams
from tests.conformance.trainers.sums import SumAt, given_sums
from tests.trainer import given
from trainer.grid import Grid
from trainer.loop import Trainer
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.run import run
from trainer.streams import RandomStreams, random_streams

Floats = npt.NDArray[np.float64]
ROUNDS, RECORDS, INNER, CLIP = 3, 2, 4, 0.5


def phase_of(**changes: Any) -> ProximalPhase:
    """Three rounds of two records, with noise that is hardly any."""
    usual: dict[str, Any] = {
        "event": Event(Gaussian(1e-3)),
        "rounds": ROUNDS,
        "records": RECORDS,
        "inner_iterations": INNER,
        "max_grad_norm": CLIP,
        "noise_stddev_on_mean": 0.01,
        "weak_convexity": 1.0,
        "regularizer": 2.0,
        "radius": 0.4,
    }
    return ProximalPhase(**(usual | changes))


def plan_of(phase: ProximalPhase | Phase, size: int = 8, **changes: Any) -> Plan:
    usual: dict[str, Any] = {"domain": L2Ball(0.5), "release": RandomIterate()}
    return Plan("proximal_weakly_convex", size, NeighboringRelation.REPLACE_ONE, (phase,), **(usual | changes))


def trainer_of(plan: Plan, features: Floats, labels: Floats, streams: RandomStreams) -> Trainer:
    model = LinearModel(Squared(), features.shape[1], fit_intercept=False)
    return given.trainer_of(plan, model, features, labels, streams)


@pytest.mark.parametrize("at", [0.0, 0.5])
def test_one_record_moves_its_rounds_sums_by_at_most_the_bound_and_the_others_not_at_all(at: float) -> None:
    """Replaced by one with the opposite label, in every slot; both sides go on with the same sums."""
    steps, reached = ROUNDS * INNER, 0.0
    grids: list[Grid] = []

    def sums(features: Floats, labels: Floats) -> tuple[list[Floats], list[float]]:
        found: list[Floats] = []

        def give(sum_at: SumAt, grid: Grid) -> Floats:
            found.append(sum_at(np.full(2, at)))
            grids.append(grid)
            return np.rint(np.full(2, 0.1 * len(found) * grid.steps_per_unit))

        trainer = trainer_of(plan_of(phase_of()), features, labels, RecordingStreams(1, noise_factor=0.0))
        with given_sums(give):
            for _ in range(steps):
                trainer.step()
        return found, [*trainer.released(), *trainer.state()["point"]]

    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(8, 2)), rng.choice([-1.0, 1.0], 8)
    order = random_streams(1).sampling.generator().permutation(8).tolist()
    for slot in range(8):
        own = order.index(slot) // RECORDS  # the last two slots are in no round
        for size in (0.3, 1.0, 1e9, -1e60, 1.7e308, np.nan, np.inf):
            one, turned = features.copy(), labels.copy()
            one[slot] = (size, 0.1)
            turned[slot] = -labels[slot]
            (first, end), (second, other_end) = sums(one, labels), sums(one, turned)
            moved = np.array([int(np.sum((a - b).astype(np.int64) ** 2)) for a, b in zip(first, second, strict=True)])
            assert np.all(np.delete(moved, range(own * INNER, min(steps, (own + 1) * INNER))) == 0)
            assert moved.max() <= int(2.0 * grids[0].steps_per_unit) ** 2
            assert end == other_end, "given the sums, nothing else depends on a record: the released round neither"
            reached = max(reached, moved.max() ** 0.5 * grids[0].step)
    assert at or reached > 1.99, "at 0 the label turns the gradient round"


def test_every_round_is_alike_likely_to_be_released_and_none_by_the_data() -> None:
    """With a release of its own stream, seen by where rounds start; five standard deviations."""
    starts: list[Floats] = []
    trainer = trainer_of(plan_of(phase_of()), np.ones((8, 2)), np.ones(8), random_streams(0))
    for step in range(ROUNDS * INNER):
        trainer.step()
        if step % INNER == 0:
            starts.append(trainer.state()["centre"])
    assert any(np.array_equal(trainer.released(), start) for start in starts)
    counts = np.zeros(ROUNDS)
    for seed in range(600):
        chosen = trainer_of(plan_of(phase_of()), np.ones((8, 2)), np.ones(8), random_streams(seed))
        counts[chosen.state()["release"]["chosen"] // INNER] += 1.0
    assert np.abs(counts - 200.0).max() < 5.0 * np.sqrt(600.0 * 2.0 / 9.0)


def test_points_stay_near_their_rounds_start_and_a_round_ends_at_their_weighted_mean() -> None:
    phase = phase_of(noise_stddev_on_mean=30.0, inner_iterations=12)
    trainer = trainer_of(plan_of(phase), np.ones((8, 3)), np.ones(8), random_streams(2))
    on_the_edge = 0
    for _ in range(ROUNDS):
        points = [trainer.state()["point"]]
        for _ in range(12):
            trainer.step()
            points.append(trainer.state()["point"])
        for point in points:
            assert np.linalg.norm(point) <= 0.5 * (1.0 + 1e-12)
            assert np.linalg.norm(point - points[0]) <= 0.4 * (1.0 + 1e-12)
            on_the_edge += np.linalg.norm(point - points[0]) >= 0.4 * (1.0 - 1e-12)
        mean = sum(k * point for k, point in enumerate(points[:12], start=1)) / 78.0
        np.testing.assert_allclose(points[12], mean, rtol=1e-12, atol=1e-14)
    assert on_the_edge > 12


def test_sums_are_divided_by_public_sizes() -> None:
    """Given the sums, the points are the same whatever number of rows is in the slots."""

    def points(rows: int) -> list[list[float]]:
        trainer = trainer_of(plan_of(phase_of()), np.ones((rows, 2)), np.ones(rows), random_streams(1))
        found = []
        with given_sums(lambda sum_at, grid: np.rint(np.array([0.3, -0.2]) * grid.steps_per_unit)):
            for _ in range(ROUNDS * INNER):
                trainer.step()
                found.append(trainer.state()["point"].tolist())
        return found

    assert points(8) == points(3) == points(0) == points(9)


@pytest.mark.parametrize(
    ("plan", "pointer"),
    [
        (plan_of(phase_of(weak_convexity=None, regularizer=None, radius=None)), ("phases", 0, "weak_convexity")),
        (plan_of(phase_of(), 5), ("phases", 0, "records")),
        (plan_of(phase_of(max_grad_norm=1e-200)), ("phases", 0, "max_grad_norm")),
        (plan_of(phase_of(rounds=10**4, inner_iterations=10**6, noise_stddev_on_mean=1.0), 10**5),
         ("phases", 0, "inner_iterations")),
        (plan_of(phase_of(), domain=L1Ball(1.0)), ("phases",)),
        (plan_of(phase_of(), penalty=L2Penalty(1.0)), ("penalty",)),
        (plan_of(Phase(Event(Gaussian(1.0)), Clip(1.0), 8, 0.1), release=LAST_ITERATE), ("phases",)),
        (replace(plan_of(phase_of()), neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE),
         ("neighboring_relation",)),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_carried_out_is_refused(plan: Plan, pointer: tuple[object, ...]) -> None:
    with pytest.raises(InvalidValue) as refused:
        run(plan, LinearModel(Squared(), 2, fit_intercept=False), np.ones((5, 2)), np.ones(5))
    assert refused.value.pointer == pointer
