"""What a run is made of: the data set's public description, the model that fits it, its theory's constants."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from pydantic import Field

from accounting.errors import AccountingError
from app.datasets.columns import CategoryColumn, Column, split_label
from app.datasets.models import Dataset
from app.datasets.service import LoadedDataset, columns_of
from app.kit.fields import Schema
from app.problems import from_accounting, unprocessable
from app.runs.schemas import LinearModelChoice
from trainer import scaling
from trainer.models import LogisticRegression, Model, SoftmaxRegression


class DataDescription(Schema):
    """The public description of a data set: all that a plan and a model may depend on. A run keeps its own copy."""

    declared_size: int
    privacy_unit: str
    features: tuple[Column, ...] = Field(strict=False)
    label: Column

    @classmethod
    def of(cls, dataset: Dataset) -> DataDescription:
        """What a stored data set declares."""
        features, label = split_label(columns_of(dataset), dataset.label)
        return cls(
            declared_size=dataset.declared_size, privacy_unit=dataset.privacy_unit, features=features, label=label
        )

    @classmethod
    def of_inline(cls, data: LoadedDataset) -> DataDescription:
        """What rows that came in a request declare."""
        return cls(declared_size=data.declared_size, privacy_unit="record", features=data.columns, label=data.label)

    def has_columns_of(self, other: DataDescription) -> bool:
        """Whether rows of the one can be read as rows of the other."""
        return self.features == other.features and self.label == other.label

    @property
    def scaled_columns(self) -> list[scaling.Column]:
        """How values become features: by the declared bounds and categories alone."""
        return [_scaled(column) for column in self.features]

    def scale(self, features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Rows of raw values, shape (n, columns), to rows of features in [-1, 1]; nothing is fitted."""
        return scaling.scale_features(self.scaled_columns, list(features.T))

    def classes(self) -> tuple[str, ...]:
        """The label's categories, in the order of their codes.

        Raises:
            Problem: 422 when the label is a number.
        """
        if not isinstance(self.label, CategoryColumn):
            raise unprocessable(
                "label_not_categorical",
                f"the label {self.label.name!r} is a number; logistic and softmax regression need a category column",
                "model",
                "kind",
            )
        return tuple(self.label.categories)


def build_model(choice: LinearModelChoice, data: DataDescription) -> Model:
    """The model for these columns.

    Raises:
        Problem: 422 when the label does not fit the model.
    """
    classes = data.classes()
    width = scaling.num_features(data.scaled_columns)
    if choice.kind == LogisticRegression.kind and len(classes) != 2:
        raise unprocessable(
            "label_not_binary",
            f"logistic_regression needs a label of 2 categories, this one has {len(classes)}; use softmax_regression",
            "model",
            "kind",
        )
    try:
        if choice.kind == LogisticRegression.kind:
            return LogisticRegression(width, fit_intercept=choice.fit_intercept)
        return SoftmaxRegression(width, len(classes), fit_intercept=choice.fit_intercept)
    except AccountingError as error:
        raise from_accounting(error, "model") from None


def assumptions_of(model: Model, data: DataDescription) -> dict[str, float]:
    """Constants of the training objective that follow from the model and the declared bounds alone.

    A scaled row has l2 norm at most sqrt(columns); the model's smoothness and gradient norm at that bound give L_0
    and, as |g - grad f| <= |g| + |grad f|, tau_0. At zero parameters the mean loss is log K, and no loss is negative,
    so D_0 <= log K.
    """
    bound = scaling.feature_norm_bound(data.scaled_columns)
    return {
        "initial_gap": math.log(len(data.classes())),
        "generalized_smoothness_l0": model.smoothness(bound),
        "deviation_tau0": 2.0 * model.gradient_norm_bound(bound),
    }


def _scaled(column: Column) -> scaling.Column:
    if isinstance(column, CategoryColumn):
        return scaling.CategoryColumn(len(column.categories))
    return scaling.NumberColumn(column.lower, column.upper)
