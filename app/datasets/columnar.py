"""Read Parquet and NPZ against a declaration: a separate process parses the file, and its rows are checked here like
those of every file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.datasets.columns import CategoryColumn, Column
from app.datasets.file_faults import cell_refusal, column_order, refusal
from app.datasets.file_kinds import FileKind
from app.datasets.files import IncomingFile
from app.datasets.persons import PersonColumn, names_in_file
from app.datasets.table import MAX_CELLS, MAX_ROWS, Table, TableBuilder, TypedBlock
from app.datasets.typed_columns import EXACT_TYPES, ReadLimits
from app.kit.process_pool import PROJECT_ROOT, blas_threads
from app.problems import Problem

MEMORY_BYTES = 3 * 2**30
SECONDS = 120.0

_LIMITS = ReadLimits(rows=MAX_ROWS, cells=MAX_CELLS, block_cells=2**23)
# The environment variables that a parser needs. It gets no others, since they may hold the service's secrets.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TMPDIR")
# With these variables, the parser uses one core and returns freed memory at once. This saves address space, which its
# memory limit counts.
_MODEST = {"ARROW_DEFAULT_MEMORY_POOL": "system"} | blas_threads(1)


class _Lost(Exception):
    """The process ended before it had answered, or took too long."""


def read_columnar(
    kind: FileKind,
    file: IncomingFile,
    columns: Sequence[Column],
    label: str,
    places: threading.Semaphore,
    persons: PersonColumn | None = None,
) -> Table:
    """Read a whole file against its declaration.

    Args:
        kind: Parquet or NPZ.
        file: The upload, complete.
        columns: The declared columns; the file must have these and no others, in any order.
        label: Name of the label's column.
        places: The semaphore that limits how many files are read at once.
        persons: The column with ids of persons, which the file must have as well if it is declared.

    Returns:
        The rows in the file's order. The digest of their content equals that of a CSV file with the same values.

    Raises:
        Problem: 422 ``invalid_parquet`` or ``invalid_npz``, with up to 20 faults; they name row and column, but never a
            value. The first row is row 1. 503 ``readers_busy``.
    """
    if not places.acquire(timeout=SECONDS):
        detail = "Other uploads are being read; send this one again later."
        raise Problem(503, "readers_busy", detail, headers={"Retry-After": "60"})
    try:
        return _read(kind, file, columns, label, persons)
    finally:
        places.release()


def _read(
    kind: FileKind, file: IncomingFile, columns: Sequence[Column], label: str, persons: PersonColumn | None
) -> Table:
    names = names_in_file(columns, persons)
    with _reader(file) as connection:
        deadline = time.monotonic() + SECONDS
        request = {
            "kind": kind.value,
            "key": None if file.key is None else file.key.hex(),
            "name": file.name,
            "columns": [
                (column.name, column.categories if isinstance(column, CategoryColumn) else None) for column in columns
            ],
            "label": label,
            "persons": None if persons is None else persons.name,
            "limits": asdict(_LIMITS),
        }
        try:
            connection.send_bytes(json.dumps(request).encode())
            header = _answer(kind, connection, deadline)["header"]
            order = column_order(kind, header, names)
            connection.send_bytes(json.dumps(order).encode())
            builder = TableBuilder(columns, label, persons)
            first_row = 1
            while not (message := _answer(kind, connection, deadline)).get("end"):
                columns_read = _columns(_receive(connection, deadline), message["types"], message["rows"])
                blocks = list(map(TypedBlock, columns_read, message["missing"]))
                ids = () if persons is None else json.loads(_receive(connection, deadline))
                if faults := builder.add_typed(blocks, first_row, ids):
                    raise cell_refusal(kind, faults, names)
                first_row += message["rows"]
        except (_Lost, EOFError, OSError):
            most = f"{MEMORY_BYTES / 2**30:g} GiB of memory or {SECONDS:g} s"
            raise refusal(
                kind, ("not_readable", f"reading the file took more than {most}, or made the reader crash")
            ) from None
    if surplus := builder.surplus(first_row=1):
        raise cell_refusal(kind, surplus, names)
    return builder.build()


@contextmanager
def _reader(file: IncomingFile) -> Iterator[Connection]:
    """Start a process that reads the file, and end the process after the block."""
    ours, theirs = Pipe()
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _MODEST
    descriptors = [file.fileno(), theirs.fileno()]
    command = [sys.executable, "-m", "app.datasets.reading_process", *map(str, descriptors)]
    with ours:
        with theirs:
            process = subprocess.Popen(  # noqa: S603  # its own interpreter with its own module
                [*command, str(MEMORY_BYTES), str(SECONDS + 1.0)],
                cwd=PROJECT_ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                # The parser's error messages may quote the file.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
            )
        try:
            yield ours
        finally:
            process.kill()
            process.wait()


def _answer(kind: FileKind, connection: Connection, deadline: float) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(_receive(connection, deadline))
    if "refused" in message:
        code, why = message["refused"]
        raise refusal(kind, (code, why))
    return message


def _columns(content: bytes, types: Sequence[str], rows: int) -> list[NDArray[Any]]:
    """Return the columns of a block, which are stored one after the other."""
    sizes = [rows * np.dtype(name).itemsize for name in types if name in EXACT_TYPES]
    if len(sizes) < len(types) or sum(sizes) != len(content):
        raise _Lost
    columns, end = [], 0
    for name, size in zip(types, sizes, strict=True):
        start, end = end, end + size
        columns.append(np.frombuffer(memoryview(content)[start:end], name))
    return columns


def _receive(connection: Connection, deadline: float) -> bytes:
    if not connection.poll(max(0.0, deadline - time.monotonic())):
        raise _Lost
    return connection.recv_bytes()
