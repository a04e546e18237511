"""Synthetic rows keep to the declared constants, and their best point is the best."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.errors import InvalidValue, Unsupported
from trainer.losses import Softmax
from trainer.simulation.populations import LabelledRows, dual_order, labelled_rows, records_about_a_mean

KINDS = (
    "logistic_regression",
    "softmax_regression",
    "linear_regression",
    "huber_regression",
    "quantile_regression",
    "q_norm_regression",
    "q_norm_hinge",
)
CONSTANTS = {"lipschitz": 1.0, "smoothness": 0.5, "radius": 2.0}
WITH_INTERCEPT = {"lipschitz": 6.0, "smoothness": 3.0, "radius": 2.0}
every_law = pytest.mark.parametrize(
    ("kind", "norm_order", "fit_intercept"),
    [(kind, p, intercept) for kind in KINDS for p in (1.0, 1.5, 2.0) for intercept in (False, True)],
)


def law(kind: str, norm_order: float, fit_intercept: bool = False, strength: float = 0.0) -> LabelledRows:
    random, constants = np.random.default_rng(1), WITH_INTERCEPT if fit_intercept else CONSTANTS
    return labelled_rows(
        kind, 12, norm_order, constants, random=random, classes=3, fit_intercept=fit_intercept, strength=strength
    )


def inputs(rows: LabelledRows, features: np.ndarray) -> np.ndarray:
    """The features, with the constant of an intercept."""
    return np.column_stack([features, np.ones(len(features))]) if rows.model.fit_intercept else features


def norms(rows: np.ndarray, order: float) -> np.ndarray:
    found: np.ndarray = np.linalg.norm(rows.reshape(len(rows), -1), ord=order, axis=1)
    return found


@every_law
def test_constants_hold(kind: str, norm_order: float, fit_intercept: bool) -> None:
    """The constants bound gradients at points of the ball, and their changes between points, in the dual norm."""
    rows, random = law(kind, norm_order, fit_intercept), np.random.default_rng(2)
    features, labels = rows.draw(2000, random)
    features, constants = inputs(rows, features), WITH_INTERCEPT if fit_intercept else CONSTANTS
    dual, loss = dual_order(norm_order), rows.model.loss
    assert float(np.sum(np.abs(rows.best) ** norm_order) ** (1 / norm_order)) <= 2.0 * (1 + 1e-12)
    for _ in range(20):
        points = random.normal(size=(2, *rows.best.shape)) ** 3
        points *= (
            2.0 / np.array([np.sum(np.abs(each) ** norm_order) ** (1 / norm_order) for each in points])[:, None, None]
        )
        slopes = [loss.residuals(np, features @ point, labels) for point in points]
        gradients = [np.einsum("ij,ik->ijk", features, slope) for slope in slopes]
        assert norms(gradients[0], dual).max() <= constants["lipschitz"] * (1 + 1e-9)
        if loss.curvature is not None:
            apart = float(np.sum(np.abs(points[0] - points[1]) ** norm_order) ** (1 / norm_order))
            assert norms(gradients[0] - gradients[1], dual).max() <= constants["smoothness"] * apart * (1 + 1e-9)


@every_law
def test_the_best_point_is_the_best(kind: str, norm_order: float, fit_intercept: bool) -> None:
    """The mean gradient vanishes there, up to sampling; what is farther off is worse."""
    rows, random = law(kind, norm_order, fit_intercept), np.random.default_rng(3)
    features, labels = rows.draw(40_000, random)
    read = inputs(rows, features)
    slopes = rows.model.loss.residuals(np, read @ rows.best, labels)
    gradients = np.einsum("ij,ik->ijk", read, slopes).reshape(len(features), -1)
    errors = gradients.std(axis=0) / math.sqrt(len(gradients)) + 1e-12
    assert np.abs(gradients.mean(axis=0) / errors).max() < 4.5
    start = rows.before_training(features, labels)
    assert start > 0.005
    best, half = (rows.model.parameters(share * rows.best.ravel()) for share in (1.0, 0.5))
    assert rows.excess(best, features, labels) == 0.0
    assert 0.0 < rows.excess(half, features, labels) < start


def test_a_penalty_has_its_share_of_the_smoothness() -> None:
    """Curvature 1/4 at rows of length B: B^2/4 + 0.3 = 0.5."""
    assert law("logistic_regression", 2.0, strength=0.3).feature_bound == pytest.approx(0.8**0.5)
    with pytest.raises(InvalidValue, match="no room for features beside the penalty"):
        law("logistic_regression", 2.0, strength=1.5)


def test_an_intercept_needs_room_and_parameters() -> None:
    with pytest.raises(InvalidValue, match="no room for features beside the intercept"):
        labelled_rows(
            "logistic_regression", 5, 2.0, {"lipschitz": 1.0}, random=np.random.default_rng(0), fit_intercept=True
        )
    with pytest.raises(InvalidValue, match="at least 6 parameters"):
        labelled_rows("softmax_regression", 3, 2.0, {}, random=np.random.default_rng(0), classes=3, fit_intercept=True)


def test_lengths_have_the_moments_that_are_declared_and_few_more() -> None:
    constants = {"moment_order": 4.0, "moment_bound": 2.0, "radius": 1.0}
    random = np.random.default_rng(4)
    rows = labelled_rows("logistic_regression", 10, 2.0, constants, random=random, is_heavy_tailed=True)
    features, _ = rows.draw(400_000, random)
    lengths = np.linalg.norm(features, axis=1)
    assert np.mean(lengths**4) ** 0.25 <= 2.0 * 1.02
    assert lengths.max() > 6.0, "rows beyond any bound of the length"
    rows = labelled_rows(
        "logistic_regression", 10, 2.0, constants, random=random, fit_intercept=True, is_heavy_tailed=True
    )
    lengths = np.linalg.norm(inputs(rows, rows.draw(400_000, random)[0]), axis=1)
    assert np.mean(lengths**4) ** 0.25 <= 2.0 * 1.02
    with pytest.raises(Unsupported, match="the labels of this loss are bounded"):
        labelled_rows("linear_regression", 10, 2.0, constants, random=random, is_heavy_tailed=True)


@pytest.mark.parametrize("is_heavy_tailed", [False, True])
def test_records_about_a_mean_are_within_their_moments(is_heavy_tailed: bool) -> None:
    constants = {"moment_order": 4.0, "moment_bound": 2.0, "coordinate_moment_bound": 0.5, "mean_bound": 1.0}
    random = np.random.default_rng(5)
    law = records_about_a_mean(10, constants, random=random, is_heavy_tailed=is_heavy_tailed)
    records, _ = law.draw(200_000, random)
    assert np.linalg.norm(law.mean) <= 1.0 + 1e-12
    assert np.mean(np.linalg.norm(records, axis=1) ** 4) ** 0.25 <= 2.0
    assert np.mean((records - law.mean) ** 4, axis=0).max() ** 0.25 <= 0.5 * 1.02
    assert np.linalg.norm(records.mean(axis=0) - law.mean) < 0.02
    assert law.excess({"mean": law.mean + 0.1}, records, records) == pytest.approx(0.1)


def test_without_constants_features_lie_in_a_box() -> None:
    random = np.random.default_rng(6)
    flat = labelled_rows("logistic_regression", 9, 1.0, {}, random=random)
    assert flat.feature_bound == 1.0
    assert labelled_rows("logistic_regression", 9, 2.0, {}, random=random).feature_bound == 3.0
    features, _ = flat.draw(100, random)
    assert np.abs(features).max() <= 1.0


def test_parameters_that_make_no_model_are_refused() -> None:
    with pytest.raises(InvalidValue, match="multiple of 3"):
        labelled_rows("softmax_regression", 10, 2.0, {}, random=np.random.default_rng(0), classes=3)
    rows = law("softmax_regression", 2.0)
    assert isinstance(rows.model.loss, Softmax)
    assert rows.best.shape == (4, 3)
