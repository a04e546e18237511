"""Files that only the service's user can read, and that are there whole or not at all, also after a power cut."""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

#: A draft of this age belongs to a process that is gone: no file takes as long to write.
DRAFT_IS_LEFT_OVER_AFTER_S = 24 * 3600

# The names of `_draft`'s files. Nothing else is taken for a draft, so that a sweep leaves other files alone.
_DRAFT_NAME = re.compile(r".+\.[0-9a-f]{16}\.part")

Write = Callable[[IO[bytes]], None]


def make_private_folder(path: Path) -> Path:
    """Create the folder and its missing parents for this user alone; leave those that exist as they are."""
    if not path.is_dir():
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)
    return path


def make_private_file(path: Path) -> None:
    """Create an empty file for this user alone, where that is possible; one that exists is left as it is."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def own_folder(path: Path) -> Path:
    """A folder of the service's own: created for this user alone, and closed to others where it was open."""
    make_private_folder(path)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    return path


def write_private(path: Path, write: Write, naming: AbstractContextManager[bool] | None = None) -> bool:
    """Write a file of mode 0600 into a folder of mode 0700, in place of the one that was there.

    The file appears under its name when all of it is on the disk, and not before; when this returns, so is its name.

    Args:
        path: The file, in a folder of the service's own (`own_folder`).
        write: Given the open file, writes the content. Where it raises, nothing is left and an older file stays.
        naming: The block in which the file gets its name; it yields whether it still may. Without one, it may.

    Returns:
        Whether the file got its name.
    """
    own_folder(path.parent)
    with _draft(path, write) as draft, nullcontext(True) if naming is None else naming as may:
        if may:
            draft.replace(path)
    sync_folder(path.parent)
    return may


def write_private_once(path: Path, content: bytes) -> None:
    """Like `write_private`, unless there is such a file: of two processes that write at once, one wins.

    The folder is the operator's: created for this user alone, and left as it is where it exists.
    """
    make_private_folder(path.parent)
    with _draft(path, lambda file: _write_all(file, content)) as draft:
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return
    sync_folder(path.parent)


def write_new_private(path: Path, write: Write) -> None:
    """Write a file of mode 0600 that was not there before, into a folder that exists.

    The file appears under its name when all of it is on the disk, and not before. Where ``write`` raises, nothing is
    left.

    Raises:
        FileExistsError: there is such a file. It is left as it is.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    with _draft(path, write) as draft:
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links, as that of a stick or of a share has none.
            draft.replace(path)
    sync_folder(path.parent)


def replace_private(path: Path, content: bytes, *, keeps_owner: bool = False) -> None:
    """Like `write_private_once`, in place of a file that is there.

    Args:
        path: The file.
        content: All of it.
        keeps_owner: Whether owner, group and mode stay those of the file that is there: another user's command must not
            take from the service a file that it reads.

    Raises:
        OSError: It cannot be written, or not for its owner.
    """
    make_private_folder(path.parent)

    def write(file: IO[bytes]) -> None:
        if keeps_owner:
            there = path.stat()
            os.fchown(file.fileno(), there.st_uid, there.st_gid)
            os.fchmod(file.fileno(), there.st_mode)
        file.write(content)

    with _draft(path, write) as draft:
        draft.replace(path)
    sync_folder(path.parent)


def remove_private(path: Path) -> None:
    """Remove the file for good; nothing happens where there is none."""
    if path.parent.is_dir():
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def is_draft(path: Path) -> bool:
    """Return whether a file of this name is one that is being written, or was when its process ended."""
    return _DRAFT_NAME.fullmatch(path.name) is not None


def remove_left_over_drafts(folder: Path) -> None:
    """Remove the old drafts that a crash left in the folder, and nothing else."""
    oldest = time.time() - DRAFT_IS_LEFT_OVER_AFTER_S
    for path in folder.iterdir():
        if is_draft(path) and changed_before(path, oldest):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Bring the folder's entries to the disk: a file's own fsync does not cover its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _draft(path: Path, write: Write) -> Iterator[Path]:
    """A complete file beside ``path``, on the disk; it is gone after the block unless it was renamed."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open(draft, "xb", opener=_private) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _write_all(file: IO[bytes], content: bytes) -> None:
    file.write(content)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def changed_before(path: Path, moment: float) -> bool:
    """Return whether the file is there and was last written before the moment, in seconds since the epoch."""
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:
        # Another process finished its draft, or swept, since the folder was listed.
        return False
