"""The folder of private files: readable by the service's user alone, written whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO

import numpy as np

from app.datasets.table import FloatArray, LabelArray, Table
from app.kit.private_files import own_folder, remove_left_over_drafts, remove_private, write_private

_SUFFIX = ".npz"


class DatasetFiles:
    """The files of the data sets under one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / "datasets"

    def open_incoming(self) -> IO[bytes]:
        """A file for an upload on its way in, on the private disk. It has no name, so no crash can leave it behind."""
        return tempfile.TemporaryFile(dir=own_folder(self.folder))

    def path(self, dataset_id: str) -> Path:
        return self.folder / f"{dataset_id}{_SUFFIX}"

    def write(self, dataset_id: str, table: Table) -> None:
        """Store the rows. The file appears under its name when all of it is on the disk, and not before."""

        def write(file: IO[bytes]) -> None:
            np.savez(file, features=table.features, labels=table.labels)

        write_private(self.path(dataset_id), write)

    def read(self, dataset_id: str) -> tuple[FloatArray, LabelArray]:
        """Features and labels as they were stored."""
        with np.load(self.path(dataset_id), allow_pickle=False) as arrays:
            return arrays["features"], arrays["labels"]

    def remove(self, dataset_id: str) -> None:
        """Remove the rows; nothing happens where there are none."""
        remove_private(self.path(dataset_id))

    def sweep(self, deleted: Callable[[Collection[str]], Collection[str]]) -> None:
        """Remove what a crash left behind: old drafts, and rows of data sets that are marked deleted.

        A file that the database does not know stays, whatever its age: the folder may be another database's too, or the
        database an older copy, and then the file is somebody's only one.

        Args:
            deleted: Given ids, those that the database marks deleted.
        """
        if not self.folder.exists():
            return
        remove_left_over_drafts(self.folder)
        stored = {path.stem for path in self.folder.iterdir() if path.suffix == _SUFFIX}
        for dataset_id in deleted(stored):
            self.remove(dataset_id)
