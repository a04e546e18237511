"""Public data that travel inside a request: checked cell by cell, with a pointer to the cell at fault."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.datasets.columns import CategoryColumn, Column, NumberColumn, split_label
from app.datasets.schemas import InlineCell, InlineDataset
from app.datasets.service import LoadedDataset
from app.problems import unprocessable


def load_inline(dataset: InlineDataset, *pointer: str | int) -> LoadedDataset:
    """Return inline rows as arrays, with numbers clipped to their declared bounds.

    Args:
        dataset: The object in the request.
        pointer: Its place in the request's body, for the faults.

    Returns:
        A public data set whose declared size and capacity are its number of rows.

    Raises:
        Problem: 422 ``ragged_row``, ``not_a_number`` or ``unknown_category``, with a pointer to the row or cell.
    """
    columns, label = split_label(dataset.columns, dataset.label)
    values = np.array(
        [_row(row, dataset.columns, (*pointer, "rows", index)) for index, row in enumerate(dataset.rows)],
        dtype=np.float64,
    )
    is_label = np.array([column.name == dataset.label for column in dataset.columns])
    labels = values[:, is_label][:, 0]
    return LoadedDataset(
        id=None,
        public=True,
        declared_size=len(values),
        capacity=len(values),
        columns=columns,
        label=label,
        features=values[:, ~is_label],
        labels=labels.astype(np.int64) if isinstance(label, CategoryColumn) else labels,
    )


def _row(row: Sequence[InlineCell], columns: Sequence[Column], pointer: tuple[str | int, ...]) -> list[float]:
    if len(row) != len(columns):
        detail = f"The row has {len(row)} cells where there are {len(columns)} columns."
        raise unprocessable("ragged_row", detail, *pointer)
    return [
        read_cell(cell, column, *pointer, index) for index, (cell, column) in enumerate(zip(row, columns, strict=True))
    ]


def read_cell(cell: InlineCell, column: Column, *pointer: str | int) -> float:
    """Return a number, clipped to its column's bounds, or the code of a category.

    Args:
        cell: The cell of a row in a request.
        column: The declared column.
        pointer: The place of the cell in the request's body.

    Raises:
        Problem: 422 ``not_a_number`` or ``unknown_category``, without the cell itself.
    """
    if isinstance(column, NumberColumn):
        if isinstance(cell, str):
            raise unprocessable("not_a_number", f"Each cell of the column {column.name!r} must be a number.", *pointer)
        return min(max(cell, column.lower), column.upper)
    if not isinstance(cell, str) or cell not in column.categories:
        detail = f"Each cell of the column {column.name!r} must be one of its declared categories, as a string."
        raise unprocessable("unknown_category", detail, *pointer)
    return float(column.categories.index(cell))
