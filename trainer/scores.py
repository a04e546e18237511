"""This module scores a released model on public rows. A score is a statistic of its rows, so private rows never come
here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from trainer.arrays import silent
from trainer.models import Model, Parameters

FloatArray = npt.NDArray[np.float64]

#: Rows are predicted in blocks of this many numbers, or one by one; a hidden layer is taken to have this width.
_BLOCK_NUMBERS, _WIDE_LAYER = 2**21, 1024
#: The most probabilities that are kept at once for ranking: 160 MB.
_RANKED_NUMBERS = 2 * 10**7
#: A confusion table for more classes would be too large to read.
MAX_CONFUSED_CLASSES = 20
#: The number of equal intervals into which the predicted class's probability is divided.
CALIBRATION_BINS = 15
#: A smaller probability of the true class counts as this one.
_LEAST_PROBABILITY = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class ClassScores:
    """Scores of predicted classes.

    Attributes:
        accuracy: Share of rows whose class is predicted.
        balanced_accuracy: Mean, over the classes that occur, of the share of the class's rows that are predicted
            rightly.
        log_loss: Mean of -log of the true class's probability, in nats; None if there are no probabilities, or if some
            are not numbers.
        auc: Area under the ROC curve; for more than two classes, the mean of the areas of each class against the rest.
            None if only one class occurs, or there is too much to rank.
        calibration_error: Mean distance, over equal bins of the predicted class's probability, between that probability
            and the share of rows that are predicted rightly. None where `log_loss` is None.
        confusion_matrix: Rows by true class, columns by predicted class; None for many classes.
    """

    accuracy: float
    balanced_accuracy: float
    log_loss: float | None
    auc: float | None
    calibration_error: float | None
    confusion_matrix: list[list[int]] | None


@dataclass(frozen=True)
class NumberScores:
    """Scores of predicted numbers, in the unit of the scaled label.

    Attributes:
        mean_absolute_error: Mean of |predicted - label|.
        root_mean_squared_error: Root of the mean of (predicted - label)^2; None if squares overflow.
        r_squared: 1 - (sum of squared errors) / (sum of squared distances of labels from their mean); None if squares
            overflow, or if all labels are equal.
    """

    mean_absolute_error: float
    root_mean_squared_error: float | None
    r_squared: float | None


def class_scores(model: Model, parameters: Parameters, features: npt.ArrayLike, labels: npt.ArrayLike) -> ClassScores:
    """Score a classifier on public rows.

    Args:
        model: A model that predicts classes.
        parameters: The released parameters.
        features: shape (n, p), scaled by declared bounds.
        labels: shape (n,), codes of classes.

    Raises:
        InvalidValue: If there are no rows, or the numbers of labels and rows differ.

    Source: calibration error of Guo, Pleiss, Sun & Weinberger 2017 (arXiv 1706.04599), equation (3).

    >>> from trainer.models import logistic_regression
    >>> rows, weights = np.array([[-1.0], [-0.5], [0.5], [1.0]]), {"weights": np.array([2.0]), "bias": np.array(0.0)}
    >>> found = class_scores(logistic_regression(1), weights, rows, [0, 1, 0, 1])
    >>> found.accuracy, found.auc, found.confusion_matrix
    (0.5, 0.75, [[1, 1], [1, 1]])
    """
    rows, given = _checked(features, labels)
    true = given.astype(np.intp)
    predicted, chosen, largest = np.empty(len(true), np.intp), np.empty(len(true)), np.empty(len(true))
    is_ranked = len(true) * model.num_classes <= _RANKED_NUMBERS
    ranked: list[FloatArray] = []
    has_probabilities = True
    for block in row_blocks(model, len(rows)):
        predicted[block] = model.predict(parameters, rows[block])
        shown = model.probabilities(parameters, rows[block])
        has_probabilities = has_probabilities and shown is not None and bool(np.isfinite(shown).all())
        if shown is not None and has_probabilities:
            chosen[block] = np.take_along_axis(shown, true[block, np.newaxis], axis=1)[:, 0]
            largest[block] = np.take_along_axis(shown, predicted[block, np.newaxis], axis=1)[:, 0]
            ranked += [shown] if is_ranked else []
    table = np.zeros((model.num_classes, model.num_classes), dtype=np.int64)
    np.add.at(table, (true, predicted), 1)
    counts, right = table.sum(axis=1), np.diag(table)
    return ClassScores(
        accuracy=float(right.sum() / len(true)),
        balanced_accuracy=float(np.mean(right[counts > 0] / counts[counts > 0])),
        log_loss=float(-np.mean(np.log(np.maximum(chosen, _LEAST_PROBABILITY)))) if has_probabilities else None,
        auc=_auc(np.concatenate(ranked), true) if has_probabilities and is_ranked else None,
        calibration_error=_calibration_error(largest, predicted == true) if has_probabilities else None,
        confusion_matrix=table.tolist() if len(table) <= MAX_CONFUSED_CLASSES else None,
    )


def number_scores(model: Model, parameters: Parameters, features: npt.ArrayLike, labels: npt.ArrayLike) -> NumberScores:
    """Score a regression on public rows, in the unit of the labels that are given.

    Args:
        model: A model that predicts numbers.
        parameters: The released parameters.
        features: shape (n, p), scaled by declared bounds.
        labels: shape (n,), scaled to [-1, 1].

    Raises:
        InvalidValue: If there are no rows, or the numbers of labels and rows differ.
    """
    rows, true = _checked(features, labels)
    predicted = np.concatenate([model.predict(parameters, rows[block]) for block in row_blocks(model, len(rows))])
    with silent():
        errors = predicted.astype(np.float64) - true
        squares = float(np.sum(errors**2))
        spread = float(np.sum((true - np.mean(true)) ** 2))
        return NumberScores(
            mean_absolute_error=float(np.mean(np.abs(errors))),
            root_mean_squared_error=float(np.sqrt(squares / len(true))) if np.isfinite(squares) else None,
            r_squared=1.0 - squares / spread if spread > 0.0 and np.isfinite(squares) else None,
        )


def _checked(features: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    rows, true = np.asarray(features, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if true.ndim != 1 or len(true) == 0 or len(rows) != len(true):
        raise InvalidValue("a score needs at least one row, and one label for each", pointer=("labels",))
    return rows, true


def row_blocks(model: Model, rows: int) -> Iterator[slice]:
    """Yield slices of the rows in order, each with a bounded number of features and logits."""
    step = max(1, _BLOCK_NUMBERS // max(model.num_features, model.num_classes, _WIDE_LAYER))
    yield from (slice(start, start + step) for start in range(0, rows, step))


def _auc(shown: FloatArray, true: npt.NDArray[np.intp]) -> float | None:
    """Return the mean, over classes, of the area of the class against the rest. With two classes both areas are
    equal."""
    areas = [
        _area(shown[:, each], true == each) for each in range(shown.shape[1]) if 0 < np.sum(true == each) < len(true)
    ]
    return float(np.mean(areas)) if areas else None


def _area(scores: FloatArray, is_positive: npt.NDArray[np.bool_]) -> float:
    """Return the probability that a positive row has a larger score than a negative row; equal scores count as one
    half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[place]
    positive = int(is_positive.sum())
    negative = len(scores) - positive
    return float((ranks[is_positive].sum() - positive * (positive + 1) / 2.0) / (positive * negative))


def _calibration_error(probabilities: FloatArray, is_right: npt.NDArray[np.bool_]) -> float:
    bins = np.clip(np.ceil(probabilities * CALIBRATION_BINS).astype(np.intp) - 1, 0, CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=probabilities - is_right, minlength=CALIBRATION_BINS)
    return float(np.abs(gaps).sum() / len(probabilities))
