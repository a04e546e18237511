"""Ids of persons. An id says to which person a row belongs.

An id is hashed under a key of its data set when it is read. Only hashes are kept, in the file of the rows. No hash is
used in training, shown or logged, and no answer reveals whether an id is there.
"""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.context import Context
from app.datasets.columns import Column

#: Shape (rows, 2): for each row, the first 128 bits of the keyed hash of its person. The probability that two of ten
#: million persons share these bits is 2e-25.
PersonArray = NDArray[np.uint64]

MAX_ID_LENGTH = 200
_HASH_BYTES = 16


@dataclass(frozen=True)
class PersonColumn:
    """The column of a file that says to which person each row belongs.

    Attributes:
        name: Its public name.
        most_rows: The largest number of rows that one person may have.
        key: The secret key of the hashes.
    """

    name: str
    most_rows: int
    key: bytes = field(repr=False)

    def hashes(self, ids: Sequence[str]) -> PersonArray:
        """Return the keyed hashes of valid ids; texts with the same Unicode normal form are the same id.

        >>> column = PersonColumn("patient", 1, b"key")
        >>> bool((column.hashes(["Zo\\u00eb"]) == column.hashes(["Zoe\\u0308"])).all())
        True
        """
        found = (hmac.digest(self.key, unicodedata.normalize("NFC", text).encode(), "sha256") for text in ids)
        hashed = b"".join(digest[:_HASH_BYTES] for digest in found)
        return np.frombuffer(hashed, dtype="<u8").astype(np.uint64).reshape(-1, 2)


class DeclaresPersons(Protocol):
    """A data set's declaration of the person ids in its files."""

    @property
    def budget_id(self) -> str | None: ...
    @property
    def person_column(self) -> str | None: ...
    @property
    def rows_per_person(self) -> int | None: ...


def person_column_of(context: Context, declared: DeclaresPersons, dataset_id: str) -> PersonColumn | None:
    """Return the column of ids in the files of all versions of a data set; None if it has no ids.

    The key belongs to this data set alone, so nobody can see who is in two data sets. It is derived from the content
    secret, which never changes.
    """
    if declared.person_column is None or declared.rows_per_person is None:
        return None
    key = context.keyed_hash("person_ids", f"{declared.budget_id}\0{dataset_id}".encode())
    return PersonColumn(declared.person_column, declared.rows_per_person, bytes.fromhex(key))


def names_in_file(columns: Sequence[Column], persons: PersonColumn | None) -> list[str]:
    """Return the names of the columns that a file must have: the declared columns, followed by the column of ids."""
    return [column.name for column in columns] + ([] if persons is None else [persons.name])


def fault_of(text: str) -> tuple[str, str] | None:
    """Return a code and a reason if a nonempty text is not a valid id; None if it is valid."""
    if len(text) > MAX_ID_LENGTH:
        return "too_long", f"the id of a person has more than {MAX_ID_LENGTH} characters"
    if text != text.strip():
        return "wrong_form", "the id of a person begins or ends with a space; take the space out, or it is another id"
    return None


def surplus_rows(persons: PersonArray, most_rows: int) -> list[int]:
    """Return the positions, in order, of all rows that come after a person's first ``most_rows`` rows.

    >>> surplus_rows(np.array([[1, 1], [2, 2], [1, 1], [1, 1]], np.uint64), 2)
    [3]
    """
    order = np.lexsort(persons.T)
    by_person = persons[order]
    is_surplus = (by_person[most_rows:] == by_person[:-most_rows]).all(axis=1)
    return sorted(order[most_rows:][is_surplus].tolist())


def rows_of(persons: PersonArray, named: PersonArray) -> NDArray[np.bool_]:
    """Return which rows belong to one of the given persons.

    >>> rows_of(np.array([[1, 1], [1, 2], [3, 3]], np.uint64), np.array([[3, 3], [1, 1]], np.uint64)).tolist()
    [True, False, True]
    """
    wanted = _pairs(named)
    is_theirs = np.isin(persons[:, 0], named[:, 0])
    candidates = np.flatnonzero(is_theirs)
    is_theirs[candidates] = [pair in wanted for pair in map(tuple, persons[candidates].tolist())]
    return is_theirs


def _pairs(persons: PersonArray) -> Collection[tuple[int, ...]]:
    return set(map(tuple, persons.tolist()))
