"""The child process of `app.datasets.columnar`: `python -m app.datasets.reading_process FILE SOCKET MEMORY SECONDS`.

Parsers of compressed binary formats read files from outside. They run here, in a process with limits of memory and
time, without the service's environment, database or other files. The process answers with arrays of numbers.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
import zipfile
import zlib
from multiprocessing.connection import Connection
from typing import IO, Any

import numpy as np

from app.datasets.typed_columns import ColumnarFile, Declared, FileRefused, ReadLimits
from app.kit.encryption import FileUnreadable, open_decrypting

#: The most faults that are reported for one column of one block; the parent process names fewer.
MAX_TOLD_FAULTS = 32


# The errors of the parsers for damaged files; Arrow's own errors are ValueErrors and OSErrors.
_FAILURES = (
    OSError,
    ValueError,
    LookupError,
    EOFError,
    RuntimeError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    FileUnreadable,
)


def open_file(
    kind: str, file: IO[bytes], declared: list[Declared], label: str, persons: str | None, limits: ReadLimits
) -> ColumnarFile:
    # Only the library of this format is loaded: loading the larger one takes longer than reading a small file.
    if kind == "parquet":
        from app.datasets.parquet_file import ParquetFile  # noqa: PLC0415

        return ParquetFile(file, limits)
    from app.datasets.npz_file import NpzFile  # noqa: PLC0415

    return NpzFile(file, declared, label, persons, limits)


def answer(connection: Connection, stored: IO[bytes]) -> None:
    """Read the file as the parent asks: first its header and then, if that is right, its rows in blocks."""
    request: dict[str, Any] = json.loads(connection.recv_bytes())
    key = request["key"]
    file = stored if key is None else open_decrypting(stored, bytes.fromhex(key), request["name"])
    file.seek(0)
    declared = [
        Declared(name, None if categories is None else tuple(categories)) for name, categories in request["columns"]
    ]
    persons: str | None = request["persons"]
    table = open_file(request["kind"], file, declared, request["label"], persons, ReadLimits(**request["limits"]))
    _send(connection, header=list(table.header))
    order = json.loads(connection.recv_bytes())
    for block in table.blocks(order, declared, persons):
        missing = [column.missing[:MAX_TOLD_FAULTS].tolist() for column in block.columns]
        arrays = [column.values for column in block.columns]
        _send(connection, rows=len(arrays[0]), missing=missing, types=[array.dtype.str for array in arrays])
        connection.send_bytes(b"".join(np.ascontiguousarray(array).data for array in arrays))
        if persons is not None:
            connection.send_bytes(json.dumps(block.ids).encode())
    _send(connection, end=True)


def main(descriptor: int, socket: int, memory_bytes: int, seconds: float) -> None:
    """Read one file, then end."""
    # The parent decides when to stop, but Ctrl+C in a terminal reaches its children too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The alarm ends this process at its time limit, even if the parent is gone.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # A core dump would contain rows, so none is written.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Connection(socket) as connection, os.fdopen(descriptor, "rb") as stored:
        try:
            answer(connection, stored)
        except FileRefused as refused:
            _refuse(connection, refused)
        except MemoryError:
            most = f"{memory_bytes / 2**30:g} GiB"
            why = FileRefused(
                "too_much_memory", f"reading the file takes more than {most} of memory; write smaller row groups"
            )
            _refuse(connection, why)
        except _FAILURES:
            # The library's own message may quote the file.
            why = FileRefused(
                "damaged", ("the file is damaged or cut short, or has content that its format does not allow")
            )
            _refuse(connection, why)


def _refuse(connection: Connection, refused: FileRefused) -> None:
    _send(connection, refused=[refused.code, refused.why])


def _send(connection: Connection, **message: Any) -> None:
    connection.send_bytes(json.dumps(message).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
