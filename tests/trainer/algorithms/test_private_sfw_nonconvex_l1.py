"""The stationary form of recursive Frank-Wolfe: its own batches, and a random iterate that no row chooses."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from calibrators.geometry import L1Ball
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.plan import Plan
from calibrators.release import RandomIterate
from tests.trainer.given import trainer_of
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.run import run
from trainer.streams import random_streams

MODEL = LinearModel(Squared(), 2, fit_intercept=False)
STEPS = 5
PHASE = RecursiveSelections(Event(ZcDp(0.1)), STEPS, 4, 2, 0.5, 0.3, lipschitz=1.0, smoothness=1.0)
PLAN = Plan(
    "private_sfw_nonconvex_l1",
    12,
    NeighboringRelation.REPLACE_ONE,
    (PHASE,),
    domain=L1Ball(1.0),
    release=RandomIterate(),
)


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(12, 2)), generator.uniform(-1.0, 1.0, size=12)


@pytest.mark.parametrize("seed", range(8))
def test_the_released_point_is_the_start_of_the_step_that_was_drawn(seed: int) -> None:
    """From the release stream alone: the rows and the noise have no part in which."""
    chosen = int(random_streams(seed).release.generator().integers(STEPS))
    trainer = trainer_of(PLAN, MODEL, *data(seed), random_streams(seed))
    starts = []
    for _ in range(STEPS):
        starts.append(np.array(trainer.state()["point"]))
        trainer.step()
    np.testing.assert_array_equal(trainer.released(), starts[chosen])
    assert len({tuple(start) for start in starts}) > 1


def test_every_start_is_released_alike_often() -> None:
    counts = np.bincount(
        [int(random_streams(seed).release.generator().integers(STEPS)) for seed in range(2000)],
        minlength=STEPS,
    )
    assert np.sum((counts - 2000 / STEPS) ** 2) / (2000 / STEPS) < 20.0
    untouched = sum(
        bool(np.all(run(PLAN, MODEL, *data(1), seed=seed).parameters["weights"] == 0.0)) for seed in range(200)
    )
    assert 20 <= untouched <= 65, "the first start is released in a fifth of the runs"
