"""The folder of checkpoints, from which a run continues after its worker was lost. Checkpoints are as secret as the
data.

Anybody who reads one knows the noise and can subtract it, and some algorithms keep sums of records in it without noise.
So only the service's user can read the folder, no endpoint reads it, the files are encrypted if a data key is set, and
they are removed when their run has ended.

    {run}.{stream}.{epoch}.checkpoint
    {run}.{stream}.score

The second file holds the key of the noise of a trial's score (`app.runs.score_keys`).

Each claim of a run writes a file of its own, named by its epoch: a worker that has lost its run without knowing it
cannot replace its successor's file. All checkpoints of one random stream are stages of the same run, so the run can
continue from any of them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO

import structlog

from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.kit.encryption import FileUnreadable
from app.kit.private_files import remove_private
from app.runs import repository
from app.runs.artifacts import remove_unkept_models

log = structlog.get_logger()

_SUFFIX, _SCORE_SUFFIX = ".checkpoint", ".score"
_SEAL_BYTES = hashlib.sha256().digest_size


class CheckpointFiles:
    """The checkpoints under one data folder."""

    def __init__(self, context: Context) -> None:
        self.folder = context.settings.data_dir / "checkpoints"
        self._context = context

    def write(self, run_id: str, stream_id: str, epoch: int, content: bytes) -> None:
        """Replace a claim's earlier checkpoint; when this returns, the new one is on the disk.

        Checkpoints of earlier claims are then no longer needed.
        """
        self._write(self._path(run_id, stream_id, epoch), content)
        for other in self._of_stream(run_id, stream_id):
            if _epoch(other) < epoch:
                other.unlink(missing_ok=True)

    def read_all(self, run_id: str, stream_id: str) -> Iterator[bytes]:
        """Return the checkpoints that a run's claims kept of the stream, except those that are damaged or encrypted
        with other keys."""
        for path in self._of_stream(run_id, stream_id):
            content = self._read(path, run_id)
            if content is not None:
                yield content

    def write_score_key(self, run_id: str, stream_id: str, content: bytes) -> None:
        """Keep the key of a trial's score; when this returns, it is on the disk."""
        self._write(self._score_path(run_id, stream_id), content)

    def read_score_key(self, run_id: str, stream_id: str) -> bytes | None:
        """Return the key of the stream; None if it is missing, damaged, or under another data key."""
        return self._read(self._score_path(run_id, stream_id), run_id)

    def exist(self, run_id: str, stream_id: str) -> bool:
        """Return whether there is a checkpoint of the stream, usable or not."""
        return bool(self._of_stream(run_id, stream_id))

    def remove(self, run_id: str) -> None:
        """Remove all files of a run, including unfinished ones."""
        if self.folder.is_dir():
            for path in self.folder.glob(f"{run_id}.*"):
                remove_private(path)

    def sweep(self, ended: Callable[[Collection[str]], Collection[str]]) -> None:
        """Remove files of ended runs, which a lost worker may have written after the end.

        Files of runs that the database does not know are kept, because another database may use the same folder.

        Args:
            ended: A function that returns which of the given runs have ended.
        """
        kept = {path.name.partition(".")[0] for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        for run_id in ended(kept) if kept else ():
            self.remove(run_id)

    def _write(self, path: Path, content: bytes) -> None:
        # Files begin with an HMAC even without encryption, since training must not resume from a file that a disk fault
        # changed.
        seal = self._seal(path, content)

        def write(file: IO[bytes]) -> None:
            file.write(seal)
            file.write(content)

        self._context.settings.encryption.write(path, write)

    def _read(self, path: Path, run_id: str) -> bytes | None:
        try:
            with self._context.settings.encryption.open(path) as file:
                stored = file.read()
        except (OSError, FileUnreadable) as error:
            log.warning("checkpoint_unreadable", run_id=run_id, error_type=type(error).__name__)
            return None
        seal, content = stored[:_SEAL_BYTES], stored[_SEAL_BYTES:]
        if hmac.compare_digest(seal, self._seal(path, content)):
            return content
        log.warning("checkpoint_altered", run_id=run_id)
        return None

    def _score_path(self, run_id: str, stream_id: str) -> Path:
        return self.folder / f"{run_id}.{stream_id}{_SCORE_SUFFIX}"

    def _path(self, run_id: str, stream_id: str, epoch: int) -> Path:
        return self.folder / f"{run_id}.{stream_id}.{epoch}{_SUFFIX}"

    def _of_stream(self, run_id: str, stream_id: str) -> list[Path]:
        return sorted(self.folder.glob(f"{run_id}.{stream_id}.*{_SUFFIX}"), key=_epoch)

    def _seal(self, path: Path, content: bytes) -> bytes:
        seal = hmac.new(self._context.settings.secret, b"checkpoint\0" + path.name.encode() + b"\0", hashlib.sha256)
        seal.update(content)
        return seal.digest()


def sweep_checkpoints(context: Context) -> None:
    """Remove files of ended runs. The next sweep tries again to remove files that cannot be removed now.

    Models that lost claims wrote are removed first: each of them has a checkpoint beside it.
    """

    def ended(run_ids: Collection[str]) -> Collection[str]:
        with context.database.read() as session:
            runs = repository.ended_among(session, run_ids)
        for run in runs:
            remove_unkept_models(context, run)
        return [run.id for run in runs]

    try:
        CheckpointFiles(context).sweep(ended)
    except (*DATABASE_FAILURES, OSError) as error:
        log.error("checkpoints_not_swept", error_type=type(error).__name__)


def _epoch(path: Path) -> int:
    return int(path.name.removesuffix(_SUFFIX).rpartition(".")[2])
