"""Creates the files that commands write. Only their owner can read them, and they are complete or do not exist."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from app.cli.refusals import fail

Output = Annotated[Path | None, typer.Option(help="Write to this new file, which only its owner may read.")]


def new_private_file(path: Path) -> int:
    """Return a descriptor of a new file. A file that exists is not touched."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        fail(f"Cannot write to {path}: {error.strerror}. It must be a new file in a folder that exists.")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that only its owner can read. When the block ends, the file is on the disk.

    If the file cannot be written completely, it is deleted, and the command ends with one line."""
    descriptor = new_private_file(path)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
    except BaseException as error:  # This includes Ctrl+C and a database that fails half-way.
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            fail(f"Cannot write to {path}: {error.strerror}. No partial file is left.")
        raise
