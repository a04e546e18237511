"""Convert cells to numbers: each column is checked against its declaration, clipped to its bounds, and hashed as it was
given."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.datasets.columns import CategoryColumn, Column, NumberColumn, split_label
from app.datasets.persons import PersonArray, PersonColumn, fault_of, surplus_rows

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.float64] | NDArray[np.int64]

MAX_ROWS = 10_000_000
MAX_CELLS = 400_000_000

_TURNED_ROWS = 1024

_EMPTY = ("empty_cell", "the cell is empty; every cell needs a value")
_UNKNOWN = ("unknown_category", "the cell is none of the declared categories; case and spaces count")
_NOT_FINITE_CELL = ("not_finite", "the cell is not a finite number")

# A number in a file may contain only these characters. Python would also accept "nan", "1_000", and digits of every
# script.
_NUMBER_CHARACTERS = re.compile(r"[0-9eE+\-. \t]*")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class CellFault:
    """A cell that its column's declaration does not allow. This object never contains the cell's value."""

    row: int
    column: int
    code: str
    why: str


@dataclass(frozen=True)
class TypedBlock:
    """Some rows of one column of a file with typed columns.

    Attributes:
        values: Numbers of any type that binary64 can represent; for a category its code, and -1 for any other value.
        missing: The positions without a value.
    """

    values: NDArray[Any]
    missing: Sequence[int] = ()


#: A number that was clipped: its row, the position of its declared column, and its original value.
CLIPPED = np.dtype([("row", "<i8"), ("column", "<i4"), ("value", "<f8")])
ClippedArray = NDArray[np.void]


@dataclass(frozen=True)
class Persons:
    """The person of each row, and what is needed to rebuild the table without some persons.

    Attributes:
        hashes: Keyed hashes, of shape (rows, 2).
        clipped: The numbers that were clipped, an array of the type `CLIPPED`. With them, the content of the remaining
            rows equals that of a file that never had the others.
    """

    hashes: PersonArray
    clipped: ClippedArray


@dataclass(frozen=True)
class Table:
    """Checked rows.

    Attributes:
        features: Shape (rows, feature columns), in declared order and units; a category is its code.
        labels: An array of shape (rows,): integer codes if the label is a category, otherwise numbers.
        values_clipped: How many numbers exceeded a declared bound, labels included.
        content: A digest of the values before clipping. It does not depend on the names, order or bounds of the
            columns, nor on persons. It is secret: only its keyed hash is kept.
        persons: Given if a column with ids of persons is declared.
    """

    features: FloatArray
    labels: LabelArray
    values_clipped: int
    content: bytes
    persons: Persons | None = None

    @property
    def rows(self) -> int:
        return len(self.labels)


@dataclass
class _ColumnReader:
    """The state of reading one column."""

    column: Column
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    rows: int = 0
    values_clipped: int = 0
    #: The clipped rows of all blocks with their original values; None if the caller did not ask for them.
    clipped: list[tuple[NDArray[np.intp], FloatArray]] | None = None

    def read(self, texts: Sequence[str]) -> FloatArray | list[tuple[int, str, str]]:
        """Return the block's values, or its faulty positions, each with a code and a reason."""
        if isinstance(self.column, NumberColumn):
            numbers = _numbers(texts)
            if numbers is None:
                return _number_faults(texts)
            values = _with_one_zero(numbers)
            return self._take_numbers(values, self.column, is_inside=_lies_within(values, self.column))
        codes = {category: code for code, category in enumerate(self.column.categories)}
        found = [codes.get(text, -1) for text in texts]
        if -1 in found:
            return [(index, *(_UNKNOWN if texts[index] else _EMPTY)) for index, code in enumerate(found) if code == -1]
        return self._take_texts(texts, np.array(found, dtype=np.float64))

    def read_values(self, block: TypedBlock) -> FloatArray | list[tuple[int, str, str]]:
        """Do the same as `read`, for typed values."""
        missing = set(block.missing)
        faults = [(index, *_EMPTY) for index in block.missing]
        if isinstance(self.column, NumberColumn):
            values = _with_one_zero(block.values)
            is_inside = _lies_within(values, self.column)
            if not is_inside:
                wrong = np.flatnonzero(~np.isfinite(values)).tolist()
                faults += [(index, *_NOT_FINITE_CELL) for index in wrong if index not in missing]
            return faults or self._take_numbers(values, self.column, is_inside=is_inside)
        categories = self.column.categories
        wrong = np.flatnonzero(~np.isin(block.values, np.arange(len(categories)))).tolist()
        faults += [(index, *_UNKNOWN) for index in wrong if index not in missing]
        return faults or self._take_texts([categories[int(code)] for code in block.values], block.values)

    def _take_texts(self, texts: Sequence[str], codes: FloatArray) -> FloatArray:
        self.digest.update("".join(f"{text}\0" for text in texts).encode())
        return codes

    def _take_numbers(self, values: FloatArray, column: NumberColumn, *, is_inside: bool) -> FloatArray:
        """Hash finite numbers, and clip them unless they are inside the bounds."""
        self.digest.update(values.astype("<f8", copy=False).data)
        if not is_inside:
            outside = np.flatnonzero((values < column.lower) | (values > column.upper))
            self.values_clipped += len(outside)
            if self.clipped is not None:
                self.clipped.append((outside + self.rows, values[outside]))
            values = np.clip(values, column.lower, column.upper)
        self.rows += len(values)
        return values


