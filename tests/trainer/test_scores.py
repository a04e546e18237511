"""Scores on public rows beside scikit-learn's, and where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from accounting.errors import InvalidValue
from trainer import models, scores
from trainer.scores import class_scores, number_scores

FEATURES = 4


def drawn(kind: str, rows: int = 500, **options):
    """A model with parameters that predict better than chance, rows, and labels that occur unequally often."""
    random = np.random.default_rng(len(kind) + rows)
    model = models.build(FEATURES, kind=kind, num_classes=options.pop("num_classes", 2), **options)
    parameters = model.parameters(random.normal(size=model.num_parameters))
    features = np.round(random.uniform(-1, 1, size=(rows, FEATURES)), 1)
    predicted = model.predict(parameters, features)
    noise = random.random(rows) < 0.4
    labels = np.where(noise, np.minimum(random.geometric(0.6, rows) - 1, max(model.num_classes - 1, 0)), predicted)
    return model, parameters, features, labels


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("logistic_regression", {}),
        ("softmax_regression", {"num_classes": 2}),
        ("softmax_regression", {"num_classes": 5}),
        ("mlp", {"num_classes": 4, "hidden": (7,), "activation": "tanh"}),
    ],
)
def test_classes_are_scored_as_by_scikit_learn(kind, options, monkeypatch):
    # Several blocks, the last of them not full.
    monkeypatch.setattr(scores, "_BLOCK_NUMBERS", 64 * 1024)
    model, parameters, features, labels = drawn(kind, **options)
    found = class_scores(model, parameters, features, labels)
    predicted, shown = model.predict(parameters, features), model.probabilities(parameters, features)
    assert shown is not None
    assert np.argmax(shown, axis=1).tolist() == predicted.tolist()
    assert found.accuracy == model.score(parameters, features, labels) == metrics.accuracy_score(labels, predicted)
    assert 0.3 < found.accuracy < 0.95
    assert found.balanced_accuracy == pytest.approx(metrics.balanced_accuracy_score(labels, predicted), abs=1e-12)
    assert found.log_loss == pytest.approx(metrics.log_loss(labels, shown), rel=1e-12)
    ranked = shown[:, 1] if model.num_classes == 2 else shown
    assert found.auc == pytest.approx(metrics.roc_auc_score(labels, ranked, multi_class="ovr"), abs=1e-12)
    assert found.confusion_matrix == metrics.confusion_matrix(labels, predicted).tolist()


def test_numbers_are_scored_as_by_scikit_learn():
    model, parameters, features, _ = drawn("linear_regression")
    predicted = model.predict(parameters, features)
    labels = np.clip(predicted + np.random.default_rng(1).normal(scale=0.3, size=len(predicted)), -1, 1)
    found = number_scores(model, parameters, features, labels)
    assert found.mean_absolute_error == pytest.approx(metrics.mean_absolute_error(labels, predicted), rel=1e-12)
    assert found.root_mean_squared_error == pytest.approx(metrics.root_mean_squared_error(labels, predicted), rel=1e-12)
    assert found.r_squared == pytest.approx(metrics.r2_score(labels, predicted), rel=1e-12)


def test_the_calibration_error_is_the_mean_gap_over_bins():
    # Probabilities of the second class by construction: two rows at 0.9, of which one is right, and two at 0.6.
    model = models.logistic_regression(1, fit_intercept=False)
    logits = np.log(np.array([0.9, 0.9, 0.6, 0.6]) / (1.0 - np.array([0.9, 0.9, 0.6, 0.6])))
    found = class_scores(model, {"weights": np.array([1.0])}, logits[:, None], [1, 0, 1, 1])
    assert found.calibration_error == pytest.approx((2 * abs(0.9 - 0.5) + 2 * abs(0.6 - 1.0)) / 4)


def test_one_class_has_no_curve_and_equal_labels_no_variance():
    model, parameters, features, _ = drawn("logistic_regression")
    found = class_scores(model, parameters, features, np.ones(len(features)))
    assert found.auc is None
    assert found.log_loss is not None
    assert found.balanced_accuracy == found.accuracy
    model, parameters, features, _ = drawn("linear_regression")
    assert number_scores(model, parameters, features, np.zeros(len(features))).r_squared is None


def test_a_hinge_makes_no_probabilities():
    found = class_scores(*drawn("q_norm_hinge"))
    assert (found.log_loss, found.auc, found.calibration_error) == (None, None, None)
    assert found.confusion_matrix is not None


def test_parameters_that_overflow_have_no_probabilities_and_are_scored_without():
    model = models.softmax_regression(1, 3)
    weights = {"weights": np.full((1, 3), np.inf), "bias": np.zeros(3)}
    found = class_scores(model, weights, [[1.0], [1.0]], [0, 1])
    assert (found.accuracy, found.log_loss, found.auc) == (0.5, None, None)


def test_too_many_classes_have_no_table_and_too_many_rows_no_curve(monkeypatch):
    found = class_scores(*drawn("softmax_regression", num_classes=scores.MAX_CONFUSED_CLASSES + 1))
    assert found.confusion_matrix is None
    assert found.auc is not None
    monkeypatch.setattr(scores, "_RANKED_NUMBERS", 999)
    found = class_scores(*drawn("logistic_regression"))
    assert found.auc is None
    assert found.log_loss is not None


@pytest.mark.parametrize(("features", "labels"), [(np.zeros((0, 4)), []), (np.zeros((2, 4)), [0])])
def test_rows_and_labels_go_together(features, labels):
    model, parameters, *_ = drawn("logistic_regression")
    with pytest.raises(InvalidValue, match="one label for each"):
        class_scores(model, parameters, features, labels)
