"""This package has the models: what is trained, and how it is scored on public rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from accounting.errors import InvalidValue, one_of
from trainer.losses import Huber, Logistic, Loss, QNormHinge, QNormRegression, Quantile, Softmax, Squared, Weighted
from trainer.losses.weighted import weights_of_priors
from trainer.models.linear import Holder, LinearModel
from trainer.models.mean import MeanModel
from trainer.models.model import Model, Parameters
from trainer.models.per_record import PerRecordModel
from trainer.models.perceptron import MultilayerPerceptron

__all__ = [
    "MODELS",
    "TASKS",
    "Holder",
    "LinearModel",
    "MeanModel",
    "Model",
    "MultilayerPerceptron",
    "Parameters",
    "PerRecordModel",
    "Task",
    "build",
    "logistic_regression",
    "softmax_regression",
]


class Task(StrEnum):
    """The kind of labels that a model learns."""

    BINARY = "binary"
    CLASSIFICATION = "classification"
    REGRESSION = "regression"
    MEAN = "mean"
    """None: the features are described, whatever the label is."""


TASKS: dict[str, Task] = {
    Logistic.kind: Task.BINARY,
    Softmax.kind: Task.CLASSIFICATION,
    Squared.kind: Task.REGRESSION,
    Huber.kind: Task.REGRESSION,
    Quantile.kind: Task.REGRESSION,
    QNormRegression.kind: Task.REGRESSION,
    QNormHinge.kind: Task.BINARY,
    MultilayerPerceptron.kind: Task.CLASSIFICATION,
    MeanModel.kind: Task.MEAN,
}
#: The kinds that `build` knows.
MODELS: tuple[str, ...] = tuple(TASKS)

_LOSSES: Mapping[str, Callable[..., Loss]] = {
    cls.kind: cls for cls in (Logistic, Squared, Huber, Quantile, QNormRegression, QNormHinge)
}


def build(
    num_features: int,
    *,
    kind: str,
    num_classes: int = 0,
    fit_intercept: bool = True,
    hidden: Sequence[int] = (256,),
    activation: str = "relu",
    class_priors: Sequence[float] | None = None,
    **options: Any,
) -> LinearModel | MeanModel | MultilayerPerceptron:
    """Return the model of a kind, for rows of this many features.

    Args:
        kind: One of `MODELS`.
        num_classes: The number of classes of the labels; it is used only if the kind can have any number of classes.
        fit_intercept: Whether a linear model has an intercept.
        hidden: Widths of a multilayer perceptron's hidden layers.
        activation: The activation of a multilayer perceptron.
        class_priors: The public share of each class, in the order of the codes, for a model that predicts classes.
            Classes are then weighted so that all have the same total weight. With None all records have the same
            weight.
        options: The options of the kind's loss: threshold, quantile or q.

    Raises:
        InvalidValue: If the kind is unknown, the kind does not have an option, or a number is outside its range.

    >>> build(3, kind="q_norm_hinge", q=1.25).loss.q
    1.25
    """
    if kind not in MODELS:
        raise InvalidValue(f"kind must be {one_of(MODELS)}", pointer=("kind",))
    if class_priors is not None and TASKS[kind] not in (Task.BINARY, Task.CLASSIFICATION):
        raise InvalidValue(f"{kind} predicts no class; leave class_priors out", pointer=("class_priors",))
    weights = () if class_priors is None else weights_of_priors(class_priors)
    if kind == MeanModel.kind:
        _no_options(kind, options)
        return MeanModel(num_features)
    if kind == MultilayerPerceptron.kind:
        _no_options(kind, options)
        return MultilayerPerceptron(num_features, num_classes, tuple(hidden), activation, weights)
    loss = _loss(kind, num_classes, options)
    return LinearModel(Weighted(loss, weights) if weights else loss, num_features, fit_intercept)


def _loss(kind: str, num_classes: int, options: Mapping[str, Any]) -> Loss:
    if kind == Softmax.kind:
        _no_options(kind, options)
        return Softmax(num_classes)
    known = getattr(_LOSSES[kind], "__match_args__", ())
    _no_options(kind, {name: value for name, value in options.items() if name not in known})
    return _LOSSES[kind](**options)


def logistic_regression(num_features: int, *, fit_intercept: bool = True) -> LinearModel:
    """Return the logistic regression: two classes, one logit."""
    return LinearModel(Logistic(), num_features, fit_intercept)


def softmax_regression(num_features: int, num_classes: int, *, fit_intercept: bool = True) -> LinearModel:
    """Return the softmax regression: K classes, K logits."""
    return LinearModel(Softmax(num_classes), num_features, fit_intercept)


def _no_options(kind: str, options: Mapping[str, Any]) -> None:
    if options:
        raise InvalidValue(f"{kind} has no {one_of(sorted(options))}", pointer=(sorted(options)[0],))
