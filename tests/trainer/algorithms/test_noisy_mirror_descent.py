"""Noisy mirror descent: what one record does to each mean, the noise that is added, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from calibrators.geometry import L2Ball, LpBall
from calibrators.phases.mirror_steps import MirrorPhase
from calibrators.plan import Plan
from calibrators.release import AverageIterate
from tests.conformance.trainers.streams import RecordingStreams
from tests.trainer.algorithms.replayed import cubed_norm, means_of, neighbours, trainer_of, under
from trainer.exact.generalized_gaussian import spread_of
from trainer.grid import LARGEST_SCALE
from trainer.lp_geometry import mirror_step, norm
from trainer.streams import random_streams

PHASE = MirrorPhase(Event(ZcDp(0.5), count=3), 1.5, 2.0, 10, 0.1, lipschitz=0.8, step_size=0.2)
PLAN = Plan(
    "noisy_mirror_descent",
    10,
    NeighboringRelation.REPLACE_ONE,
    (PHASE,),
    domain=LpBall(1.5, 0.6),
    release=AverageIterate(),
)


@pytest.mark.parametrize("relation", [NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL])
def test_one_record_moves_every_mean_by_at_most_what_was_charged(relation: NeighboringRelation) -> None:
    plan, sensitivity, reached = under(PLAN, relation), relation.sensitivity, 0.0
    for seed in range(40):
        one, other = neighbours(plan, 3, seed)
        moved = [cubed_norm(found) for found in means_of(plan, one, other, seed=seed)]
        assert len(moved) == 3
        assert max(moved) <= sensitivity**3
        reached = max(reached, float(max(moved)) ** (1 / 3) / sensitivity)
    assert reached > 0.98


def test_a_step_without_records_is_the_noises_alone() -> None:
    """At the planned scale and of the planned order."""
    phase = replace(PHASE, noise_order=3.0, scale=0.7)
    streams = RecordingStreams(2)
    trainer = trainer_of(replace(PLAN, phases=(phase,)), (np.zeros((0, 4)), np.zeros(0)), streams)
    trainer.step()
    [noise] = streams.drawn.noises
    expected = mirror_step(np, np.zeros(4), 0.7 * noise, 0.2, 1.5, 0.6)
    assert np.asarray(trainer.state()["point"]) == pytest.approx(expected, abs=1e-5)  # the noise is on the grid
    fresh = random_streams(2).generalized_gaussian_noise().rounded(4, 3.0, 2.0**20)
    assert noise == pytest.approx(fresh / 2.0**20, abs=1e-5)


def test_points_stay_in_the_ball_and_their_average_is_released() -> None:
    rng = np.random.default_rng(1)
    trainer = trainer_of(
        replace(PLAN, phases=(replace(PHASE, step_size=9.0),)),
        (rng.normal(size=(10, 4)), rng.uniform(-1.0, 1.0, 10)),
        random_streams(5),
    )
    seen = []
    for _ in range(3):
        seen.append(np.asarray(trainer.state()["point"]))
        trainer.step()
        assert norm(np, trainer.state()["point"], 1.5) <= 0.6 * (1.0 + 1e-12)
    assert np.asarray(trainer.released()) == pytest.approx(np.mean(seen, axis=0), rel=1e-14)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(PLAN, domain=L2Ball(1.0)), "l_p ball"),
        (replace(PLAN, domain=LpBall(1.6, 1.0)), "l_p ball"),
        (replace(PLAN, dataset_size=11), "all records"),
        (replace(PLAN, phases=(PHASE, PHASE)), "one phase"),
        (replace(PLAN, phases=(replace(PHASE, lipschitz=1e-120),)), "at least 1e-100"),
    ],
)
def test_plans_that_it_does_not_carry_out_are_refused(plan: Plan, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        trainer_of(plan, (np.zeros((4, 2)), np.zeros(4)), random_streams(0))


def test_noise_of_an_order_that_is_not_drawn_is_refused_before_the_first_step() -> None:
    phase = replace(PHASE, norm_order=1.001, noise_order=129.0)
    plan = replace(PLAN, phases=(phase,), domain=LpBall(1.001, 0.6))
    with pytest.raises(InvalidValue, match="from 2 to 128, not for 129"):
        trainer_of(plan, (np.zeros((0, 4)), np.zeros(0)), RecordingStreams(2))


def test_the_grid_has_room_for_the_coordinates() -> None:
    """With much noise, the grid is coarser for vectors whose coordinates are large beside the noise's scale."""
    phase = replace(PHASE, noise_order=3.0, scale=5e6)
    streams = RecordingStreams(2)
    trainer = trainer_of(replace(PLAN, phases=(phase,)), (np.zeros((0, 4)), np.zeros(0)), streams)
    assert trainer._grid.scale * spread_of(4, 3.0) <= LARGEST_SCALE < 4.0 * trainer._grid.scale * spread_of(4, 3.0)
