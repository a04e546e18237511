"""The folder of private files: readable by the service's user alone, written whole or not at all."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO

import numpy as np

from app.datasets.table import FloatArray, LabelArray, Table
from app.settings import make_private_folder

#: A file without a living data set is left over from a crash once it is older than this; an upload takes less.
ABANDONED_AFTER_S = 24 * 3600


class DatasetFiles:
    """The files of the data sets under one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / "datasets"

    def open_incoming(self) -> IO[bytes]:
        """A file for an upload on its way in, on the private disk. It has no name, so no crash can leave it behind."""
        return tempfile.TemporaryFile(dir=self._made_folder())

    def path(self, dataset_id: str) -> Path:
        return self.folder / f"{dataset_id}.npz"

    def write(self, dataset_id: str, table: Table) -> None:
        """Store the rows. The file appears under its name when all of it is on the disk, and not before."""
        draft = self._made_folder() / f"{dataset_id}.{secrets.token_hex(8)}.part"
        try:
            with open(draft, "xb", opener=_private) as file:
                np.savez(file, features=table.features, labels=table.labels)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path(dataset_id))
        finally:
            draft.unlink(missing_ok=True)
        self._sync_folder()

    def read(self, dataset_id: str) -> tuple[FloatArray, LabelArray]:
        """Features and labels as they were stored."""
        with np.load(self.path(dataset_id), allow_pickle=False) as arrays:
            return arrays["features"], arrays["labels"]

    def remove(self, dataset_id: str) -> None:
        """Remove the rows; nothing happens where there are none."""
        if self.folder.exists():
            self.path(dataset_id).unlink(missing_ok=True)
            self._sync_folder()

    def remove_abandoned(self, living: Callable[[Collection[str]], Collection[str]]) -> None:
        """Remove what a crash left behind: drafts, and rows whose data set was never registered or is deleted.

        Args:
            living: Given ids, those that are registered and not deleted.
        """
        if not self.folder.exists():
            return
        oldest = time.time() - ABANDONED_AFTER_S
        old = [path for path in self.folder.iterdir() if _changed_before(path, oldest)]
        kept = living({path.stem for path in old if path.suffix == ".npz"})
        for path in old:
            if path.suffix != ".npz" or path.stem not in kept:
                path.unlink(missing_ok=True)

    def _made_folder(self) -> Path:
        make_private_folder(self.folder.parent)
        make_private_folder(self.folder)
        if self.folder.stat().st_mode & 0o077:
            self.folder.chmod(0o700)
        return self.folder

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _changed_before(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:
        # Another process finished its draft, or swept, since the folder was listed.
        return False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
