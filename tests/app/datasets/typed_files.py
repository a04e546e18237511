"""Parquet and NPZ files for the tests, and both ways to read them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.datasets.columns import CategoryColumn, Column
from app.datasets.npz_file import NpzFile
from app.datasets.parquet_file import ParquetFile
from app.datasets.table import CellFault, Table, TableBuilder, TypedBlock
from app.datasets.typed_columns import ColumnarFile, Declared, ReadLimits
from tests.app.datasets.declarations import COLUMNS

#: The rows of `declarations.CSV`.
ROWS: dict[str, Any] = {"age": [40.0, 50.5], "region": ["north", "south"], "outcome": ["no", "yes"]}
LIMITS = ReadLimits(rows=1000, cells=10_000, block_cells=9)


def parquet(columns: dict[str, Any] | None = None, **changes: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table((ROWS if columns is None else columns) | changes), file, row_group_size=5)
    return file.getvalue()


def npz(columns: dict[str, Any] | None = None, **changes: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **((ROWS if columns is None else columns) | changes))
    return file.getvalue()


def opened(kind: str, data: bytes, columns: Sequence[Column], label: str, limits: ReadLimits) -> ColumnarFile:
    if kind == "parquet":
        return ParquetFile(io.BytesIO(data), limits)
    return NpzFile(io.BytesIO(data), declared(columns), label, None, limits)


def declared(columns: Sequence[Column]) -> list[Declared]:
    return [
        Declared(column.name, tuple(column.categories) if isinstance(column, CategoryColumn) else None)
        for column in columns
    ]


def read_here(
    kind: str, data: bytes, columns: Sequence[Column] = COLUMNS, label: str = "outcome", limits: ReadLimits = LIMITS
) -> Table | list[CellFault]:
    """The file as a table, or its faults; read in this process."""
    file = opened(kind, data, columns, label, limits)
    order = [list(file.header).index(column.name) for column in columns]
    builder = TableBuilder(columns, label)
    first_row = 1
    for block in file.blocks(order, declared(columns)):
        blocks = [TypedBlock(column.values, column.missing.tolist()) for column in block.columns]
        if faults := builder.add_typed(blocks, first_row):
            return faults
        first_row += len(blocks[0].values)
    return builder.build()
