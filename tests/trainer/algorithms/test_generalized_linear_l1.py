"""Frank-Wolfe on smoothed links: each step equal to a transcription whose envelopes are found by brute force."""

from __future__ import annotations

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from calibrators.geometry import L1Ball
from calibrators.phases.smoothed_vertex_steps import SmoothedVertexSteps
from calibrators.phases.vertex_steps import VertexSteps
from calibrators.plan import Plan
from tests.conformance.trainers.streams import RecordingStreams
from tests.trainer.given import in_slots
from tests.transcriptions.generalized_linear_l1 import trajectory
from trainer.algorithms.generalized_linear_l1 import make
from trainer.arrays import Namespace, to_host
from trainer.clipping import MARGINS
from trainer.loop import Task
from trainer.losses import QNormHinge, Quantile
from trainer.models import LinearModel, build
from trainer.run import run

HINGE = LinearModel(QNormHinge(1.0), 3, fit_intercept=False)


def plan_of(steps: int, records: int, scale: float = 0.3, lipschitz: float = 1.0, smoothing: float = 4.0) -> Plan:
    phase = SmoothedVertexSteps(Event(ZcDp(0.1), count=steps), records, scale, lipschitz, smoothing)
    return Plan("generalized_linear_l1", records, NeighboringRelation.REPLACE_ONE, (phase,), domain=L1Ball(2.0))


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "strict"])
def test_every_step_is_that_of_the_transcription(xp: Namespace) -> None:
    generator = np.random.default_rng(3)
    features, labels = generator.normal(size=(8, 3)), generator.integers(0, 2, size=8)
    gumbel = generator.gumbel(size=(25, 6))
    draws = iter(gumbel)
    expected = trajectory(
        features,
        lambda u, i: max(0.0, 1.0 - (2.0 * labels[i] - 1.0) * u),
        lambda scores: int(np.argmin(scores - 0.01 * next(draws))),
        beta=4.0,
        T=25,
        D=2.0,
        L0=1.0 - MARGINS["float64"],
    )
    streams = RecordingStreams(3, gumbel=list(gumbel))
    plan = plan_of(25, 8, scale=0.01)
    records = in_slots(plan, HINGE, xp.asarray(features), xp.asarray(labels), streams)
    trainer = make(Task(plan, HINGE, records, streams))
    for _, point in expected:
        trainer.step()
        np.testing.assert_allclose(to_host(trainer.released()), point, atol=1e-12)


def test_with_little_noise_and_smoothing_the_median_is_found() -> None:
    """Absolute errors do not mind that a fifth of the labels is wrong; squared ones would."""
    generator = np.random.default_rng(1)
    features, target = generator.uniform(-1.0, 1.0, size=(300, 3)), np.array([0.5, -0.1, 0.0])
    labels = features @ target
    labels[::5] = 1.0
    model = LinearModel(Quantile(0.5), 3, fit_intercept=False)
    found = run(plan_of(1500, 300, scale=1e-6, smoothing=30.0), model, features, labels, seed=1)
    np.testing.assert_allclose(found.parameters["weights"], target, atol=0.03)


def test_models_without_a_scalar_link_and_plans_of_other_steps_are_refused() -> None:
    features, labels = np.zeros((4, 3)), np.array([0, 1, 2, 0])
    for kind in ("softmax_regression", "mlp"):
        with pytest.raises(Unsupported) as refused:
            run(plan_of(2, 4), build(3, kind=kind, num_classes=3, hidden=[2]), features, labels, seed=1)
        assert (refused.value.code, refused.value.pointer) == ("unsupported_model", ("model", "kind"))
    smoothed = plan_of(2, 4)
    [phase] = smoothed.phases
    assert isinstance(phase, SmoothedVertexSteps)
    plain = VertexSteps(phase.event, phase.divisor, phase.gumbel_scale, phase.lipschitz)
    for plan in (replace(smoothed, phases=(plain,)), replace(smoothed, algorithm="dp_fw")):
        with pytest.raises(InvalidValue) as invalid:
            run(plan, HINGE, features, labels % 2, seed=1)
        assert invalid.value.code == "invalid_plan"
