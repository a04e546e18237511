"""This module has the trainer's interface of models: gradients of records at a flat point, and names of what is
released."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from trainer.arrays import Array
from trainer.gradients import Gradients
from trainer.keystream import Keystream
from trainer.records import Block

MAX_FEATURES = 10**6

Parameters = Mapping[str, npt.NDArray[np.float64]]


class Model(ABC):
    """A model with d parameters, in one flat vector.

    Attributes:
        kind: The model's name in requests.
        num_features: The number p of features, the length of a row.
        num_classes: The number of classes, which are 0 to num_classes - 1; 0 for real labels in [-1, 1].
        block_rows: The largest number of rows of a block, which bounds the memory of a step.
    """

    kind: ClassVar[str]
    block_rows: int = 2048

    @property
    @abstractmethod
    def num_features(self) -> int: ...

    @property
    @abstractmethod
    def num_classes(self) -> int: ...

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """The length d of a point."""

    @abstractmethod
    def initial(self, stream: Keystream) -> npt.NDArray[np.float64]:
        """Return the point that training starts from, shape (d,).

        Args:
            stream: The stream from which a random point is drawn.
        """

    @abstractmethod
    def gradients(self, point: Array, block: Block) -> Gradients:
        """Return the gradients of the block's losses at the point.

        Args:
            point: The point, shape (d,), in the dtype of the block's features.

        Guarantees:
            - gradients_are_the_derivative: they agree with difference quotients of `losses`.
            - records_do_not_see_each_other: each gradient is a function of its record and of the point alone, bit by
              bit.
        """

    @abstractmethod
    def losses(self, point: Array, block: Block) -> Array:
        """Return the block's losses at the point, shape (B,)."""

    def record_weights(self, block: Block) -> Array | None:
        """Return the public weight of each record, shape (B,), float64, in (0, 1]; None if all weigh the same.

        Gradients and losses already include the weight. Bounds on gradients hold for gradients without the weight.
        """
        return None

    @abstractmethod
    def parameters(self, point: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Return the point's parameters under the names and in the shapes in which they are released."""

    @abstractmethod
    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.generic]:
        """Return the predicted class or real label of each public row, shape (n,).

        A row with a feature that is not finite is read as a row of zeros.
        """

    def probabilities(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        """Return the probability of each class for each public row, shape (n, num_classes).

        Rows are read as in `predict`. Return None if the model's loss gives no probabilities.
        """
        return None

    @property
    def metric(self) -> str:
        """Return the name of the score: "accuracy", or "mean_absolute_error" for real labels."""
        return "accuracy" if self.num_classes else "mean_absolute_error"

    def score(self, parameters: Parameters, features: npt.ArrayLike, labels: npt.ArrayLike) -> float:
        """Return how well rows are predicted. This is a statistic of the rows, so it is for public rows only.

        Returns:
            The share of rows whose prediction is their label, or the mean distance between the two.

        Raises:
            InvalidValue: If there are no rows, or the numbers of labels and rows differ.
        """
        predicted, given = self.predict(parameters, features), np.asarray(labels)
        if predicted.size == 0 or given.shape != predicted.shape:
            raise InvalidValue(f"{self.metric} needs at least one row, and one label for each", pointer=("labels",))
        if self.num_classes:
            return float(np.mean(predicted == given))
        return float(np.mean(np.abs(predicted.astype(np.float64) - given.astype(np.float64))))


def public_rows(features: npt.ArrayLike, num_features: int) -> npt.NDArray[np.float64]:
    """Return rows to predict, shape (n, p). A row with a feature that is not finite becomes zero.

    Raises:
        InvalidValue: If the features are not of shape (n, p).
    """
    rows = np.asarray(features, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != num_features:
        raise InvalidValue(f"features must be of shape (n, {num_features})", pointer=("features",))
    return np.where(np.all(np.isfinite(rows), axis=1)[:, None], rows, 0.0)
