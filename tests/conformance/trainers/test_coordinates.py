"""What a record says of coordinates is so: an audit counts the canaries of one run as independent trials by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrators.geometry import Box
from calibrators.plan import BoundedSteps, Clip, CorrelatedSteps, Normalize, Plan
from tests.trainer.given import GivenStreams, trainer_of
from tests.trainer.plans import correlated_of, phase_of, plan_of
from trainer.algorithms import EXECUTIONS
from trainer.audit.canaries import ORTHOGONAL, dependence, model, rows
from trainer.execution import Coordinates

SEPARATE = [name for name, each in EXECUTIONS.items() if each.coordinates is not Coordinates.MIXED]
CANARIES, STEPS = 3, 4


def released(plan: Plan, noises: np.ndarray) -> np.ndarray:
    """What a run on canaries releases with this noise, a row for each step."""
    features = rows(plan, np.ones(CANARIES, dtype=bool), ORTHOGONAL)
    trainer = trainer_of(plan, model(CANARIES), features, np.zeros(len(features)), GivenStreams(list(noises)))
    for _ in range(STEPS):
        trainer.step()
    return np.asarray(trainer.released())


@pytest.mark.parametrize("domain", [None, Box(-0.2, 0.3)], ids=["anywhere", "box"])
@pytest.mark.parametrize("name", SEPARATE)
def test_noise_in_one_coordinate_moves_no_other(name: str, domain: Box | None) -> None:
    bound = Normalize(0.5) if EXECUTIONS[name].gradient_bound is Normalize else Clip(1.0)
    phase: BoundedSteps = phase_of(bound, steps=STEPS, step_size=0.1)
    if EXECUTIONS[name].phase_type is CorrelatedSteps:
        phase = correlated_of(0.75, 0.5, steps=STEPS, step_size=0.1)
    plan = replace(plan_of(name, phase), domain=domain)
    assert dependence(plan) == ""
    noises = np.random.default_rng(3).normal(size=(STEPS, CANARIES))
    moved = noises.copy()
    moved[:, 0] += 1.0
    before, after = released(plan, noises), released(plan, moved)
    assert domain is not None or before[0] != after[0]
    np.testing.assert_array_equal(before[1:], after[1:])


@pytest.mark.parametrize("name", [name for name in EXECUTIONS if name not in SEPARATE])
def test_where_coordinates_are_mixed_a_run_has_one_canary(name: str) -> None:
    assert name in dependence(plan_of(name, phase_of(Clip(1.0))))


def test_only_gradient_steps_treat_coordinates_alone() -> None:
    """Selections, medians and localised blocks do not, and their noise is of another kind."""
    assert all(issubclass(EXECUTIONS[name].phase_type, BoundedSteps) for name in SEPARATE)
