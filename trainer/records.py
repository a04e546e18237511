"""This module puts private rows into public slots, once for a run. A row becomes zero if it is not finite or too large
to square.

There are as many slots as the data set's public capacity. Rows go to slots by a secret permutation; an empty slot holds
a row of zeros that contributes nothing. So public numbers fix the size of all that a step does with the records, and
data sets that differ in one record differ in one slot, whatever the record's place in its file.

Rows are treated one by one: no row changes how another is read, and nothing here raises or warns because of a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from trainer.arrays import (
    TINY,
    Array,
    Namespace,
    as_float64,
    cleared,
    float_dtype,
    flushed,
    namespace_of,
    on_host,
    silent,
)
from trainer.keystream import Keystream

#: The number of rows that are handled at a time, which bounds the memory of float64 intermediates.
BLOCK_ROWS = 4096
#: By dtype: a row with a larger entry becomes zero. Squares and products of the other entries do not overflow.
LARGEST_ENTRIES = {"float64": 1e100, "float32": 1e18}

Indices = npt.NDArray[np.intp]
#: Slots that take part in a step: a range of them, or their numbers.
Selection = slice | Indices


class Rows(Protocol):
    """The form that rows must have. A model is such a form."""

    @property
    def num_features(self) -> int: ...

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 for real labels."""
        ...


@dataclass(frozen=True)
class Block:
    """The contents of some slots, in the requested order.

    Attributes:
        xp: The arrays' namespace.
        features: shape (B, p), the run's dtype; zeros in an empty slot.
        labels: shape (B,): classes as int64, or real numbers in the run's dtype.
        squares: shape (B,), float64: upper bounds of the features' squared l2 norms, as `squared_norms` gives them.
        valid: shape (B,), booleans: false for an empty slot and for a row that became zero.
    """

    xp: Namespace
    features: Array
    labels: Array
    squares: Array
    valid: Array

    def each(self, pick: Callable[[Array], Array]) -> Block:
        """Return the block in which each array is replaced by the result of ``pick`` on it."""
        return Block(self.xp, pick(self.features), pick(self.labels), pick(self.squares), pick(self.valid))


@dataclass(frozen=True)
class Records:
    """All slots, and one more that is always empty.

    Attributes:
        all: The contents of the slots; the last one is the spare slot.
        positions: shape (N,): the slot of each place. Row i of those that were given is in slot ``positions[i]``; the
            slots of later places are empty.
    """

    all: Block
    positions: Indices

    @property
    def xp(self) -> Namespace:
        return self.all.xp

    @property
    def capacity(self) -> int:
        """The capacity N, the public number of slots."""
        return int(self.positions.size)

    @property
    def spare(self) -> int:
        """The slot that is always empty; it pads batches."""
        return self.capacity

    def block(self, slots: Selection) -> Block:
        """Return the contents of these slots: views for a range, otherwise copies."""
        xp, source = self.xp, self.all
        if isinstance(slots, slice):
            return source.each(lambda array: array[slots, ...])
        indices = slots if on_host(xp) else xp.asarray(slots)
        return source.each(lambda array: xp.take(array, indices, axis=0))


