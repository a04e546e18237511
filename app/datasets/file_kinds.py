"""The format of an uploaded file, detected from its first bytes and compared with its name."""

from __future__ import annotations

from enum import StrEnum

from accounting.errors import one_of
from app.problems import Problem, unprocessable

#: The number of leading bytes that show a file's format.
HEAD_BYTES = 16


class FileKind(StrEnum):
    """A format in which data sets are uploaded."""

    CSV = "csv"
    PARQUET = "parquet"
    NPZ = "npz"

    @property
    def what(self) -> str:
        return "Parquet" if self is FileKind.PARQUET else self.value.upper()


_BEGINNINGS = ((b"PAR1", FileKind.PARQUET), (b"PK\x03\x04", FileKind.NPZ), (b"PK\x05\x06", FileKind.NPZ))

# Formats that are often uploaded by mistake. Anything else is read as CSV, and its first wrong row is refused.
_OTHERS = (
    (b"PARE", "a Parquet file with an encrypted footer"),
    (b"\x93NUMPY", "a single NumPy array (.npy)"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ\0", "compressed with xz"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
    (b"\x89HDF", "an HDF5 file"),
    (b"ARROW1", "an Arrow or Feather file"),
    (b"ORC", "an ORC file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"%PDF", "a PDF document"),
)

#: The accepted content types of the file's part. Some systems send CSV files without a type or as a spreadsheet. The
#: last type fits every format.
FILE_TYPES = {
    "text/csv": FileKind.CSV,
    "application/csv": FileKind.CSV,
    "text/plain": FileKind.CSV,
    "application/vnd.ms-excel": FileKind.CSV,
    "application/vnd.apache.parquet": FileKind.PARQUET,
    "application/x-parquet": FileKind.PARQUET,
    "application/zip": FileKind.NPZ,
    "application/x-npz": FileKind.NPZ,
    "application/octet-stream": None,
}

_ENDINGS = {
    ".csv": FileKind.CSV,
    ".parquet": FileKind.PARQUET,
    ".pq": FileKind.PARQUET,
    ".npz": FileKind.NPZ,
}


def file_kind(head: bytes, name: str, media_type: str) -> FileKind:
    """Return the format of a file.

    Args:
        head: Its first `HEAD_BYTES` bytes, or all of it.
        name: The client's name for the file; empty if it gives none.
        media_type: The content type of its part; empty if there is none.

    Raises:
        Problem: 422 ``unsupported_file``: the format is not supported, or the name or type contradicts it.
    """
    for beginning, what in _OTHERS:
        if head.startswith(beginning):
            wanted = one_of([kind.what for kind in FileKind])
            raise _unsupported(f"The file is {what}; a data set is {wanted}.")
    found = next((kind for beginning, kind in _BEGINNINGS if head.startswith(beginning)), FileKind.CSV)
    ending = next((ending for ending in _ENDINGS if name.lower().endswith(ending)), None)
    if ending is not None and _ENDINGS[ending] is not found:
        raise _unsupported(f"The file's name ends in {ending}, but {_begins(found)}.")
    told = FILE_TYPES.get(media_type)
    if told is not None and told is not found:
        raise _unsupported(f"The part's type is {media_type}, but {_begins(found)}.")
    return found


def _begins(found: FileKind) -> str:
    if found is FileKind.CSV:
        return "it begins neither as a Parquet file nor as an NPZ archive does"
    return f"it begins as {'a Parquet file' if found is FileKind.PARQUET else 'an NPZ archive'} does"


def _unsupported(detail: str) -> Problem:
    return unprocessable("unsupported_file", detail, "file")
