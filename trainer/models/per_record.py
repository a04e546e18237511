"""A model that is given by its per-record gradients: any loss that a caller can differentiate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue, Unsupported
from accounting.numbers import read_integer
from trainer.arrays import Array
from trainer.gradients import DenseGradients
from trainer.keystream import Keystream
from trainer.models.model import MAX_FEATURES, Model, Parameters
from trainer.records import Block

MAX_PARAMETERS = 10**9
#: The number of entries of one block's gradients: some 64 MB.
_BLOCK_NUMBERS = 2**23

#: From a point (d,), features (r, p) and labels (r,) to gradients (r, d), or to losses (r,).
RowFunction = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True, eq=False)
class PerRecordModel(Model):
    """A model whose gradients come from a function of point, features and labels.

    The function is called with all rows of a block, whose number is public; some rows may be padding.

    Attributes:
        inputs: The number p of inputs.
        start: The point that training starts from, shape (d,); public.
        gradient: A function from (d,), (r, p) and (r,) to (r, d). Row i must depend on record i and on the point alone.
        loss: A function of the same arguments to (r,); None if losses are not needed.
        classes: The same as `Model.num_classes`.
    """

    kind: ClassVar[str] = "per_record"
    inputs: int
    start: npt.NDArray[np.float64]
    gradient: RowFunction
    loss: RowFunction | None = None
    classes: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", read_integer("num_features", self.inputs, 1, MAX_FEATURES))
        start = np.array(self.start, dtype=np.float64)
        if start.ndim != 1 or not 1 <= start.size <= MAX_PARAMETERS:
            raise InvalidValue("start must be a vector of parameters", pointer=("start",))
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "block_rows", max(1, min(self.block_rows, _BLOCK_NUMBERS // start.size)))

    @property
    def num_features(self) -> int:
        return self.inputs

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def num_parameters(self) -> int:
        return int(self.start.size)

    def initial(self, stream: Keystream) -> npt.NDArray[np.float64]:
        return self.start.copy()

    def gradients(self, point: Array, block: Block) -> DenseGradients:
        return DenseGradients(block.xp, self.gradient(point, block.features, block.labels))

    def losses(self, point: Array, block: Block) -> Array:
        if self.loss is None:
            raise Unsupported(
                "this model was built without a loss function", code="unsupported_model", pointer=("model",)
            )
        return self.loss(point, block.features, block.labels)

    def parameters(self, point: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Return the array "point", of shape (d,)."""
        return {"point": np.array(point)}

    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.generic]:
        raise Unsupported(
            "a model that is given by its gradients predicts nothing", code="unsupported_model", pointer=("model",)
        )
