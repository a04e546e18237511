"""This module scales features by declared bounds. The owner's declarations decide how a value is read, and other rows
never do.

A scaler that is fitted to the rows (to their mean or largest value) would release a statistic of the rows outside the
mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from accounting.numbers import read_integer, read_real
from trainer.arrays import silent

MAX_MAGNITUDE = 1e300
MAX_CATEGORIES = 10**5


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A number in [lower, upper], mapped to [-1, 1]; a column with equal bounds is constant and maps to 0."""

    width: ClassVar[int] = 1
    lower: float
    upper: float

    def __post_init__(self) -> None:
        lower = read_real("lower", self.lower, -MAX_MAGNITUDE, MAX_MAGNITUDE)
        object.__setattr__(self, "lower", lower)
        upper = read_real("upper", self.upper, -MAX_MAGNITUDE, MAX_MAGNITUDE)
        object.__setattr__(self, "upper", upper)
        if upper < lower:
            raise InvalidValue(f"upper must not be below lower, got [{lower!r}, {upper!r}]", pointer=("upper",))

    def scale(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Clip to the bounds, then map to the declared range: shape (n,) to (n, 1). NaN stays NaN."""
        if self.lower == self.upper:
            return (0.0 * np.isfinite(values))[:, None]
        half_width = self.upper / 2.0 - self.lower / 2.0  # halves come first, so that their difference cannot overflow
        middle = self.upper / 2.0 + self.lower / 2.0
        clipped = np.clip(values, self.lower, self.upper)
        scaled: npt.NDArray[np.float64] = np.clip((clipped - middle) / half_width, -1.0, 1.0).reshape(-1, 1)
        return scaled


@dataclass(frozen=True, slots=True)
class CategoryColumn:
    """One of the declared categories, given by its position in the declaration and mapped to one column of 0 and 1 for
    each category.

    A code that is not a position (-1, say, for a category that was not declared) gives a row of zeros.
    """

    num_categories: int

    def __post_init__(self) -> None:
        count = read_integer("num_categories", self.num_categories, 1, MAX_CATEGORIES)
        object.__setattr__(self, "num_categories", count)

    @property
    def width(self) -> int:
        return self.num_categories

    def scale(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Encode categories as rows of zeros and a one: shape (n,) to (n, num_categories)."""
        positions: npt.NDArray[np.float64] = np.arange(self.num_categories, dtype=np.float64)
        return np.equal(values[:, None], positions).astype(np.float64)


Column = NumberColumn | CategoryColumn


def num_features(columns: Sequence[Column]) -> int:
    """Return the length of a scaled row.

    >>> num_features([NumberColumn(0, 1), CategoryColumn(3)])
    4
    """
    return sum(column.width for column in columns)


def feature_norm_bound(columns: Sequence[Column], order: float = 2.0) -> float:
    """Return the largest l_q norm of a scaled row: each declared column contributes at most 1 to its q-th power.

    Args:
        columns: The declarations.
        order: The order q, at least 1.

    Guarantees:
        - scaled_rows_are_within_the_norm_bound: for every value of every column.

    >>> feature_norm_bound([NumberColumn(0, 1), CategoryColumn(3), NumberColumn(0, 5), NumberColumn(-1, 1)])
    2.0
    """
    return math.sqrt(len(columns)) if order == 2.0 else math.pow(len(columns), 1.0 / order)


def scale_features(columns: Sequence[Column], values: Sequence[npt.ArrayLike]) -> npt.NDArray[np.float64]:
    """Return the scaled rows: each column is read by its declaration.

    Args:
        columns: The declarations.
        values: One array of shape (n,) for each declaration, in the same order; numbers, or positions of categories.

    Returns:
        shape (n, num_features(columns)), float64, entries in [-1, 1]. A row with a value that is not finite is NaN
        throughout, so that `trainer.run` lets it contribute nothing.

    Guarantees:
        - scaling_is_row_by_row: a row of the result depends on that row and on the declarations.
        - scaled_values_are_within_one: or the whole row is NaN; no value raises or warns.

    Raises:
        InvalidValue: If there is not one array of the same length for each declaration, or there are no declarations.

    >>> scale_features([NumberColumn(0.0, 10.0), CategoryColumn(2)], [[5.0, 99.0], [0, 1]]).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """
    if not columns or len(columns) != len(values):
        raise InvalidValue(f"{len(columns)} columns are declared, but {len(values)} are given", pointer=("columns",))
    arrays = [np.asarray(column, dtype=np.float64) for column in values]
    if any(array.ndim != 1 or array.shape != arrays[0].shape for array in arrays):
        raise InvalidValue("every column must be one-dimensional and as long as the others", pointer=("columns",))
    # Written in place, since a copy would take the memory of all rows once more.
    scaled = np.empty((len(arrays[0]), num_features(columns)))
    finite = np.ones(len(scaled), dtype=np.bool_)
    first = 0
    with silent():
        for column, array in zip(columns, arrays, strict=True):
            scaled[:, first : first + column.width] = column.scale(array)
            finite &= np.isfinite(array)
            first += column.width
    np.copyto(scaled, np.nan, where=~finite[:, None])
    return scaled


def memory_of_rows(columns: Sequence[Column], capacity: int) -> int:
    """Return the most bytes that the rows of a training take: as given, scaled, and in slots in float64.

    Args:
        columns: The declarations.
        capacity: The number of slots, a public number; there are at most as many rows.

    >>> memory_of_rows([NumberColumn(0.0, 1.0)] * 100, 10**6) / 10**9
    2.448
    """
    width = num_features(columns)
    # Each of the three also has a label. A slot also has its squared norm, its position, and whether it is filled.
    return 8 * capacity * ((len(columns) + 1) + (width + 1) + (width + 4))
