"""Linear models: gradients, shapes, predictions on public rows, and the constants that theory is given."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from accounting.errors import InvalidValue
from tests.trainer.losses.test_losses import LOSSES, labels_of
from tests.trainer.models.blocks import block_of, rows_of
from tests.transcriptions import models as reference
from trainer.losses import Logistic, Loss, QNormHinge, Softmax
from trainer.models import LinearModel, build, logistic_regression, softmax_regression
from trainer.streams import random_streams

VARIANTS = [
    logistic_regression(3),
    logistic_regression(3, fit_intercept=False),
    softmax_regression(3, 4),
    softmax_regression(3, 2, fit_intercept=False),
    build(3, kind="huber_regression", threshold=0.5),
    build(3, kind="quantile_regression", quantile=0.2),
    build(3, kind="q_norm_hinge", q=1.0, fit_intercept=False),
]


def random_rows(count: int, rng: np.random.Generator) -> np.ndarray:
    rows: np.ndarray = rng.normal(size=(count, 3))
    return rows


def extreme_rows(model: LinearModel, bound: float, rng: np.random.Generator, count: int) -> np.ndarray:
    """Features exactly as long as the bound allows."""
    rows = random_rows(count, rng)
    rows *= bound / np.linalg.norm(rows, axis=1)[:, None]
    return rows


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_the_derivative_of_the_losses(loss: Loss, fit_intercept: bool) -> None:
    rng = np.random.default_rng(1)
    model = LinearModel(loss, 3, fit_intercept)
    block = block_of(model, random_rows(30, rng), labels_of(loss, 30, rng))
    point, step = rng.normal(size=model.num_parameters), 1e-6
    rows = rows_of(model.gradients(point, block), 30)
    for j in range(model.num_parameters):
        moved = np.zeros(model.num_parameters)
        moved[j] = step
        slope = (model.losses(point + moved, block) - model.losses(point - moved, block))[:30] / (2.0 * step)
        near = np.abs(rows[:, j] - slope) < 1e-4
        assert np.count_nonzero(near) >= 29  # but for a kink


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_gradients_are_those_of_the_definitions(fit_intercept: bool) -> None:
    rng = np.random.default_rng(2)
    rows = random_rows(20, rng)
    inputs = np.hstack([rows, np.ones((20, 1))]) if fit_intercept else rows
    classes, reals = rng.integers(0, 4, 20), rng.uniform(-1, 1, 20)

    def expected(model: LinearModel, point: np.ndarray, i: int) -> np.ndarray:
        match model.kind:
            case "logistic_regression":
                return reference.logistic_gradient(point, inputs[i], int(classes[i] % 2))
            case "softmax_regression":
                return reference.softmax_gradient(point, inputs[i], int(classes[i]), 4)
            case "q_norm_hinge":
                return reference.q_norm_hinge_gradient(point, inputs[i], int(classes[i] % 2), 1.5)
        slope = {
            "linear_regression": lambda error: error,
            "huber_regression": lambda error: reference.huber_slope(error, 0.7),
            "quantile_regression": lambda error: reference.quantile_slope(error, 0.3),
            "q_norm_regression": lambda error: reference.q_norm_slope(error, 1.5),
        }[model.kind]
        return reference.regression_gradient(slope, point, inputs[i], float(reals[i]))

    options = {
        "logistic_regression": {},
        "softmax_regression": {"num_classes": 4},
        "linear_regression": {},
        "huber_regression": {"threshold": 0.7},
        "quantile_regression": {"quantile": 0.3},
        "q_norm_regression": {"q": 1.5},
        "q_norm_hinge": {"q": 1.5},
    }
    for kind, given in options.items():
        model = build(3, kind=kind, fit_intercept=fit_intercept, **given)  # type: ignore[arg-type]  # by kind
        assert isinstance(model, LinearModel)
        labels = reals if not model.num_classes else classes % model.num_classes
        point = rng.normal(size=model.num_parameters)
        block = block_of(model, rows, labels)
        found = rows_of(model.gradients(point, block), 20)
        wanted = [expected(model, point, i) for i in range(20)]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-40)  # the grid of `rows_of`


@pytest.mark.parametrize("bound", [0.5, 3.0])
@pytest.mark.parametrize("model", VARIANTS)
def test_gradients_are_within_their_bound(model: LinearModel, bound: float) -> None:
    rng = np.random.default_rng(2)
    block = block_of(model, extreme_rows(model, bound, rng, 2000), labels_of(model.loss, 2000, rng))
    largest = 0.0
    for size in (0.0, 1.0, 100.0):
        point = size * rng.normal(size=model.num_parameters)
        largest = max(largest, model.gradients(point, block).norms()[:2000].max())
    limit = model.gradient_norm_bound(bound)
    assert limit is not None
    assert 0.9 * limit <= largest <= limit * (1.0 + 1e-12)


@pytest.mark.parametrize("bound", [0.5, 3.0])
@pytest.mark.parametrize("model", [*VARIANTS[:5], build(3, kind="linear_regression")])
def test_hessians_are_within_their_bound(model: LinearModel, bound: float) -> None:
    """Largest eigenvalue of one record's Hessian, by central differences, over many points; nearly reached."""
    rng = np.random.default_rng(4)
    size, step, largest = model.num_parameters, 1e-5, 0.0
    for scale in (0.0, 0.1, 1.0, 5.0):
        rows = extreme_rows(model, bound, rng, 1)
        point = scale * rng.normal(size=size)
        if scale == 5.0 and model.num_outputs > 2:  # two classes share all the weight: where the softmax is most curved
            inputs = np.append(rows, 1.0) if model.fit_intercept else rows[0]
            matrix = np.zeros((inputs.size, model.num_outputs))
            matrix[:, 2:] = -60.0 * inputs[:, None] / np.sum(inputs**2)
            point = matrix.reshape(-1)
        block = block_of(model, rows, np.zeros(1))
        hessian = np.empty((size, size))
        for j in range(size):
            moved = np.zeros(size)
            moved[j] = step
            ahead, behind = (rows_of(model.gradients(point + s * moved, block), 1)[0] for s in (1.0, -1.0))
            hessian[j] = (ahead - behind) / (2.0 * step)
        largest = max(largest, np.linalg.eigvalsh((hessian + hessian.T) / 2.0).max())
    limit = model.smoothness(bound)
    assert limit is not None
    assert 0.95 * limit <= largest <= limit * (1.0 + 1e-6)


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("kind", ["q_norm_hinge", "q_norm_regression"])
@pytest.mark.one_in(3)
def test_gradients_change_within_holder(kind: str, q: float) -> None:
    rng = np.random.default_rng(7)
    model = build(3, kind=kind, q=q)
    assert isinstance(model, LinearModel)
    block = block_of(model, extreme_rows(model, 2.0, rng, 50), labels_of(model.loss, 50, rng))
    holder, largest = model.holder(2.0), 0.0
    for _ in range(60):
        one, other = rng.normal(size=(2, 4)) * rng.choice([0.1, 1.0])
        change = rows_of(model.gradients(one, block), 50) - rows_of(model.gradients(other, block), 50)
        allowed = holder.constant * np.linalg.norm(one - other) ** holder.exponent
        largest = max(largest, np.linalg.norm(change, axis=1).max() / allowed)
    assert 0.5 <= largest <= 1.0 + 1e-9
    at_zero = model.gradients(np.zeros(4), block).norms()[:50].max()
    assert at_zero <= holder.gradient_at_zero * (1.0 + 1e-12)
    assert model.losses(np.zeros(4), block)[:50].max() <= holder.loss_at_zero


