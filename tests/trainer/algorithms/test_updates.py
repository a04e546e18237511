"""Each algorithm is itself: worked numbers, and every step equal to an independent transcription."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.geometry import L1Penalty, L2Ball
from calibrators.plan import Clip, Normalize, Phase, Plan
from calibrators.release import AverageIterate
from tests.trainer.given import GivenStreams, trainer_of
from tests.trainer.plans import phase_of, plan_of
from tests.transcriptions import dp_nsgd as reference_dp_nsgd
from tests.transcriptions import dp_sgd as reference_dp_sgd
from tests.transcriptions.models import logistic_gradient, perceptron_gradient, softmax_gradient
from trainer.algorithms import dp_nsgd, dp_sgd
from trainer.clipping import MARGINS, margin
from trainer.grid import grid_for
from trainer.loop import GradientSteps, Step
from trainer.models import (
    LinearModel,
    Model,
    MultilayerPerceptron,
    PerRecordModel,
    logistic_regression,
    softmax_regression,
)
from trainer.records import prepare
from trainer.streams import random_streams
from trainer.sums import BoundedSum

MARGIN = MARGINS["float64"]


# The worked numbers of the algorithms' catalogue: eta 0.1, B 4, sigma 1.5.
GRADIENTS = np.array([[3.0, 4.0], [0.6, -0.8], [0.0, 0.0], [-6.0, 8.0]])
POINT = np.array([1.0, 2.0])
NOISE = np.array([0.5, -1.0])


def worked_sum(bound: Clip | Normalize) -> np.ndarray:
    """The sum of the bounded gradients, in gradient units."""
    model = PerRecordModel(2, np.zeros(2), gradient=lambda point, features, labels: features)
    records = prepare(model, GRADIENTS, np.zeros(4), "float64", 4, random_streams(1).slots)
    grid = grid_for(1.5, 2, "float64", 4)
    total = BoundedSum(model, records, "float64").at(POINT, slice(0, 4), bound, grid)
    found: np.ndarray = grid.decoded(total, bound.contribution_bound)
    return found


def worked_step(bound: Clip | Normalize, **changes: Any) -> Step:
    stddev = phase_of(bound, noise_multiplier=1.5).noise_stddev_on_sum
    return Step(worked_sum(bound) + stddev * NOISE, 4, 0.1, **changes)


def test_update_is_equation_2() -> None:
    # The sum is on the grid, here and below.
    np.testing.assert_allclose(dp_sgd.update(POINT, worked_step(Clip(2.0))), [0.9475, 2.015], atol=1e-5)
    # With the margin taken out of the threshold.
    np.testing.assert_allclose(worked_sum(Clip(2.0 / (1.0 - MARGIN))), [0.6, 2.4], atol=4e-6)


def test_update_is_equation_3() -> None:
    after = dp_nsgd.update(POINT, worked_step(Normalize(0.5)))
    np.testing.assert_allclose(after, [0.971899350649, 2.013603896104], atol=1e-7)
    np.testing.assert_allclose(worked_sum(Normalize(0.5)), [0.374025974026, 0.955844155844], atol=2e-6)


@pytest.mark.parametrize(("update", "bound"), [(dp_sgd.update, Clip(2.0)), (dp_nsgd.update, Normalize(0.5))])
def test_a_penalty_and_a_domain_act_on_the_new_point(
    update: Callable[..., np.ndarray], bound: Clip | Normalize
) -> None:
    plain = update(POINT, worked_step(bound))
    shrunk = update(POINT, worked_step(bound, penalty=L1Penalty(3.0)))
    np.testing.assert_allclose(shrunk, plain - 0.1 * 3.0, rtol=1e-13)
    both = update(POINT, worked_step(bound, penalty=L1Penalty(3.0), domain=L2Ball(0.5)))
    np.testing.assert_allclose(both, 0.5 * shrunk / np.linalg.norm(shrunk), rtol=1e-13)


@pytest.mark.parametrize(("update", "bound"), [(dp_sgd.update, Clip(2.0)), (dp_nsgd.update, Normalize(0.5))])
def test_updates_leave_the_point_alone(update: Callable[..., np.ndarray], bound: Clip | Normalize) -> None:
    """The noisy sum is theirs to write to."""
    point = POINT.copy()
    update(point, worked_step(bound))
    assert point.tolist() == POINT.tolist()


STEPS, ROWS, FEATURES = 12, 40, 5


def paths(algorithm: str, phase: Phase, model: Model, dtype: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    """The trainer's points under given batches and noise, and what a transcription needs to repeat them."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(ROWS, FEATURES)) * np.where(np.arange(ROWS) % 5 == 0, 20.0, 0.3)[:, None]
    labels = rng.integers(0, model.num_classes, ROWS)
    batches = [np.flatnonzero(rng.random(ROWS) < 0.3) for _ in range(STEPS)]
    batches[4] = np.empty(0, dtype=np.intp)
    noises = [rng.normal(size=model.num_parameters) for _ in range(STEPS)]
    streams = GivenStreams(noises, batches)
    trainer = trainer_of(replace(plan_of(algorithm, phase), dtype=dtype), model, features, labels, streams)
    assert isinstance(trainer, GradientSteps)
    start, path = trainer.point, []
    for _ in range(phase.steps):
        trainer.step()
        path.append(trainer.point)
    augmented = np.hstack([features, np.ones((ROWS, 1))])

    def gradient(x: np.ndarray, i: int) -> np.ndarray:
        if isinstance(model, MultilayerPerceptron):
            return perceptron_gradient(x, features[i], int(labels[i]), (FEATURES, *model.hidden, model.num_classes))
        assert isinstance(model, LinearModel)
        inputs = augmented[i] if model.fit_intercept else features[i]
        if model.num_outputs == 1:
            return logistic_gradient(x, inputs, int(labels[i]))
        return softmax_gradient(x, inputs, int(labels[i]), model.num_classes)

    return path, {
        "x": start,
        "gradient": gradient,
        "batches": [batch.tolist() for batch in batches],
        "noises": noises,
        "eta": phase.step_size,
        "sigma": 0.7,
        "B": phase.divisor,
    }


