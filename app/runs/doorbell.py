"""Wake idle workers, so that a worker takes a new run at once, without waiting for its next look at the database.

Each worker process has a named pipe beside its lock, and whoever queues a run on the same machine writes to all of
them. Nothing depends on it, because workers also look by themselves: a lost ring costs one pause, and workers on other
machines find runs when they look.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from app.kit.private_files import make_private_folder

_SUFFIX = ".bell"


class Doorbell:
    """The bell of one worker: a named pipe that exists for the duration of the block. Several threads may wait for it,
    and a ring wakes all of them."""

    def __init__(self, data_dir: Path, worker_id: str) -> None:
        self._path = _folder(data_dir) / f"{worker_id}{_SUFFIX}"

    def __enter__(self) -> Doorbell:
        make_private_folder(self._path.parent)
        with suppress(FileExistsError):
            os.mkfifo(self._path, 0o600)
        # The pipe is opened for writing too, since a pipe without a writer always reads as ended.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._pipe)

    def wait(self, seconds: float) -> None:
        """Wait for a ring for at most so many seconds. Return at once if there was a ring since the last wait."""
        if select.select([self._pipe], [], [], seconds)[0]:
            with suppress(BlockingIOError):  # Another thread has read the ring.
                os.read(self._pipe, 4096)


def ring(data_dir: Path) -> None:
    """Wake the idle workers of this data folder; busy ones look again when they are done."""
    for path in _folder(data_dir).glob(f"*{_SUFFIX}"):
        # This fails if a worker is gone or not listening yet, or if unread rings fill the pipe.
        with suppress(OSError):
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(pipe, b"\n")
            finally:
                os.close(pipe)


def forget(data_dir: Path, worker_id: str) -> None:
    """Remove the bell of a worker that is gone."""
    (_folder(data_dir) / f"{worker_id}{_SUFFIX}").unlink(missing_ok=True)


def _folder(data_dir: Path) -> Path:
    return data_dir / "workers"