def test_constants_are_the_documented_ones() -> None:
    assert logistic_regression(3).smoothness(3.0) == pytest.approx(10.0 / 4.0)
    assert logistic_regression(3, fit_intercept=False).gradient_norm_bound(3.0) == 3.0
    assert softmax_regression(3, 5).smoothness(3.0) == pytest.approx(10.0 / 2.0)
    assert softmax_regression(3, 5).gradient_norm_bound(3.0) == pytest.approx(math.sqrt(20.0))
    assert build(3, kind="linear_regression").gradient_norm_bound(3.0) is None
    assert build(3, kind="quantile_regression").smoothness(3.0) is None
    hinge = LinearModel(QNormHinge(1.5), 3, fit_intercept=False).holder(4.0)
    assert (hinge.exponent, hinge.constant, hinge.gradient_at_zero, hinge.loss_at_zero) == (0.5, 12.0, 6.0, 1.0)
    for bad in (-1.0, math.inf, math.nan, True):
        with pytest.raises(InvalidValue, match="feature_norm_bound"):
            logistic_regression(3).smoothness(bad)


def test_released_parameters_have_their_documented_shapes() -> None:
    shapes = {
        logistic_regression(3): {"weights": (3,), "bias": ()},
        logistic_regression(3, fit_intercept=False): {"weights": (3,)},
        softmax_regression(3, 4): {"weights": (3, 4), "bias": (4,)},
        softmax_regression(3, 4, fit_intercept=False): {"weights": (3, 4)},
        LinearModel(Logistic(), 1): {"weights": (1,), "bias": ()},
    }
    for model, expected in shapes.items():
        assert not np.any(model.initial(random_streams(1).initialisation))
        released = model.parameters(np.arange(float(model.num_parameters)))
        assert {name: value.shape for name, value in released.items()} == expected
        assert np.concatenate([v.ravel() for v in released.values()]).tolist() == list(range(model.num_parameters))


def test_predictions_on_public_rows() -> None:
    rows = np.array([[2.0, 0.0], [-2.0, 0.0], [np.nan, 1e308]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        binary, parameters = logistic_regression(2), {"weights": np.array([1.0, 0.0]), "bias": np.array(-0.5)}
        assert binary.decision_function(parameters, rows).tolist() == [1.5, -2.5, -0.5]
        assert binary.predict(parameters, rows).tolist() == [1, 0, 0]
        assert (binary.metric, binary.score(parameters, rows, [1, 1, 0])) == ("accuracy", pytest.approx(2 / 3))
        numbers = build(2, kind="huber_regression")
        assert numbers.predict(parameters, rows).tolist() == [1.5, -2.5, -0.5]
        assert numbers.metric == "mean_absolute_error"
        assert numbers.score(parameters, rows, [1.0, -1.0, -0.5]) == pytest.approx((0.5 + 1.5) / 3)
        several, parameters = (
            softmax_regression(2, 3),
            {"weights": np.array([[1.0, -1.0, 0.0], [0.0] * 3]), "bias": np.array([0.0, 0.0, 0.5])},
        )
        assert several.predict(parameters, rows).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (lambda: logistic_regression(0), "num_features"),
        (lambda: logistic_regression(2, fit_intercept=1), "fit_intercept"),  # type: ignore[arg-type]  # on purpose
        (lambda: LinearModel(Softmax(3), 10**7), "num_features"),
        (lambda: logistic_regression(2).predict({"weights": np.zeros(2)}, np.zeros((1, 3))), "shape"),
        (
            lambda: logistic_regression(1).score({"weights": np.zeros(1), "bias": np.zeros(())}, np.zeros((0, 1)), []),
            "at least one row",
        ),
    ],
)
def test_what_does_not_fit_is_refused(attempt: object, complaint: str) -> None:
    assert callable(attempt)
    with pytest.raises(InvalidValue, match=complaint):
        attempt()
