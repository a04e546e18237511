"""Liveness of worker processes: each worker holds the lock of its own file as long as it lives.

The operating system releases the lock when the process ends, however it ends. So a reused process id, a zombie, or
another container with the same host name cannot be mistaken for a living worker.
"""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.kit.private_files import make_private_folder


def new_worker_id() -> str:
    return f"wrk_{secrets.token_hex(8)}"


@contextmanager
def alive(data_dir: Path, worker_id: str) -> Iterator[None]:
    """Hold the worker's lock inside the block; its file is removed if the block ends without an error."""
    path = _path(data_dir, worker_id)
    unseen = path.with_suffix(".new")
    make_private_folder(path.parent)
    with unseen.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # The file is locked before it gets its name; otherwise another process could take it for a dead worker's.
        unseen.replace(path)
        yield
        path.unlink(missing_ok=True)


def dead_workers(data_dir: Path) -> list[str]:
    """Return the dead workers whose file is left in this folder. Workers of other folders are unknown here."""
    return [path.stem for path in _path(data_dir, "").parent.glob("*.lock") if has_died(data_dir, path.stem)]


def living_workers(data_dir: Path) -> int:
    """Return how many workers of this folder are alive."""
    return sum(not has_died(data_dir, path.stem) for path in _path(data_dir, "").parent.glob("*.lock"))


def has_died(data_dir: Path, worker_id: str) -> bool:
    """Return whether the worker's file is in this folder and no longer locked. Workers of other folders never count as
    dead."""
    try:
        file = _path(data_dir, worker_id).open("r+")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def forget(data_dir: Path, worker_id: str) -> None:
    """Remove the file of a worker whose runs are settled."""
    _path(data_dir, worker_id).unlink(missing_ok=True)


def _path(data_dir: Path, worker_id: str) -> Path:
    return data_dir / "workers" / f"{worker_id}.lock"
