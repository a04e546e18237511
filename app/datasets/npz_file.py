"""NPZ archives: one array per column, or a matrix `features` and an array `label`.

All statements of an archive about itself are checked before anything is unpacked. Nothing is unpickled.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

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

#: The most bytes of all arrays together, unpacked.
MAX_BYTES = 2**31

_SUFFIX = ".npy"
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_FORMS = "one array per declared column, or `features` and `label`"
_KINDS = {
    "b": "booleans",
    "c": "complex numbers",
    "S": "bytes",
    "U": "texts",
    "M": "dates or times",
    "m": "durations",
    "V": "records",
    "O": "Python objects",
    "f": "floating-point numbers",
    "i": "integers",
    "u": "integers",
}

Array = npt.NDArray[Any]


class NpzFile:
    """An NPZ archive as a table. Its arrays are read when they are needed, after everything was checked."""

    def __init__(
        self, file: IO[bytes], declared: Sequence[Declared], label: str, persons: str | None, limits: ReadLimits
    ) -> None:
        self._limits = limits
        with zipfile.ZipFile(file) as archive:
            names = _check_members(archive)
            shapes = {name: _check_array(archive, name) for name in names}
            ids = [] if persons is None else [persons]
            matrix_form = {"features", "label"}
            is_declared = matrix_form == {column.name for column in declared}
            if sorted(names) == sorted([*matrix_form, *ids]) and not is_declared:
                features = [column.name for column in declared if column.name != label]
                _check_matrix(shapes, len(features))
                _check_columns({name: shapes[name] for name in ["label", *ids]})
                limits.check(shapes["label"][0], len(features) + 1 + len(ids))
                matrix = _read(archive, "features")
                self.header = [*features, label, *ids]
                self._columns = [*matrix.T, _read(archive, "label"), *(_read(archive, name) for name in ids)]
            else:
                _check_columns(shapes)
                limits.check(next(iter(shapes.values()))[0], len(names))
                self.header = names
                self._columns = [_read(archive, name) for name in names]

    def blocks(
        self, order: Sequence[int], declared: Sequence[Declared], persons: str | None = None
    ) -> Iterator[ReadBlock]:
        places = order[: len(declared)]
        columns = [self._columns[index] for index in places]
        for column, values in zip(declared, columns, strict=True):
            _check_kind(column.name, values, column.wants, is_category=column.categories is not None)
        ids = None if persons is None else self._columns[order[-1]]
        if persons is not None and ids is not None:
            _check_kind(persons, ids, TEXTS, is_category=True)
        rows, step = len(columns[0]), self._limits.block_rows(len(order))
        for start in range(0, rows, step):
            part = slice(start, start + step)
            read = [_typed(column, values[part]) for column, values in zip(declared, columns, strict=True)]
            yield ReadBlock(read, () if ids is None else [str(each) for each in ids[part].tolist()])


def _check_members(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the arrays, in the order of the archive."""
    members = archive.infolist()
    check_width(len(members))
    if not members:
        raise FileRefused("no_arrays", f"the archive is empty; it must hold {_FORMS}")
    if not all(member.filename.endswith(_SUFFIX) for member in members):
        raise FileRefused(
            "not_an_array", f"the ZIP archive holds files that are not arrays (.npy); it must hold {_FORMS}"
        )
    names = [member.filename.removesuffix(_SUFFIX) for member in members]
    if len(set(names)) < len(names):
        raise FileRefused("column_repeated", "the archive holds an array twice")
    for member in members:
        if member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
            raise FileRefused(
                "unsupported_archive", "the archive is encrypted, or packed by another method than deflate"
            )
    if sum(member.file_size for member in members) > MAX_BYTES:
        raise FileRefused(
            "too_large",
            f"the arrays say that they have more than {MAX_BYTES} bytes unpacked; store numbers in the smallest types "
            "that hold them: uint8 for pixels, else float32",
        )
    return names


def _check_array(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """Return the array's shape from its header, after checking that the data have the right size."""
    member = archive.getinfo(name + _SUFFIX)
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            elif version == (2, 0):
                shape, _, dtype = np.lib.format.read_array_header_2_0(file)
            else:
                raise ValueError
        except (ValueError, TypeError):
            raise FileRefused(
                "damaged_array", "an array's header is damaged, or of a version other than 1.0 and 2.0"
            ) from None
        start = file.tell()
    if dtype.hasobject:
        raise FileRefused("pickled", "the archive holds Python objects, which are never loaded; store numbers or texts")
    if dtype.names is not None or dtype.subdtype is not None:
        raise FileRefused("not_an_array", "the archive holds an array of records; store one array per column")
    if min(shape, default=0) < 0 or start + _size(shape) * dtype.itemsize != member.file_size:
        raise FileRefused("damaged_array", "the size of an array does not match its shape and type")
    return tuple(shape)


def _size(shape: Sequence[int]) -> int:
    # The product is computed with Python's integers, which do not overflow. A product that wrapped around would look
    # small.
    size = 1
    for length in shape:
        size *= int(length)
    return size


def _check_matrix(shapes: dict[str, tuple[int, ...]], num_features: int) -> None:
    features, label = shapes["features"], shapes["label"]
    if len(features) != 2 or len(label) != 1:
        raise FileRefused(
            "wrong_shape", ("`features` must have two dimensions (rows, columns), and `label` must have one (rows)")
        )
    if features[1] != num_features:
        raise FileRefused(
            "wrong_shape", f"`features` has {features[1]} columns; {num_features} are declared apart from the label"
        )
    if features[0] != label[0]:
        raise FileRefused("wrong_shape", f"`features` has {features[0]} rows, and `label` has {label[0]}")


def _check_columns(shapes: dict[str, tuple[int, ...]]) -> None:
    if any(len(shape) != 1 for shape in shapes.values()):
        raise FileRefused("wrong_shape", f"an array does not have one dimension; the archive must hold {_FORMS}")
    lengths = {shape[0] for shape in shapes.values()}
    if len(lengths) > 1:
        raise FileRefused(
            "wrong_shape", f"arrays have between {min(lengths)} and {max(lengths)} rows; all must have the same number"
        )


def _read(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(name + _SUFFIX) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _check_kind(name: str, values: Array, wants: str, *, is_category: bool) -> None:
    allowed = "iuU" if is_category else "iuf"
    # NumPy gives an array without rows a numeric type even in a column of texts, so the type of empty arrays is not
    # checked.
    if len(values) and values.dtype.kind not in allowed:
        raise wrong_type(name, _KINDS.get(values.dtype.kind, "values of another type"), wants)
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        raise wrong_type(name, "floating-point numbers of more than 64 bits", wants)


def _typed(declared: Declared, values: Array) -> ReadColumn:
    if declared.categories is None:
        return ReadColumn(exact(values), np.empty(0, np.intp))
    codes = {category: code for code, category in enumerate(declared.categories)}
    texts = [str(value) for value in values.tolist()]
    found = np.array([codes.get(text, -1) for text in texts], np.float64)
    return ReadColumn(found, np.array([index for index, text in enumerate(texts) if not text], np.intp))