def prepare(model: Rows, features: Array, labels: Array, dtype: str, capacity: int, stream: Keystream) -> Records:
    """Put features and labels into slots, in the form that training reads.

    Args:
        features: shape (n, p); n may be 0 and is at most the capacity.
        labels: shape (n,). A class that is not a whole number is rounded; a class outside the range is clipped to it; a
            real label is clipped to [-1, 1].
        dtype: "float64" or "float32", of the stored rows.
        capacity: The capacity N, the number of slots; a public number.
        stream: The stream from which the permutation is drawn.

    Guarantees:
        - unusable_rows_become_zero: a NaN, an infinity or a magnitude above `LARGEST_ENTRIES` in a row's features, or a
          label that is not finite, makes the row invalid; an invalid row contributes nothing at any parameters.
        - tiny_entries_become_zero: entries below `TINY` in magnitude become zero, so that no product of the other
          entries is subnormal.
        - rows_are_independent: replacing a row changes nothing in what is kept of other rows.
        - silent: no value raises or warns.

    Raises:
        InvalidValue: If the shapes are not (n, p) and (n,), there are more rows than slots, or dtype is unknown. Sizes
            of the data are not in the message.
    """
    xp = namespace_of(features)
    storage = float_dtype(xp, dtype)
    features, labels = xp.asarray(features), xp.asarray(labels)
    if len(features.shape) != 2 or features.shape[1] != model.num_features:
        raise InvalidValue(f"features must be of shape (n, {model.num_features})", pointer=("features",))
    if len(labels.shape) != 1 or labels.shape[0] != features.shape[0]:
        raise InvalidValue("labels must be of shape (n,), with one label for each row of features", pointer=("labels",))
    if features.shape[0] > capacity:
        raise InvalidValue(f"there are more rows than the {capacity} slots of the data set", pointer=("features",))
    positions: Indices = stream.generator().permutation(capacity).astype(np.intp)
    stored = Block(
        xp,
        features=xp.empty((capacity + 1, model.num_features), dtype=storage),
        labels=xp.empty(capacity + 1, dtype=xp.int64 if model.num_classes else storage),
        squares=xp.empty(capacity + 1, dtype=xp.float64),
        valid=xp.isfinite(xp.zeros(capacity + 1, dtype=xp.float64)),
    )
    rows = rows_of_slots(positions, features.shape[0])
    none = xp.zeros((1, model.num_features), dtype=xp.float64), xp.zeros(1, dtype=xp.float64)
    features, labels = (features, labels) if features.shape[0] else none
    with silent():
        for start in range(0, capacity + 1, BLOCK_ROWS):
            chosen = rows[start : start + BLOCK_ROWS]
            taken = np.maximum(chosen, 0)
            indices, occupied = (taken, chosen >= 0) if on_host(xp) else (xp.asarray(taken), xp.asarray(chosen >= 0))
            values, targets = xp.take(features, indices, axis=0), xp.take(labels, indices, axis=0)
            _fill(stored, slice(start, start + chosen.size), values, targets, occupied, dtype, model.num_classes)
    return Records(stored, positions)


def rows_of_slots(positions: Indices, count: int) -> Indices:
    """Return the row of each slot, the spare one included; -1 for an empty slot."""
    places = np.empty(positions.size, dtype=np.intp)
    places[positions] = np.arange(positions.size)
    return np.append(np.where(places < count, places, -1), -1)


def _fill(
    into: Block, at: slice, features: Array, labels: Array, occupied: Array, dtype: str, num_classes: int
) -> None:
    """Write the contents of all slots of this range, empty ones included, so that their memory is used like that of the
    others."""
    xp = into.xp
    values, targets = as_float64(xp, features), as_float64(xp, labels)
    valid = xp.all(xp.abs(values) <= LARGEST_ENTRIES[dtype], axis=1) & xp.isfinite(targets) & occupied
    values = cleared(xp, values, xp.logical_not(valid)[:, None])
    targets = xp.where(valid, targets, xp.zeros_like(targets))
    targets = xp.clip(xp.round(targets), 0.0, float(num_classes - 1)) if num_classes else xp.clip(targets, -1.0, 1.0)
    rows = xp.astype(flushed(xp, values, TINY[dtype]), into.features.dtype)
    kept = as_float64(xp, rows)
    into.features[at, :] = rows
    smallest = rows.shape[1] * float(xp.finfo(rows.dtype).smallest_normal)  # positive, as `squared_norms` gives them
    into.squares[at] = xp.sum(kept * kept, axis=1) + smallest
    into.valid[at] = valid
    into.labels[at] = xp.astype(targets if num_classes else flushed(xp, targets, TINY[dtype]), into.labels.dtype)
