"""Linear models: shapes, predictions on public rows, and the constants that theory is given."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from accounting.errors import InvalidValue
from trainer.models import MODELS, LinearModel, LogisticRegression, SoftmaxRegression

VARIANTS = [
    LogisticRegression(3),
    LogisticRegression(3, fit_intercept=False),
    SoftmaxRegression(3, 4),
    SoftmaxRegression(3, 2, fit_intercept=False),
]


def gradient(model: LinearModel, point: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Per-record gradients as flat vectors."""
    residuals = model.residuals(np, inputs @ point, labels)
    products: np.ndarray = np.einsum("bi,bk->bik", inputs, residuals)
    return products.reshape(len(inputs), -1)


def extreme_inputs(model: LinearModel, bound: float, rng: np.random.Generator, count: int) -> np.ndarray:
    """Augmented inputs whose features are exactly as long as the bound allows."""
    rows = rng.normal(size=(count, model.num_features))
    rows *= bound / np.linalg.norm(rows, axis=1)[:, None]
    return np.hstack([rows, np.ones((count, 1))]) if model.fit_intercept else rows


@pytest.mark.parametrize("bound", [0.5, 3.0])
@pytest.mark.parametrize("model", VARIANTS)
def test_gradients_are_within_their_bound(model: LinearModel, bound: float) -> None:
    rng = np.random.default_rng(2)
    inputs = extreme_inputs(model, bound, rng, 2000)
    labels = rng.integers(0, model.num_classes, 2000)
    largest = 0.0
    for size in (0.0, 1.0, 100.0):
        point = size * rng.normal(size=(model.num_inputs, model.num_outputs))
        largest = max(largest, np.linalg.norm(gradient(model, point, inputs, labels), axis=1).max())
    limit = model.gradient_norm_bound(bound)
    assert 0.9 * limit <= largest <= limit * (1.0 + 1e-12)


@pytest.mark.parametrize("bound", [0.5, 3.0])
@pytest.mark.parametrize("model", VARIANTS)
def test_hessians_are_within_their_bound(model: LinearModel, bound: float) -> None:
    """Largest eigenvalue of one record's Hessian, by central differences, over many points; nearly reached."""
    rng = np.random.default_rng(4)
    size, step, largest = model.num_parameters, 1e-5, 0.0
    labels = np.zeros(1, dtype=np.int64)
    for scale in (0.0, 0.1, 1.0, 5.0):
        inputs = extreme_inputs(model, bound, rng, 1)
        point = scale * rng.normal(size=(model.num_inputs, model.num_outputs))
        if scale == 5.0 and model.num_outputs > 2:
            point[...] = 0.0  # two classes share all the weight: where the softmax is most curved
            point[:, 2:] = -60.0 * inputs.T / np.sum(inputs**2)
        hessian = np.empty((size, size))
        for j in range(size):
            moved = np.zeros(size)
            moved[j] = step
            ahead = gradient(model, point + moved.reshape(point.shape), inputs, labels)
            behind = gradient(model, point - moved.reshape(point.shape), inputs, labels)
            hessian[j] = (ahead - behind)[0] / (2.0 * step)
        largest = max(largest, np.linalg.eigvalsh((hessian + hessian.T) / 2.0).max())
    limit = model.smoothness(bound)
    assert 0.95 * limit <= largest <= limit * (1.0 + 1e-6)


def test_constants_are_the_documented_ones() -> None:
    assert LogisticRegression(3).smoothness(3.0) == pytest.approx(10.0 / 4.0)
    assert LogisticRegression(3, fit_intercept=False).gradient_norm_bound(3.0) == 3.0
    assert SoftmaxRegression(3, 5).smoothness(3.0) == pytest.approx(10.0 / 2.0)
    assert SoftmaxRegression(3, 5).gradient_norm_bound(3.0) == pytest.approx(math.sqrt(20.0))
    for bad in (-1.0, math.inf, math.nan, True):
        with pytest.raises(InvalidValue, match="feature_norm_bound"):
            LogisticRegression(3).smoothness(bad)


def test_residuals_are_the_derivative() -> None:
    rng = np.random.default_rng(6)
    logits, labels, step = rng.normal(size=(50, 4)) * 3.0, rng.integers(0, 4, 50), 1e-6

    def cross_entropy(z: np.ndarray) -> np.ndarray:
        losses: np.ndarray = np.log(np.exp(z).sum(axis=1)) - z[np.arange(50), labels]
        return losses

    for k in range(4):
        moved = np.eye(4)[k] * step
        slope = (cross_entropy(logits + moved) - cross_entropy(logits - moved)) / (2.0 * step)
        np.testing.assert_allclose(SoftmaxRegression(1, 4).residuals(np, logits, labels)[:, k], slope, atol=1e-8)
    z, y = logits[:, :1], labels % 2
    slope = (np.log1p(np.exp(z + step)) - np.log1p(np.exp(z - step))) / (2.0 * step) - y[:, None]
    np.testing.assert_allclose(LogisticRegression(1).residuals(np, z, y), slope, atol=1e-8)


def test_released_parameters_have_their_documented_shapes() -> None:
    assert {"logistic_regression": LogisticRegression, "softmax_regression": SoftmaxRegression} == MODELS
    shapes = {
        LogisticRegression(3): {"weights": (3,), "bias": ()},
        LogisticRegression(3, fit_intercept=False): {"weights": (3,)},
        SoftmaxRegression(3, 4): {"weights": (3, 4), "bias": (4,)},
        SoftmaxRegression(3, 4, fit_intercept=False): {"weights": (3, 4)},
    }
    for model, expected in shapes.items():
        released = model.parameters(model.initial())
        assert {name: value.shape for name, value in released.items()} == expected
        assert sum(value.size for value in released.values()) == model.num_parameters


def test_predictions_on_public_rows() -> None:
    rows = np.array([[2.0, 0.0], [-2.0, 0.0], [np.nan, 1e308]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        binary, parameters = LogisticRegression(2), {"weights": np.array([1.0, 0.0]), "bias": np.array(-0.5)}
        assert binary.decision_function(parameters, rows).tolist() == [1.5, -2.5, -0.5]
        assert binary.predict(parameters, rows).tolist() == [1, 0, 0]
        assert binary.accuracy(parameters, rows, [1, 1, 0]) == pytest.approx(2 / 3)
        several, parameters = (
            SoftmaxRegression(2, 3),
            {"weights": np.array([[1.0, -1.0, 0.0], [0.0] * 3]), "bias": np.array([0.0, 0.0, 0.5])},
        )
        assert several.predict(parameters, rows).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (lambda: LogisticRegression(0), "num_features"),
        (lambda: LogisticRegression(2, fit_intercept=1), "fit_intercept"),  # type: ignore[arg-type]  # on purpose
        (lambda: SoftmaxRegression(2, 1), "num_classes"),
        (lambda: LogisticRegression(2).predict({"weights": np.zeros(2)}, np.zeros((1, 3))), "shape"),
        (
            lambda: LogisticRegression(1).accuracy(
                {"weights": np.zeros(1), "bias": np.zeros(())}, np.zeros((0, 1)), []
            ),
            "at least one row",
        ),
    ],
)
def test_what_does_not_fit_is_refused(attempt: object, complaint: str) -> None:
    assert callable(attempt)
    with pytest.raises(InvalidValue, match=complaint):
        attempt()
