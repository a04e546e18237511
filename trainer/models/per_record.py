"""A model by its per-record gradients: any loss that a caller can differentiate, without a matrix anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

from accounting.errors import InvalidValue, Unsupported
from accounting.numbers import read_integer
from trainer.arrays import Array, to_host
from trainer.gradients import PIECE_ROWS, DenseGradients
from trainer.models.model import MAX_FEATURES, Model, Parameters
from trainer.records import Block

MAX_PARAMETERS = 10**9
#: Numbers of one block's gradients: some 64 MB.
_BLOCK_NUMBERS = 2**23
#: Random rows that are put in every place.
_TRIES = 8

#: From a point (d,), features (r, p) and labels (r,) to gradients (r, d), or to losses (r,).
RowFunction = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True, eq=False)
class PerRecordModel(Model):
    """Gradients come from a function of point, features and labels.

    It is called with a fixed number of rows each time, some of which may be padding: with the most for which it was
    seen to treat a row alike in every place, bit by bit (`trainer.uniform` says why). That is measured at random points
    and rows, which what it computes must not branch on.

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
    _together: dict[tuple[bool, str, int], int] = field(default_factory=dict, init=False, repr=False)

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
        size = self._rows_together(function, point, block)
        pieces = [slice(start, start + size) for start in range(0, block.features.shape[0], size)]
        return block.xp.concat([function(point, block.features[at, :], block.labels[at]) for at in pieces])

    def _rows_together(self, function: RowFunction, point: Array, block: Block) -> int:
        """The largest divisor of a piece for which the function treats all places alike."""
        key = (function is self.gradient, str(block.features.dtype), block.piece)  # a callable may have no hash
        if key not in self._together:
            divisors = (rows for rows in range(block.piece, 1, -1) if block.piece % rows == 0)
            alike = (rows for rows in divisors if self._is_uniform(function, point, block, rows))
            self._together[key] = next(alike, 1)
        return self._together[key]

    def _is_uniform(self, function: RowFunction, point: Array, block: Block, rows: int) -> bool:
        xp, rng, dtype = block.xp, np.random.default_rng(rows), block.features.dtype
        for _ in range(_TRIES):
            at = xp.astype(xp.asarray(rng.standard_normal(point.shape)), dtype)
            row = xp.astype(xp.asarray(rng.standard_normal((1, self.inputs))), dtype)
            labels = xp.zeros(rows, dtype=block.labels.dtype)
            made = to_host(function(at, xp.concat([row] * rows), labels))
            if not np.array_equal(made, np.broadcast_to(made[:1], made.shape), equal_nan=True):
                return False
        return True

    def parameters(self, point: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Named "point", shape (d,)."""
        return {"point": np.array(point)}

    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.generic]:
        raise Unsupported("a loss alone predicts nothing", code="unsupported_model", pointer=("model",))
