"""Each algorithm is itself: worked numbers, and every step equal to an independent transcription."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibrators.plan import Clip, Normalize, Phase
from tests.reference import dp_nsgd as reference_dp_nsgd
from tests.reference import dp_sgd as reference_dp_sgd
from tests.reference.models import logistic_gradient, softmax_gradient
from tests.trainer.plans import phase_of
from trainer.algorithms import ALGORITHMS, dp_nsgd, dp_sgd
from trainer.clipping import MARGIN, clip_factors, normalize_factors, row_norms
from trainer.gradients import FactorisedGradients
from trainer.loop import Update, points
from trainer.models import LinearModel, LogisticRegression, SoftmaxRegression
from trainer.records import Records, prepare


def explicit(gradients: np.ndarray) -> FactorisedGradients:
    """Given gradients, as the product with a residual of 1."""
    count = gradients.shape[0]
    norms = row_norms(np, gradients)
    return FactorisedGradients(
        Records(np, gradients, norms, np.ones(count), np.zeros(count, dtype=np.int64)), np.ones((count, 1))
    )


# The worked numbers of the algorithms' catalogue: eta 0.1, B 4, sigma 1.5.
GRADIENTS = np.array([[3.0, 4.0], [0.6, -0.8], [0.0, 0.0], [-6.0, 8.0]])
POINT = np.array([[1.0], [2.0]])
NOISE = np.array([[0.5], [-1.0]])


def worked_phase(bound: Clip | Normalize) -> Phase:
    return phase_of(bound, noise_multiplier=1.5, divisor=4, step_size=0.1, steps=1)


def test_update_is_equation_2() -> None:
    phase = worked_phase(Clip(2.0))
    after = dp_sgd.update(POINT, explicit(GRADIENTS), phase, NOISE)
    np.testing.assert_allclose(after[:, 0], [0.9475, 2.015], rtol=2 * MARGIN)
    # With the margin taken out of the threshold, to the last digit.
    widened = 2.0 / (1.0 - MARGIN)
    total = explicit(GRADIENTS).bounded_sum(lambda norms, scales: clip_factors(norms, scales, widened))
    np.testing.assert_allclose(total[:, 0], [0.6, 2.4], rtol=1e-13)


def test_update_is_equation_3() -> None:
    after = dp_nsgd.update(POINT, explicit(GRADIENTS), worked_phase(Normalize(0.5)), NOISE)
    np.testing.assert_allclose(after[:, 0], [0.971899350649, 2.013603896104], rtol=1e-12)
    total = explicit(GRADIENTS).bounded_sum(lambda norms, scales: normalize_factors(norms, scales, 0.5))
    np.testing.assert_allclose(total[:, 0], [0.374025974026, 0.955844155844], rtol=1e-11)


class GivenBatches:
    def __init__(self, batches: list[np.ndarray]) -> None:
        self._batches = iter(batches)

    def draw(self) -> np.ndarray:
        return next(self._batches)


class GivenNoise:
    def __init__(self, noises: list[np.ndarray]) -> None:
        self._noises = iter(noises)

    def standard_normal(self, shape: tuple[int, ...]) -> np.ndarray:
        noise = next(self._noises)
        assert noise.shape == shape
        return noise


STEPS, ROWS, FEATURES = 12, 40, 5


def paths(update: Update, phase: Phase, model: LinearModel, dtype: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    """The trainer's points under given batches and noise, and what a transcription needs to repeat them."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(ROWS, FEATURES)) * np.where(np.arange(ROWS) % 5 == 0, 20.0, 0.3)[:, None]
    labels = rng.integers(0, model.num_classes, ROWS)
    batches = [np.flatnonzero(rng.random(ROWS) < 0.3) for _ in range(STEPS)]
    batches[4] = np.empty(0, dtype=np.intp)
    noises = [rng.normal(size=(model.num_inputs, model.num_outputs)) for _ in range(STEPS)]
    path = list(
        points(
            phase,
            update,
            model,
            prepare(model, features, labels, dtype),
            start=model.initial(),
            sampler=GivenBatches(batches),
            noise=GivenNoise(noises),
        )
    )
    augmented = np.hstack([features, np.ones((ROWS, 1))]) if model.fit_intercept else features
    gradient = logistic_gradient if isinstance(model, LogisticRegression) else softmax_gradient
    return path, {
        "x": model.initial(),
        "gradient": lambda x, i: gradient(x, augmented[i], int(labels[i])),
        "batches": [batch.tolist() for batch in batches],
        "noises": noises,
        "eta": phase.step_size,
        "sigma": 0.7,
        "B": phase.divisor,
    }


