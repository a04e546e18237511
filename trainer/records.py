"""Private rows, made ready once: what is not finite or too large to square becomes zero.

All of it is row by row, so no row changes how another is read, and nothing here raises or warns because of a value.

Rows are kept in lanes: each draws one of them, independently of all others and of its values. A batch is summed lane by
lane, so that one record more or less changes the rounding of its own lane's sum and of no other (`trainer.batches`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from trainer.arrays import Array, Namespace, as_float64, float_dtype, namespace_of, on_host, silent
from trainer.gradients import PIECE_ROWS

#: Rows handled at a time: bounds the memory of float64 intermediates.
BLOCK_ROWS = 4096
#: Records of a step in one lane, in the mean.
LANE_ROWS = 256
#: Lanes whose records are gathered together, and whose sums are added in the run's dtype.
LANES_AT_ONCE = 4
#: By dtype: a row with an entry beyond this becomes zero. Squares and products of what is left do not overflow.
LARGEST_ENTRIES = {"float64": 1e100, "float32": 1e18}

Indices = npt.NDArray[np.intp]


class Rows(Protocol):
    """What rows must look like: a model says so, and is one."""

    @property
    def num_features(self) -> int: ...

    @property
    def num_classes(self) -> int:
        """0 for real labels."""
        ...


class Words(Protocol):
    """A source of random 64-bit words."""

    def random_raw(self, size: int) -> npt.NDArray[np.uint64]: ...


@dataclass(frozen=True)
class Block:
    """Some records, in the order in which they were asked for, padded by others to a multiple of a number of rows.

    Attributes:
        xp: The arrays' namespace.
        features: shape (B, p), the run's dtype.
        labels: shape (B,): classes as int64, or real numbers in the run's dtype.
        squares: shape (B,), float64: upper bounds of the features' squared l2 norms, as `squared_norms` gives them.
        valid: shape (B,), float64: 1, or 0 for a row that became zero.
        piece: B is a multiple of so many rows, which are multiplied by a matrix together.
    """

    xp: Namespace
    features: Array
    labels: Array
    squares: Array
    valid: Array
    piece: int = PIECE_ROWS

    def each(self, pick: Callable[[Array], Array], piece: int) -> Block:
        """The block of what ``pick`` makes of each of the arrays."""
        return Block(self.xp, pick(self.features), pick(self.labels), pick(self.squares), pick(self.valid), piece)


@dataclass(frozen=True)
class Records:
    """All records, sorted by lane, and a piece's worth of padding after them.

    Attributes:
        all: Everything, the padding included.
        lane_starts: shape (lanes + 1,): positions where lanes begin; the last is the number of records.
        positions: shape (n,): where each row that was given stands now.
    """

    all: Block
    lane_starts: Indices
    positions: Indices

    @property
    def piece(self) -> int:
        """Rows of a piece that suits the run's batches, a public number."""
        return self.all.piece

    @property
    def xp(self) -> Namespace:
        return self.all.xp

    @property
    def count(self) -> int:
        """Realised number of rows; private."""
        return int(self.positions.size)

    def block(self, rows: slice | Indices, piece: int = PIECE_ROWS) -> Block:
        """The records at these positions, padded to whole pieces of ``piece`` rows.

        Whatever stands in the padding is to be left out of sums.

        Args:
            piece: At most `PIECE_ROWS`, or the run's own `piece`.
        """
        xp, source = self.xp, self.all
        if isinstance(rows, slice):
            chosen = slice(rows.start, rows.start + _whole(rows.stop - rows.start, piece))
            return source.each(lambda array: array[chosen, ...], piece)
        padded = np.full(_whole(rows.size, piece), self.count, dtype=np.intp)
        padded[: rows.size] = rows
        indices = padded if on_host(xp) else xp.asarray(padded)
        return source.each(lambda array: xp.take(array, indices, axis=0), piece)


