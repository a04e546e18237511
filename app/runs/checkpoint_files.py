"""The folder of checkpoints: what a run needs to go on after its worker was lost, as secret as the data.

Whoever reads one knows the noise and can subtract it, and some algorithms keep sums of records in it that nothing was
added to. So the folder is the service's user's alone, no endpoint reads it, the files are encrypted if
a data key is set, and they are gone when their run has ended.

    {run}.{stream}.{epoch}.checkpoint
    {run}.{stream}.score

The second one holds the key of the noise of a trial's score (`app.runs.score_keys`).

Each claim of a run writes a file of its own, named by its epoch: a worker that lost its run and does not know yet
cannot replace what its successor keeps. All files of one stream are stages of the same run, so any of them is right to
go on from, whoever wrote it.
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
        """Keep a claim's checkpoint in place of its earlier one; when this returns, it is on the disk.

        Those of earlier claims are not needed then.
        """
        self._write(self._path(run_id, stream_id, epoch), content)
        for other in self._of_stream(run_id, stream_id):
            if _epoch(other) < epoch:
                other.unlink(missing_ok=True)

    def read_all(self, run_id: str, stream_id: str) -> Iterator[bytes]:
        """Return the checkpoints that a run's claims kept of the stream, except damaged ones and other keys' ones."""
        for path in self._of_stream(run_id, stream_id):
            content = self._read(path, run_id)
            if content is not None:
                yield content

    def write_score_key(self, run_id: str, stream_id: str, content: bytes) -> None:
        """Keep the key of a trial's score; when this returns, it is on the disk."""
        self._write(self._score_path(run_id, stream_id), content)

    def read_score_key(self, run_id: str, stream_id: str) -> bytes | None:
        """Return the key that was kept of the stream; None where it is gone, damaged, or under another data key."""
        return self._read(self._score_path(run_id, stream_id), run_id)

    def exist(self, run_id: str, stream_id: str) -> bool:
        """Return whether there is a checkpoint of the stream, of whatever worth."""
        return bool(self._of_stream(run_id, stream_id))

    def remove(self, run_id: str) -> None:
        """Remove all that is kept of a run, unfinished files among it."""
        if self.folder.is_dir():
            for path in self.folder.glob(f"{run_id}.*"):
                remove_private(path)

    def sweep(self, ended: Callable[[Collection[str]], Collection[str]]) -> None:
        """Remove what is left of runs that have ended: a worker that was lost may have written it afterwards.

        Files of runs that the database does not know stay: the folder may be another database's too.

        Args:
            ended: Given ids of runs, those that have ended.
        """
        kept = {path.name.partition(".")[0] for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        for run_id in ended(kept) if kept else ():
            self.remove(run_id)

    def _write(self, path: Path, content: bytes) -> None:
        # Sealed also where nothing is encrypted: a file that a fault of the disk changed must not be gone on from.
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
    """Remove what is left of runs that have ended; what fails now is tried again by the next sweep.

    Models that lost claims wrote go first: where there are some, there is a checkpoint.
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