MODELS: list[Callable[[], LinearModel]] = [
    lambda: LogisticRegression(FEATURES),
    lambda: SoftmaxRegression(FEATURES, 4),
    lambda: SoftmaxRegression(FEATURES, 3, fit_intercept=False),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("make", MODELS)
def test_dp_sgd_steps_like_its_transcription(make: Callable[[], LinearModel], dtype: str) -> None:
    phase = phase_of(Clip(0.8), noise_multiplier=0.7, steps=STEPS, divisor=11, step_size=0.4)
    path, given = paths(ALGORITHMS["dp_sgd"].update, phase, make(), dtype)
    # The margin narrows the clip and not the noise: the transcription's sigma makes up for its narrower threshold.
    given["sigma"] /= 1.0 - MARGIN
    reference = reference_dp_sgd.trajectory(**given, c=0.8 * (1.0 - MARGIN))
    tolerance = 1e-12 if dtype == "float64" else 3e-6
    assert len(path) == STEPS
    for ours, theirs in zip(path, reference, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("make", MODELS)
def test_dp_nsgd_steps_like_its_transcription(make: Callable[[], LinearModel], dtype: str) -> None:
    phase = phase_of(Normalize(0.3), noise_multiplier=0.7, steps=STEPS, divisor=11, step_size=0.4)
    path, given = paths(ALGORITHMS["dp_nsgd"].update, phase, make(), dtype)
    reference = reference_dp_nsgd.trajectory(**given, r=0.3)
    tolerance = 1e-12 if dtype == "float64" else 3e-6
    assert len(path) == STEPS
    for ours, theirs in zip(path, reference, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_as_many_steps_as_charged() -> None:
    phase = phase_of(Clip(0.8), noise_multiplier=0.7, steps=STEPS, divisor=11, step_size=0.4)
    assert len(paths(dp_sgd.update, phase, LogisticRegression(FEATURES), "float64")[0]) == phase.event.count


def test_empty_batches_are_noised() -> None:
    phase = phase_of(Normalize(0.3), noise_multiplier=0.7, steps=STEPS, divisor=11, step_size=0.4)
    path, given = paths(dp_nsgd.update, phase, LogisticRegression(FEATURES), "float64")
    np.testing.assert_allclose(path[4], path[3] - 0.4 / 11 * 0.7 * given["noises"][4], rtol=1e-13)


def test_algorithms_are_under_their_own_names() -> None:
    assert ALGORITHMS["dp_sgd"].update is dp_sgd.update
    assert ALGORITHMS["dp_nsgd"].update is dp_nsgd.update
    assert {name: algorithm.name for name, algorithm in ALGORITHMS.items()} == {n: n for n in ALGORITHMS}
    # A swap of the two files leaves each name with the other's bound, which the update itself refuses.
    with pytest.raises(AssertionError):
        ALGORITHMS["dp_sgd"].update(POINT, explicit(GRADIENTS), worked_phase(Normalize(0.5)), NOISE)
    with pytest.raises(AssertionError):
        ALGORITHMS["dp_nsgd"].update(POINT, explicit(GRADIENTS), worked_phase(Clip(2.0)), NOISE)
