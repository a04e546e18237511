"""The mean of the features is a model: the point with the least mean squared distance from the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from accounting.errors import Unsupported
from accounting.numbers import read_integer
from trainer.arrays import Array
from trainer.gradients import DenseGradients
from trainer.keystream import Keystream
from trainer.models.model import MAX_FEATURES, Model, Parameters
from trainer.records import Block


@dataclass(frozen=True)
class MeanModel(Model):
    """The model of a mean. The loss of a record x at w is |w - x|^2 / 2 and its gradient is w - x; labels are not read.

    Attributes:
        inputs: The number p of inputs, the length of a record and of the point.

    >>> MeanModel(3).num_parameters
    3
    """

    kind: ClassVar[str] = "mean"
    inputs: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", read_integer("num_features", self.inputs, 1, MAX_FEATURES))

    @property
    def num_features(self) -> int:
        return self.inputs

    @property
    def num_classes(self) -> int:
        return 0

    @property
    def num_parameters(self) -> int:
        return self.inputs

    def initial(self, stream: Keystream) -> npt.NDArray[np.float64]:
        """Return zeros; from there a step of size 1 leads to the mean."""
        return np.zeros(self.inputs)

    def gradients(self, point: Array, block: Block) -> DenseGradients:
        return DenseGradients(block.xp, point - block.features)

    def losses(self, point: Array, block: Block) -> Array:
        return 0.5 * block.xp.sum((point - block.features) ** 2, axis=1)

    def parameters(self, point: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Return the array "mean", of shape (p,)."""
        return {"mean": np.array(point)}

    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.generic]:
        raise Unsupported("a mean predicts no label", code="unsupported_model", pointer=("model",))