@dataclass
class _PersonReader:
    """The state of reading the column with ids."""

    column: PersonColumn
    blocks: list[PersonArray] = field(default_factory=lambda: [np.empty((0, 2), np.uint64)])

    def read(self, ids: Sequence[str] | PersonArray) -> list[tuple[int, str, str]]:
        """Add a block of ids, or return its faulty positions. Ids that are already hashed are kept unchanged."""
        if isinstance(ids, np.ndarray):
            self.blocks.append(ids)
            return []
        found = [(index, _EMPTY if not text else fault_of(text)) for index, text in enumerate(ids)]
        faults = [(index, *fault) for index, fault in found if fault is not None]
        if not faults:
            self.blocks.append(self.column.hashes(ids))
        return faults

    @property
    def hashes(self) -> PersonArray:
        return np.concatenate(self.blocks)


class TableBuilder:
    """Collect blocks of rows into a `Table`.

    Args:
        columns: The declared columns.
        label: Name of the label's column.
        persons: The column with ids of persons, which comes after the others; None if there is none.
    """

    def __init__(self, columns: Sequence[Column], label: str, persons: PersonColumn | None = None) -> None:
        features, label_column = split_label(columns, label)
        self._columns = tuple(columns)
        self._readers = {
            column.name: _ColumnReader(column, clipped=None if persons is None else []) for column in columns
        }
        self._persons = None if persons is None else _PersonReader(persons)
        self._feature_names = tuple(column.name for column in features)
        self._label_column = label_column
        self._features = np.empty((0, len(features)))
        self._labels: list[FloatArray] = [np.empty(0)]

    def add(self, rows: Sequence[Sequence[str]], first_row: int = 1) -> list[CellFault]:
        """Add a block of rows, each with one cell per declared column and in that order.

        Args:
            rows: The texts of the cells; if ids are declared, the last text is the id of the row's person.
            first_row: Number of the block's first row, for the faults.

        Returns:
            The faults in the order of the file; the block is added only if there are no faults.
        """
        cells = list(zip(*rows, strict=True)) or [()] * (len(self._columns) + (self._persons is not None))
        ids = () if self._persons is None else cells.pop()
        blocks = [reader.read(texts) for reader, texts in zip(self._readers.values(), cells, strict=True)]
        return self._take(blocks, ids, len(rows), first_row)

    def add_typed(
        self, blocks: Sequence[TypedBlock], first_row: int, ids: Sequence[str] | PersonArray = ()
    ) -> list[CellFault]:
        """Add blocks of typed values, one per declared column, in that order. Ids may already be hashed."""
        read = [reader.read_values(block) for reader, block in zip(self._readers.values(), blocks, strict=True)]
        return self._take(read, ids, len(blocks[0].values), first_row)

    def surplus(self, first_row: int) -> list[CellFault]:
        """Return the rows by which persons exceed the declared number of rows."""
        if self._persons is None:
            return []
        most = self._persons.column.most_rows
        why = (
            f"the person has {most} row{'s' if most > 1 else ''} above this one already, and rows_per_person "
            "allows no more"
        )
        rows = surplus_rows(self._persons.hashes, most)
        return [CellFault(first_row + row, len(self._columns), "too_many_rows_of_a_person", why) for row in rows]

    def _take(
        self,
        blocks: Sequence[FloatArray | list[tuple[int, str, str]]],
        ids: Sequence[str] | PersonArray,
        rows: int,
        first_row: int,
    ) -> list[CellFault]:
        faults: list[CellFault] = []
        if self._persons is not None:
            found = self._persons.read(ids)
            faults += [CellFault(first_row + row, len(self._columns), code, why) for row, code, why in found]
        values: dict[str, FloatArray] = {}
        for index, (column, block) in enumerate(zip(self._columns, blocks, strict=True)):
            if isinstance(block, list):
                faults += [CellFault(first_row + row, index, code, why) for row, code, why in block]
            else:
                values[column.name] = block
        if not faults:
            self._take_features([values[name] for name in self._feature_names], rows)
            self._labels.append(values[self._label_column.name])
        return sorted(faults, key=lambda fault: (fault.row, fault.column))

    def _take_features(self, columns: Sequence[FloatArray], rows: int) -> None:
        """Append columns to the existing rows, some rows at a time, so that they stay in the processor's cache."""
        first = len(self._features)
        # The array is resized in place, since joining the blocks at the end would take twice the memory.
        self._features.resize((first + rows, len(columns)), refcheck=False)
        for start in range(0, rows, _TURNED_ROWS):
            part = slice(start, start + _TURNED_ROWS)
            into = self._features[first:][part]
            for index, column in enumerate(columns):
                into[:, index] = column[part]

    def build(self) -> Table:
        labels = np.concatenate(self._labels)
        is_category = isinstance(self._label_column, CategoryColumn)
        readers = self._readers.values()
        return Table(
            features=self._features,
            labels=labels.astype(np.int64) if is_category else labels,
            values_clipped=sum(reader.values_clipped for reader in readers),
            content=b"".join(sorted(reader.digest.digest() for reader in readers)),
            persons=None if self._persons is None else Persons(self._persons.hashes, self._clipped()),
        )

    def _clipped(self) -> ClippedArray:
        found = [np.empty(0, CLIPPED)]
        for place, reader in enumerate(self._readers.values()):
            for rows, values in reader.clipped or ():
                block = np.empty(len(rows), CLIPPED)
                block["row"], block["column"], block["value"] = rows, place, values
                found.append(block)
        return np.concatenate(found)


