"""Code that the readers of Parquet and NPZ share, imported by a process that loads nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

MAX_COLUMNS = 4096

#: The types in which a reader may return numbers: binary64 represents each of their values exactly.
EXACT_TYPES = ("|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<f2", "<f4", "<f8")

TEXTS = "texts, or integers that stand for their decimal digits"


class FileRefused(Exception):
    """The file cannot be read as declared; ``why`` never contains a value of the file."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(code, why)
        self.code = code
        self.why = why


@dataclass(frozen=True)
class Declared:
    """A declared column: its name, and its categories unless it holds numbers."""

    name: str
    categories: tuple[str, ...] | None

    @property
    def wants(self) -> str:
        return "integers or floating-point numbers" if self.categories is None else TEXTS


@dataclass(frozen=True)
class ReadLimits:
    """The limits on the size of a file."""

    rows: int
    cells: int
    #: The number of cells of one block: its rows times its columns.
    block_cells: int

    def check(self, rows: int, columns: int) -> None:
        """Refuse a table before any of it is read."""
        if rows > self.rows or rows * columns > self.cells:
            raise FileRefused("too_many_rows", f"a file may have at most {self.rows} rows and {self.cells} cells")

    def block_rows(self, columns: int) -> int:
        return max(1, self.block_cells // max(1, columns))


@dataclass(frozen=True)
class ReadColumn:
    """Some rows of one column: numbers, or codes of categories with -1 for anything else; see `exact`."""

    values: npt.NDArray[Any]
    missing: npt.NDArray[np.intp]


@dataclass(frozen=True)
class ReadBlock:
    """Some rows, with one entry for each declared column, and ids of persons, with an empty text for a missing id."""

    columns: Sequence[ReadColumn]
    ids: Sequence[str] = ()


class ColumnarFile(Protocol):
    """An open file whose columns have names and types."""

    @property
    def header(self) -> Sequence[str]:
        """Return the names of its columns."""
        ...

    def blocks(
        self, order: Sequence[int], declared: Sequence[Declared], persons: str | None = None
    ) -> Iterator[ReadBlock]:
        """Yield all rows, some at a time, with the columns in the given order and the column of ids last."""
        ...


def check_width(columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise FileRefused(
            "too_many_columns", (f"the file has {columns} columns, and at most {MAX_COLUMNS} can be declared")
        )


def exact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers as they are if their type is one of `EXACT_TYPES`, and as binary64 otherwise.

    >>> exact(np.array([3], np.uint8)).dtype.str, exact(np.array([3], np.int64)).dtype.str
    ('|u1', '<f8')
    """
    little = values.dtype.newbyteorder("<")
    return values.astype(little if little.str in EXACT_TYPES else np.dtype("<f8"), copy=False)


def wrong_type(name: str, found: str, wants: str) -> FileRefused:
    """Return the refusal of a column whose values are of another kind than declared."""
    return FileRefused("column_type", f"column {name!r} holds {found}; it must hold {wants}")
