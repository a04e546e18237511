"""Parquet files: flat columns of integers, floating-point numbers and texts, read some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.datasets.typed_columns import (
    TEXTS,
    Declared,
    FileRefused,
    ReadBlock,
    ReadColumn,
    ReadLimits,
    check_width,
    exact,
    wrong_type,
)

#: The most decoded bytes of all columns together, according to the file. The cells of the largest table need far less.
MAX_BYTES = 4 * 2**30

_BUFFER_BYTES = 2**20
_MAX_NAME_BYTES = 2**20

_FAMILIES = (
    (pa.types.is_boolean, "booleans"),
    (pa.types.is_decimal, "decimal numbers"),
    (pa.types.is_temporal, "dates or times"),
    (pa.types.is_nested, "lists or records"),
    (pa.types.is_integer, "integers"),
    (pa.types.is_floating, "floating-point numbers"),
)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


class ParquetFile:
    """A Parquet file as a table."""

    def __init__(self, file: IO[bytes], limits: ReadLimits) -> None:
        self._limits = limits
        self._file = pq.ParquetFile(
            file,
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            thrift_string_size_limit=_MAX_NAME_BYTES,
        )
        metadata = self._file.metadata
        check_width(metadata.num_columns)
        schema = self._file.schema_arrow
        limits.check(metadata.num_rows, len(schema))
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > MAX_BYTES:
            raise FileRefused("too_large", f"its metadata states more than {MAX_BYTES} bytes of decoded data")
        self.header = list(schema.names)

    def blocks(
        self, order: Sequence[int], declared: Sequence[Declared], persons: str | None = None
    ) -> Iterator[ReadBlock]:
        schema = self._file.schema_arrow
        places = order[: len(declared)]
        for column, index in zip(declared, places, strict=True):
            is_category = column.categories is not None
            _check_type(column.name, schema.field(index).type, column.wants, is_category=is_category)
        if persons is not None:
            _check_type(persons, schema.field(order[-1]).type, TEXTS, is_category=True)
        rows = 0
        step = self._limits.block_rows(len(order))
        for batch in self._file.iter_batches(batch_size=step, use_threads=False):
            # Rows are counted here, since the count that the file states may be wrong.
            rows += batch.num_rows
            self._limits.check(rows, len(order))
            columns = [_typed(column, batch.column(index)) for column, index in zip(declared, places, strict=True)]
            yield ReadBlock(columns, () if persons is None else _ids(batch.column(order[-1])))


def _check_type(name: str, given: Any, wants: str, *, is_category: bool) -> None:
    found = given.value_type if pa.types.is_dictionary(given) else given
    is_text = any(test(found) for test in _TEXTS)
    if pa.types.is_null(found) or pa.types.is_integer(found):
        return
    if is_text if is_category else pa.types.is_floating(found):
        return
    family = "texts" if is_text else next((name for test, name in _FAMILIES if test(found)), "values of another type")
    raise wrong_type(name, family, wants)


def _typed(declared: Declared, column: Any) -> ReadColumn:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    missing = np.flatnonzero(np.asarray(pc.is_null(column)))
    if pa.types.is_null(column.type):
        return ReadColumn(np.zeros(len(column)), missing)
    if declared.categories is None:
        return ReadColumn(exact(np.asarray(column.fill_null(0))), missing)
    texts = column.cast(pa.string())
    codes = pc.index_in(texts, value_set=pa.array(declared.categories, pa.string())).fill_null(-1)
    empty = np.flatnonzero(np.asarray(pc.equal(texts, "").fill_null(True)))
    return ReadColumn(np.asarray(codes).astype(np.float64), empty)


def _ids(column: Any) -> list[str]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    ids: list[str] = column.cast(pa.string()).fill_null("").to_pylist()
    return ids