def read_rows(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], first_row: int
) -> tuple[FloatArray, list[CellFault]]:
    """Return the texts of some rows as numbers, of shape (rows, columns), and the faults as `TableBuilder.add` returns
    them."""
    values = np.zeros((len(rows), len(columns)))
    faults: list[CellFault] = []
    for index, (column, texts) in enumerate(zip(columns, zip(*rows, strict=True), strict=True)):
        block = _ColumnReader(column).read(texts)
        if isinstance(block, list):
            faults += [CellFault(first_row + row, index, code, why) for row, code, why in block]
        else:
            values[:, index] = block
    return values, sorted(faults, key=lambda fault: (fault.row, fault.column))


def rows_that_stay(
    features: FloatArray,
    labels: LabelArray,
    persons: Persons,
    stays: NDArray[np.bool_],
    columns: Sequence[Column],
    label: str,
    person_column: PersonColumn,
) -> Table:
    """Return a table without some rows, as if a file without them had been uploaded.

    Args:
        features, labels, persons: The stored rows.
        stays: Which of the rows stay, an array of shape (rows,).
        columns, label, person_column: As in `TableBuilder`.
    """
    stored = iter(features.T)
    blocks = []
    for place, column in enumerate(columns):
        values = np.array(labels if column.name == label else next(stored), dtype=np.float64)
        clipped = persons.clipped[persons.clipped["column"] == place]
        values[clipped["row"]] = clipped["value"]
        blocks.append(TypedBlock(values[stays]))
    builder = TableBuilder(columns, label, person_column)
    faults = builder.add_typed(blocks, 1, persons.hashes[stays])
    assert not faults, "rows that were taken once"
    return builder.build()


def _with_one_zero(values: NDArray[Any]) -> FloatArray:
    """Return numbers of any type as binary64, with -0.0 turned into 0.0 by adding zero."""
    added: FloatArray = np.add(values, 0.0, dtype=np.float64)
    return added


def _lies_within(values: FloatArray, column: NumberColumn) -> bool:
    """Return whether all values are within the declared bounds. NaN never is."""
    return not len(values) or bool(column.lower <= values.min() and values.max() <= column.upper)


def _numbers(texts: Sequence[str]) -> FloatArray | None:
    """Return the texts as finite numbers; None if any text is not a finite number."""
    if _NUMBER_CHARACTERS.fullmatch("".join(texts)) is None:
        return None
    try:
        values = np.array([float(text) for text in texts], dtype=np.float64)
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None


def _number_faults(texts: Sequence[str]) -> list[tuple[int, str, str]]:
    faults = []
    for index, text in enumerate(texts):
        if _numbers([text]) is not None:
            continue
        bare = text.strip(" \t")
        if not bare:
            faults.append((index, *_EMPTY))
        elif _NOT_FINITE.fullmatch(bare) or _overflows(bare):
            faults.append((index, *_NOT_FINITE_CELL))
        else:
            faults.append((index, "not_a_number", "the cell is not a number, such as -1.5 or 2e-3"))
    return faults


def _overflows(text: str) -> bool:
    try:
        return _NUMBER_CHARACTERS.fullmatch(text) is not None and math.isinf(float(text))
    except ValueError:
        return False