MODELS: list[Model] = [
    logistic_regression(FEATURES),
    softmax_regression(FEATURES, 4),
    softmax_regression(FEATURES, 3, fit_intercept=False),
    MultilayerPerceptron(FEATURES, 3, hidden=(4,)),
]
CLIP = phase_of(Clip(0.8), noise_multiplier=0.7, steps=STEPS, divisor=11, step_size=0.4)
NORMALIZE = phase_of(Normalize(2.0), noise_multiplier=0.7, steps=STEPS, divisor=11, step_size=0.4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", MODELS)
def test_dp_sgd_steps_like_its_transcription(model: Model, dtype: str) -> None:
    path, given = paths("dp_sgd", CLIP, model, dtype)
    # The margin narrows the clip and not the noise: the transcription's sigma makes up for its narrower threshold.
    given["sigma"] /= 1.0 - margin(dtype)
    reference = reference_dp_sgd.trajectory(**given, c=0.8 * (1.0 - margin(dtype)))
    tolerance = 1e-5 if dtype == "float64" else 2e-3  # sums and noise are rounded to the grid
    assert len(path) == STEPS
    for ours, theirs in zip(path, reference, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", MODELS)
def test_dp_nsgd_steps_like_its_transcription(model: Model, dtype: str) -> None:
    path, given = paths("dp_nsgd", NORMALIZE, model, dtype)
    reference = reference_dp_nsgd.trajectory(**given, r=2.0)  # so large that the margin never acts
    tolerance = 1e-5 if dtype == "float64" else 2e-3  # sums and noise are rounded to the grid
    assert len(path) == STEPS
    for ours, theirs in zip(path, reference, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_empty_batches_are_noised() -> None:
    path, given = paths("dp_nsgd", NORMALIZE, logistic_regression(FEATURES), "float64")
    np.testing.assert_allclose(path[4], path[3] - 0.4 / 11 * 0.7 * given["noises"][4], atol=1e-6)  # on the grid


def test_algorithms_are_under_their_own_names() -> None:
    # A swap of the two leaves each name with the other's bound, which the trainer refuses.
    model = logistic_regression(FEATURES)
    for algorithm, phase in (("dp_sgd", NORMALIZE), ("dp_nsgd", CLIP)):
        with pytest.raises(InvalidValue, match="bounds gradients by"):
            paths(algorithm, phase, model, "float64")


def test_the_plan_says_what_is_released() -> None:
    """The mean of the points that the steps start from, for one."""
    model = logistic_regression(FEATURES)
    path, given = paths("dp_sgd", CLIP, model, "float64")
    plan = Plan("dp_sgd", 8, NeighboringRelation.ADD_OR_REMOVE_ONE, (CLIP,), release=AverageIterate())
    rng = np.random.default_rng(5)
    features = rng.normal(size=(ROWS, FEATURES)) * np.where(np.arange(ROWS) % 5 == 0, 20.0, 0.3)[:, None]
    streams = GivenStreams(given["noises"], given["batches"])
    trainer = trainer_of(plan, model, features, rng.integers(0, 2, ROWS), streams)
    for _ in range(STEPS):
        trainer.step()
    np.testing.assert_allclose(trainer.released(), np.mean([given["x"], *path[:-1]], axis=0), rtol=1e-11, atol=1e-12)
