"""Files that only the service's user can read. Each is complete or absent, even after a power cut."""

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

#: A draft of this age was left by a process that has ended, since no file takes as long to write.
DRAFT_IS_LEFT_OVER_AFTER_S = 24 * 3600

# The names that `_draft` gives. A sweep removes no other files.
_DRAFT_NAME = re.compile(r".+\.[0-9a-f]{16}\.part")

Write = Callable[[IO[bytes]], None]


def make_private_folder(path: Path) -> Path:
    """Create the folder and its missing parents, private to this user. Existing folders are not changed."""
    if not path.is_dir():
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)
    return path


def make_private_file(path: Path) -> None:
    """Create an empty file that is private to this user, where that is possible. An existing file is not changed."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def own_folder(path: Path) -> Path:
    """Create a folder of the service that is private to this user; if it exists, close it to others."""
    make_private_folder(path)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    return path


def write_private(path: Path, write: Write, naming: AbstractContextManager[bool] | None = None) -> bool:
    """Write a file of mode 0600 into a folder of mode 0700. It replaces an older file of the same name.

    The file appears under its name only when all of it is on the disk. When this function returns, its name is on the
    disk, too.

    Args:
        path: The file, in a folder of the service's own (`own_folder`).
        write: Writes the content to the open file. If it raises, nothing is left, and an older file stays.
        naming: The block in which the file gets its name. It yields whether the file may still get its name. Without a
            block, the file may.

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
    """Like `write_private`, unless the file exists. If two processes write at once, one of them wins.

    The folder belongs to the operator: it is created private to this user, and not changed if it exists.
    """
    make_private_folder(path.parent)
    with _draft(path, lambda file: _write_all(file, content)) as draft:
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return
    sync_folder(path.parent)


def write_new_private(path: Path, write: Write) -> None:
    """Write a new file of mode 0600 into an existing folder.

    The file appears under its name when all of it is on the disk, and not before. If ``write`` raises, nothing is left.

    Raises:
        FileExistsError: the file exists. It is not changed.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    with _draft(path, write) as draft:
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise
        except OSError:
            # Some file systems have no hard links, such as those of USB sticks and network shares.
            draft.replace(path)
    sync_folder(path.parent)


def replace_private(path: Path, content: bytes, *, keeps_owner: bool = False) -> None:
    """Like `write_private_once`, but replace an existing file.

    Args:
        path: The file.
        content: The complete content.
        keeps_owner: Whether owner, group and mode of the existing file stay. A command of another user must not make a
            file unreadable for the service.

    Raises:
        OSError: The file cannot be written, or not for its owner.
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
    """Remove the file permanently, if it exists."""
    if path.parent.is_dir():
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def is_draft(path: Path) -> bool:
    """Return whether a file of this name is a draft, which is still being written or was left over when its process
    ended."""
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
    """Yield a complete file beside ``path``, on the disk. It is removed after the block unless it was renamed."""
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
    """Return whether the file exists and was last written before this moment, in seconds since the epoch."""
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:
        # Another process has finished its draft or removed it since the folder was listed.
        return False
