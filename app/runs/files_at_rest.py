"""The files that are encrypted at rest: which data key each file needs, and how files move from an older key to the
newest.

A file is replaced while nobody else may replace it. Rows are replaced under the lock of their data set, which deleting
and erasing also take first. A checkpoint is replaced under the lock of its run, while no worker carries out the run. So
a removed file cannot reappear, and an older checkpoint cannot replace a newer one. The encrypted copy is made before
the lock is taken.

Interrupted work is found again by the headers of the files, which name their keys. There is no other record of it.
Several processes may work at once, because each would write the same content.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.context import Context
from app.datasets import repository as rows
from app.datasets import service as datasets
from app.kit.encryption import FileUnreadable, Holding, holdings
from app.kit.private_files import DRAFT_IS_LEFT_OVER_AFTER_S, changed_before, is_draft
from app.runs import repository
from app.runs.checkpoint_files import sweep_checkpoints
from app.settings import Settings
from app.tables.states import RunState

#: A function that is called with the number of finished files and the total number of files.
Reached = Callable[[int, int], None]

_DATASETS, _CHECKPOINTS = "datasets", "checkpoints"


@dataclass(frozen=True)
class Outcome:
    """The result of a re-encryption.

    Attributes:
        done: The number of files that are now under the newest key.
        left: The number of files that are not yet under the newest key, because their runs or uploads are in progress.
        unreadable: Files that cannot be decrypted, because they were altered or their key is missing.
    """

    done: int
    left: int
    unreadable: tuple[Path, ...]


def held_by_keys(settings: Settings) -> dict[bytes | None, Holding]:
    """Return the files that need each data key, by the key's id; unencrypted files are under None."""
    return holdings(_files(settings))


def count_held(settings: Settings, identity: bytes) -> int:
    """Count the files that are encrypted with the data key of this id."""
    return held_by_keys(settings).get(identity, Holding()).files


def count_foreign(settings: Settings) -> int:
    """Count the encrypted files whose key is not among the data keys."""
    known = {None, *settings.encryption.keys.ids()}
    return sum(holding.files for identity, holding in held_by_keys(settings).items() if identity not in known)


def encrypt_anew(context: Context, reached: Reached) -> Outcome:
    """Encrypt with the newest data key all files that are under an older key or unencrypted.

    If it is stopped, nothing is lost, and it can be called again; runs and uploads continue meanwhile. It needs room
    for one more copy of the largest file.

    Raises:
        OSError: A file cannot be written.
    """
    encryption = context.settings.encryption
    # Files that are marked deleted are removed, not encrypted anew.
    datasets.sweep_files(context)
    sweep_checkpoints(context)
    waiting = [path for path in _files(context.settings) if not encryption.is_current(path)]
    done, unreadable = 0, []
    for number, path in enumerate(waiting):
        reached(number, len(waiting))
        try:
            done += encryption.write_anew(path, partial(_may_replace, context, path))
        except FileUnreadable:
            unreadable.append(path)
    reached(len(waiting), len(waiting))
    left = sum(not encryption.is_current(path) for path in _files(context.settings)) - len(unreadable)
    return Outcome(done, left, tuple(unreadable))


@contextmanager
def _may_replace(context: Context, path: Path) -> Iterator[bool]:
    """Open a block in which nobody else writes or removes the file; it yields whether the file may be replaced."""
    with context.database.write() as session:
        if path.parent.name == _DATASETS:
            is_free = rows.lock_rows(session, path.stem)
        else:
            run = repository.find_for_update(session, path.name.partition(".")[0])
            is_free = None if run is None else run.state == RunState.QUEUED
        # A file that this database does not know may be an upload in progress, so it is replaced only if it is old.
        yield changed_before(path, time.time() - DRAFT_IS_LEFT_OVER_AFTER_S) if is_free is None else is_free


def _files(settings: Settings) -> list[Path]:
    """Return all finished files, those of data sets first."""
    folders = (settings.data_dir / name for name in (_DATASETS, _CHECKPOINTS))
    return [
        path
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if path.is_file() and not is_draft(path)
    ]
