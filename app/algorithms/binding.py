"""The parts of a run: the data set's public description, the model that fits it, and the constants of its theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from app.algorithms.constants import Derivation
from app.algorithms.geometry import to_domain, to_penalty
from app.algorithms.model_choice import ModelChoice
from app.algorithms.targets import AlgorithmChoice
from app.algorithms.trainable import trainers_of
from app.datasets.columns import CategoryColumn, Column, NumberColumn, as_scaled, split_label
from app.datasets.held_out import split_size
from app.datasets.service import LoadedDataset, columns_of
from app.datasets.table import LabelArray
from app.datasets.versions import Version
from app.kit.fields import Schema
from app.problems import refused_at, unprocessable
from app.tables.datasets import Dataset
from calibrators.presets import Objective
from trainer import models, scaling
from trainer.models import LinearModel, Model


class DataDescription(Schema):
    """The public description of a data set: all that a plan and a model may depend on. A run keeps its own copy."""

    #: The number of rows that are trained on.
    declared_size: int
    #: The number of held-out rows; absent if there are none.
    held_out_size: int | None = Field(None, exclude_if=lambda size: size is None)
    #: The number of slots: the most records that the data set may have. None in descriptions that were stored before
    #: there were capacities.
    capacity: int | None = None
    privacy_unit: str
    features: tuple[Column, ...] = Field(strict=False)
    label: Column

    @classmethod
    def of(cls, dataset: Dataset, version: Version) -> DataDescription:
        """Return the description of one version of a stored data set."""
        features, label = split_label(columns_of(dataset), dataset.label)
        trained_on, held_out = split_size(version.declared_size, dataset.held_out_share)
        return cls(
            declared_size=trained_on,
            held_out_size=held_out if dataset.held_out_share is not None else None,
            capacity=version.capacity,
            privacy_unit=dataset.privacy_unit,
            features=features,
            label=label,
        )

    @classmethod
    def of_inline(cls, data: LoadedDataset) -> DataDescription:
        """Return the description of rows that came in a request."""
        return cls(
            declared_size=data.declared_size,
            capacity=data.capacity,
            privacy_unit="record",
            features=data.columns,
            label=data.label,
        )

    @classmethod
    def of_columns(cls, features: Sequence[Column], label: Column) -> DataDescription:
        """Return a description for uses that depend on the columns alone."""
        return cls(declared_size=1, privacy_unit="record", features=tuple(features), label=label)

    def has_columns_of(self, other: DataDescription) -> bool:
        """Return whether rows of one data set can be read as rows of the other."""
        return self.features == other.features and self.label == other.label

    @property
    def scaled_columns(self) -> list[scaling.Column]:
        """Return the scaling that turns values into features. It depends on the declared bounds and categories
        alone."""
        return [as_scaled(column) for column in self.features]

    def scale(self, features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Turn rows of raw values, shape (n, columns), into rows of features in [-1, 1]. Nothing is fitted."""
        return scaling.scale_features(self.scaled_columns, list(features.T))

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the label's categories in the order of their codes; none if the label is a number."""
        return tuple(self.label.categories) if isinstance(self.label, CategoryColumn) else ()

    def scale_labels(self, labels: LabelArray) -> LabelArray:
        """Return labels for training: codes of categories unchanged, and numbers scaled to [-1, 1] like features."""
        if isinstance(self.label, CategoryColumn):
            return labels
        return as_scaled(self.label).scale(labels.astype(np.float64))[:, 0]

    def unscaled_labels(self, scaled: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return a regression's predictions in the label's own unit; they may lie beyond its bounds."""
        assert isinstance(self.label, NumberColumn), "a category has no unit"
        with np.errstate(over="ignore"):
            return self.label.upper / 2.0 + self.label.lower / 2.0 + self.label_half_width * scaled

    @property
    def label_half_width(self) -> float:
        """Return half the distance between the label's bounds, in the label's own unit. A scaled label of 1 is this far
        from the middle."""
        assert isinstance(self.label, NumberColumn), "a category has no unit"
        return self.label.upper / 2.0 - self.label.lower / 2.0


def build_model(choice: ModelChoice, data: DataDescription) -> Model:
    """Build the model for these columns.

    Raises:
        Problem: 422 when the label does not fit the model.
    """
    _check_label(choice, data)
    width = scaling.num_features(data.scaled_columns)
    options = choice.model_dump()
    if options.get("class_priors") is not None:
        options["class_priors"] = _priors_by_code(options["class_priors"], data)
    with refused_at("model"):
        return models.build(width, num_classes=len(data.classes), **options)


def _priors_by_code(priors: Mapping[str, float], data: DataDescription) -> tuple[float, ...]:
    """Return the share of each class, in the order of the codes."""
    if priors.keys() != set(data.classes):
        detail = f"give one share for each category of the label {data.label.name!r}: {', '.join(data.classes)}"
        raise unprocessable("invalid_value", detail, "model", "class_priors")
    return tuple(priors[name] for name in data.classes)


def _check_label(choice: ModelChoice, data: DataDescription) -> None:
    task = models.TASKS[choice.kind]
    if task is models.Task.MEAN:
        return
    if task is models.Task.REGRESSION:
        if data.classes:
            raise unprocessable(
                "label_not_numeric",
                f"{choice.kind} predicts a number, and the label {data.label.name!r} is a category; use "
                "logistic_regression, softmax_regression, q_norm_hinge or mlp",
                "model",
                "kind",
            )
        return
    if not data.classes:
        raise unprocessable(
            "label_not_categorical",
            f"{choice.kind} predicts a category, and the label {data.label.name!r} is a number; use "
            "linear_regression, huber_regression, quantile_regression or q_norm_regression",
            "model",
            "kind",
        )
    if len(data.classes) < 2:
        detail = f"the label {data.label.name!r} has only one category, so a classifier has nothing to distinguish"
        raise unprocessable("label_not_categorical", detail, "model", "kind")
    if task is models.Task.BINARY and len(data.classes) != 2:
        raise unprocessable(
            "label_not_binary",
            f"{choice.kind} needs a label with 2 categories, and this label has {len(data.classes)}; use "
            "softmax_regression",
            "model",
            "kind",
        )


def facts_of(choice: AlgorithmChoice, kind: str, model: Model, data: DataDescription) -> Objective:
    """Return the public facts about the training objective."""
    derivation = Derivation(model, tuple(data.scaled_columns), to_domain(choice.domain), to_penalty(choice.penalty))
    numbers = isinstance(model, LinearModel) and not model.num_classes
    return Objective(derivation, isinstance(model, LinearModel), numbers, trainers_of(kind))
