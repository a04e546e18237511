"""A model by its per-record gradients: any loss that a caller can differentiate, without a matrix anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

from accounting.errors import InvalidValue, Unsupported
from accounting.numbers import read_integer
from trainer.arrays import Array
from trainer.gradients import PIECE_ROWS, DenseGradients
from trainer.models.model import MAX_FEATURES, Model, Parameters
from trainer.records import Block

MAX_PARAMETERS = 10**9
#: Numbers of one block's gradients: some 64 MB.
_BLOCK_NUMBERS = 2**23

#: From a point (d,), features (r, p) and labels (r,) to gradients (r, d), or to losses (r,).
RowFunction = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True, eq=False)
class PerRecordModel(Model):
    """Gradients come from a function of point, features and labels.

    It is called with a fixed number of rows each time, some of which may be padding, so that its matrix products, if it
    has any, round each record's row alike whatever the others are.

    Attributes:
        inputs: p.
        start: The point that training starts from, shape (d,); public.
        gradient: From (d,), (r, p) and (r,) to (r, d). Row i must be a function of record i and of the point alone.
        loss: The same to (r,); None where losses are not needed.
        classes: As `Model.num_classes`.
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
        rows = 1
        while rows < PIECE_ROWS and 2 * rows * start.size <= _BLOCK_NUMBERS:
            rows *= 2
        object.__setattr__(self, "piece_rows", rows)
        object.__setattr__(self, "largest_piece", rows)
        object.__setattr__(self, "block_rows", rows * max(1, min(16, _BLOCK_NUMBERS // (rows * start.size))))

    @property
    def num_features(self) -> int:
        return self.inputs

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def num_parameters(self) -> int:
        return int(self.start.size)

    def initial(self, stream: AESCounter) -> npt.NDArray[np.float64]:
        return self.start.copy()

    def gradients(self, point: Array, block: Block) -> DenseGradients:
        return DenseGradients(block.xp, self._by_pieces(self.gradient, point, block))

    def losses(self, point: Array, block: Block) -> Array:
        if self.loss is None:
            raise Unsupported("this model was made without its losses", code="unsupported_model", pointer=("model",))
        return self._by_pieces(self.loss, point, block)

    def _by_pieces(self, function: RowFunction, point: Array, block: Block) -> Array:
        count, size = block.features.shape[0], block.piece
        pieces = [slice(start, start + size) for start in range(0, count, size)]
        return block.xp.concat([function(point, block.features[at, :], block.labels[at]) for at in pieces])

    def parameters(self, point: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Named "point", shape (d,)."""
        return {"point": np.array(point)}

    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.generic]:
        raise Unsupported("a loss alone predicts nothing", code="unsupported_model", pointer=("model",))