def _whole(rows: int, piece: int) -> int:
    """The least multiple of ``piece`` that is no less than ``rows``."""
    return -(-rows // piece) * piece


def lanes_for(rows_per_step: float) -> int:
    """How many lanes a run needs whose steps take so many records in the mean.

    >>> lanes_for(10.0), lanes_for(1024.0)
    (1, 4)
    """
    return max(1, math.ceil(rows_per_step / LANE_ROWS))


def piece_for(rows_per_step: float) -> int:
    """Rows of a piece that nearly always holds the records that are gathered together: their mean and two deviations.

    >>> piece_for(0.5), piece_for(256.0), piece_for(1024.0), piece_for(60_000.0)
    (16, 288, 1088, 1088)
    """
    lanes = lanes_for(rows_per_step)
    mean = rows_per_step / lanes * min(lanes, LANES_AT_ONCE)
    return 16 * math.ceil((mean + 2.0 * math.sqrt(mean)) / 16.0)


def prepare(
    model: Rows, features: Array, labels: Array, dtype: str, lanes: int, words: Words, piece: int = PIECE_ROWS
) -> Records:
    """Copy features and labels into the form that training reads.

    Args:
        features: shape (n, p); n may be 0.
        labels: shape (n,). A class between two is rounded, one outside their range is clipped to it; a real label is
            clipped to [-1, 1].
        dtype: "float64" or "float32", of the stored rows.
        lanes: See `lanes_for`; a public number.
        words: Where each row's lane is drawn from.
        piece: See `piece_for`; a public number.

    Guarantees:
        - unusable_rows_become_zero: a NaN, an infinity or a magnitude above `LARGEST_ENTRIES` in a row's features, or a
          label that is not finite, makes the row invalid; an invalid row contributes nothing at any parameters.
        - rows_are_independent: replacing a row changes nothing that is kept of the others.
        - silent: no value raises or warns.

    Raises:
        InvalidValue: the shapes are not (n, p) and (n,), or dtype is unknown. Sizes of the data are not in the message.
    """
    xp = namespace_of(features)
    storage = float_dtype(xp, dtype)
    features, labels = xp.asarray(features), xp.asarray(labels)
    if len(features.shape) != 2 or features.shape[1] != model.num_features:
        raise InvalidValue(f"features must be of shape (n, {model.num_features})", pointer=("features",))
    if len(labels.shape) != 1 or labels.shape[0] != features.shape[0]:
        raise InvalidValue("labels must be of shape (n,), with one label for each row of features", pointer=("labels",))
    count = features.shape[0]
    drawn = (words.random_raw(count) % np.uint64(lanes)).astype(np.intp)
    order = np.argsort(drawn, kind="stable")
    positions = np.empty(count, dtype=np.intp)
    positions[order] = np.arange(count)
    room = count + max(piece, PIECE_ROWS)
    stored = Block(
        xp,
        features=xp.zeros((room, model.num_features), dtype=storage),
        labels=xp.zeros(room, dtype=xp.int64 if model.num_classes else storage),
        squares=xp.zeros(room, dtype=xp.float64),
        valid=xp.zeros(room, dtype=xp.float64),
        piece=piece,
    )
    with silent():
        for start in range(0, count, BLOCK_ROWS):
            rows = order[start : start + BLOCK_ROWS]
            chosen = rows if on_host(xp) else xp.asarray(rows)
            values, targets = xp.take(features, chosen, axis=0), xp.take(labels, chosen, axis=0)
            _fill(stored, start, start + rows.size, values, targets, LARGEST_ENTRIES[dtype], model.num_classes)
    return Records(stored, np.searchsorted(drawn[order], np.arange(lanes + 1)), positions)


def _fill(into: Block, start: int, stop: int, features: Array, labels: Array, largest: float, num_classes: int) -> None:
    """Write the rows from ``start`` to ``stop``."""
    xp = into.xp
    values, targets = as_float64(xp, features), as_float64(xp, labels)
    valid = xp.all(xp.abs(values) <= largest, axis=1) & xp.isfinite(targets)
    values = xp.where(valid[:, None], values, xp.zeros_like(values))
    targets = xp.where(valid, targets, xp.zeros_like(targets))
    targets = xp.clip(xp.round(targets), 0.0, float(num_classes - 1)) if num_classes else xp.clip(targets, -1.0, 1.0)
    rows = xp.astype(values, into.features.dtype)
    kept = as_float64(xp, rows)
    into.features[start:stop, :] = rows
    smallest = rows.shape[1] * float(xp.finfo(rows.dtype).smallest_normal)  # positive, as of `squared_norms`
    into.squares[start:stop] = xp.sum(kept * kept, axis=1) + smallest
    into.valid[start:stop] = xp.astype(valid, xp.float64)
    into.labels[start:stop] = xp.astype(targets, into.labels.dtype)
