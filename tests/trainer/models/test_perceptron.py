"""Multilayer perceptrons: gradients of the definition, secret random starts, predictions, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.errors import InvalidValue
from tests.trainer.models.blocks import block_of, rows_of
from tests.transcriptions.models import perceptron_gradient
from trainer.models import MultilayerPerceptron
from trainer.streams import random_streams

NETWORKS = [
    MultilayerPerceptron(4, 3, hidden=(5,)),
    MultilayerPerceptron(4, 3, hidden=(5, 2), activation="tanh"),
    MultilayerPerceptron(4, 2, hidden=(6, 3, 4)),
    MultilayerPerceptron(1, 2, hidden=(1,), activation="tanh"),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", NETWORKS)
def test_gradients_are_those_of_the_chain_rule(model: MultilayerPerceptron, dtype: str) -> None:
    rng = np.random.default_rng(3)
    rows, labels = rng.normal(size=(15, model.num_features)), rng.integers(0, model.num_classes, 15)
    point = rng.normal(size=model.num_parameters).astype(dtype)
    gradients = model.gradients(point, block_of(model, rows, labels, dtype))
    widths = (model.num_features, *model.hidden, model.num_classes)
    expected = np.array(
        [
            perceptron_gradient(point.astype(np.float64), row, int(label), widths, model.activation)
            for row, label in zip(rows, labels, strict=True)
        ]
    )
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(rows_of(gradients, 15), expected, rtol=tolerance, atol=tolerance)
    norms = np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(gradients.norms()[:15], norms, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        gradients.dual_norms()[:15], np.abs(expected).max(axis=1), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("model", NETWORKS[:2])
def test_gradients_are_the_derivative_of_the_losses(model: MultilayerPerceptron) -> None:
    rng = np.random.default_rng(5)
    block = block_of(model, rng.normal(size=(9, 4)), rng.integers(0, 3, 9))
    point, step = rng.normal(size=model.num_parameters), 1e-6
    rows = rows_of(model.gradients(point, block), 9)
    for j in range(model.num_parameters):
        moved = np.zeros(model.num_parameters)
        moved[j] = step
        slope = (model.losses(point + moved, block) - model.losses(point - moved, block))[:9] / (2.0 * step)
        np.testing.assert_allclose(rows[:, j], slope, atol=1e-7)


def test_starts_are_drawn_at_the_scale_that_keeps_activations_alive() -> None:
    relu = MultilayerPerceptron(300, 10, hidden=(400,))
    start = relu.parameters(relu.initial(random_streams(4).initialisation))
    assert np.std(start["weights_1"]) == pytest.approx(np.sqrt(2.0 / 300.0), rel=0.01)
    assert np.std(start["weights_2"]) == pytest.approx(np.sqrt(1.0 / 400.0), rel=0.05)
    assert not np.any(start["bias_1"])
    assert not np.any(start["bias_2"])
    tanh = MultilayerPerceptron(300, 10, hidden=(400,), activation="tanh")
    start = tanh.parameters(tanh.initial(random_streams(4).initialisation))
    assert np.std(start["weights_1"]) == pytest.approx(np.sqrt(1.0 / 300.0), rel=0.01)
    one, other = (relu.initial(random_streams().initialisation) for _ in range(2))
    assert not np.array_equal(one, other)


def test_released_parameters_give_the_predictions_of_the_point() -> None:
    model, rng = MultilayerPerceptron(4, 3, hidden=(5, 2), activation="tanh"), np.random.default_rng(6)
    point = rng.normal(size=model.num_parameters)
    released = model.parameters(point)
    assert [(name, value.shape) for name, value in released.items()] == [
        ("weights_1", (4, 5)),
        ("bias_1", (5,)),
        ("weights_2", (5, 2)),
        ("bias_2", (2,)),
        ("weights_3", (2, 3)),
        ("bias_3", (3,)),
    ]
    rows = rng.normal(size=(40, 4))
    losses = [model.losses(point, block_of(model, rows, np.full(40, label)))[:40] for label in range(3)]
    predicted = model.predict(released, rows)
    assert predicted.tolist() == np.argmin(losses, axis=0).tolist()
    assert model.score(released, rows, predicted) == 1.0
    assert model.metric == "accuracy"
    assert model.predict(released, [[np.nan, 0.0, 0.0, 1e308]]).shape == (1,)


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (lambda: MultilayerPerceptron(3, 1), "num_classes"),
        (lambda: MultilayerPerceptron(3, 2, hidden=()), "1 to 4 widths"),
        (lambda: MultilayerPerceptron(3, 2, hidden=(0,)), "hidden"),
        (lambda: MultilayerPerceptron(3, 2, hidden=(5000,)), "hidden"),
        (lambda: MultilayerPerceptron(3, 2, activation="gelu"), "relu or tanh"),
    ],
)
def test_what_does_not_fit_is_refused(attempt: object, complaint: str) -> None:
    assert callable(attempt)
    with pytest.raises(InvalidValue, match=complaint):
        attempt()
