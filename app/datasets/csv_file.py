"""Read CSV files as a stream and strictly: anything that is not exactly a declared value is refused, with its place.

A refusal names the row (the header is row 1, as a spreadsheet counts) and the declared column. It never repeats a cell,
nor an undeclared header: in a file without a header row, the first row is somebody's record.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, NoReturn

import numpy as np

from app.datasets.columns import Column
from app.datasets.file_faults import cell_refusal, column_order, refusal
from app.datasets.file_kinds import FileKind
from app.datasets.persons import PersonColumn, names_in_file
from app.datasets.table import MAX_CELLS, MAX_ROWS, FloatArray, Table, TableBuilder, read_rows

MAX_LINE_BYTES = 4 * 2**20

_BLOCK_CELLS = 2**18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_csv(file: IO[bytes], columns: Sequence[Column], label: str, persons: PersonColumn | None = None) -> Table:
    """Read a whole file against its declaration.

    Args:
        file: Bytes of the file, at its beginning: UTF-8 with or without a byte order mark, lines ending in LF or CRLF,
            cells separated by commas and quoted where they need it. The first row names the columns, in any order.
        columns: The declared columns; the header must name these and no others.
        label: Name of the label's column.
        persons: The column with ids of persons, which the header must name as well if it is declared.

    Returns:
        The rows in the file's order. There may be none, because the number of rows is private.

    Raises:
        Problem: 422 ``invalid_csv``, with up to 20 faults; row and column are named, values never.
    """
    names = names_in_file(columns, persons)
    builder = TableBuilder(columns, label, persons)
    for first_row, block in _blocks(file, names):
        if faults := builder.add(block, first_row):
            raise cell_refusal(FileKind.CSV, faults, names)
    if surplus := builder.surplus(first_row=2):
        raise cell_refusal(FileKind.CSV, surplus, names)
    return builder.build()


def read_features(file: IO[bytes], columns: Sequence[Column], label: str | None = None) -> FloatArray:
    """Read rows that a model is to predict. They have no label, and are read as strictly as a data set.

    Args:
        file: As in `read_csv`.
        columns: The features; the header must name these and no others.
        label: A column that may also be there, and is ignored.

    Returns:
        An array of shape (rows, columns), in the order of the columns; numbers are clipped, and categories are codes.

    Raises:
        Problem: 422 ``invalid_csv``, as in `read_csv`.
    """
    names = [column.name for column in columns]
    read = [np.empty((0, len(columns)))]
    for first_row, block in _blocks(file, names, label):
        values, faults = read_rows(columns, block, first_row)
        if faults:
            raise cell_refusal(FileKind.CSV, faults, names)
        read.append(values)
    return np.concatenate(read)


def _blocks(file: IO[bytes], names: Sequence[str], beside: str | None = None) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield blocks of rows with the number of each block's first row. Cells are in the order of the names."""
    records = _records(file)
    header = next(records, None)
    if not header:
        _refuse("header_missing", "the file is empty; its first row must hold the names of the columns")
    order = column_order(FileKind.CSV, header, names, beside)
    rows = 0
    per_block = max(1, _BLOCK_CELLS // len(names))
    while block := list(islice(records, per_block)):
        first_row = rows + 2
        rows += len(block)
        if rows > MAX_ROWS or rows * len(names) > MAX_CELLS:
            _refuse("too_many_rows", f"a file may have at most {MAX_ROWS} rows and {MAX_CELLS} cells")
        for number, record in enumerate(block, start=first_row):
            if len(record) != len(header):
                _refuse("ragged_row", f"row {number} has {len(record)} cells where the header has {len(header)}")
        yield first_row, [[record[index] for index in order] for record in block]


def _records(file: IO[bytes]) -> Iterator[list[str]]:
    """Yield the file's records; blank lines are allowed only at its end."""
    number = 0
    first_blank: int | None = None
    try:
        for number, record in enumerate(csv.reader(_lines(file), strict=True), start=1):
            if not record:
                first_blank = first_blank or number
                continue
            if first_blank is not None:
                _refuse("ragged_row", f"row {first_blank} is blank")
            yield record
    except csv.Error:
        # The error's own message speaks of Python's csv module. The causes below are the only ones that are left.
        limit = csv.field_size_limit()
        _refuse(
            "malformed_row",
            f"after row {number}, quotes do not match, a line ends in a bare CR, or a cell exceeds {limit} characters",
        )


def _lines(file: IO[bytes]) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            _refuse("line_too_long", f"line {number} has more than {MAX_LINE_BYTES} bytes")
        if b"\0" in line:
            _refuse("nul_byte", f"line {number} holds a NUL byte; the file must be CSV in UTF-8")
        try:
            yield (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).decode()
        except UnicodeDecodeError:
            _refuse("not_utf8", f"line {number} is not UTF-8")


def _refuse(code: str, why: str) -> NoReturn:
    raise refusal(FileKind.CSV, (code, why))
