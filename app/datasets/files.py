"""The folder of private files, which only the service's user can read. Files are written completely or not at all."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from app.datasets.held_out import CoinArray
from app.datasets.table import FloatArray, LabelArray, Persons, Table
from app.kit.data_keys import KEY_BYTES
from app.kit.encryption import EncryptingWriter, FileEncryption, open_decrypting
from app.kit.private_files import own_folder, remove_left_over_drafts, remove_private

_SUFFIX = ".npz"
_HELD_OUT = "held_out"


class IncomingFile:
    """An upload in progress, on the private disk. The file has no name, so no crash can leave it behind.

    It may be encrypted with a key of its own, which is only in memory. So after the request nobody can read blocks that
    are left on the disk.

    Attributes:
        key: The file's own key, if it is encrypted.
        name: The name that the encryption binds to the content.
    """

    name = "incoming"

    def __init__(self, folder: Path, *, encrypted: bool) -> None:
        self.key = os.urandom(KEY_BYTES) if encrypted else None
        self._file = tempfile.TemporaryFile(dir=own_folder(folder))  # noqa: SIM115  # closed with this object
        self._writer = None if self.key is None else EncryptingWriter(self._file, self.key, self.name)

    def __enter__(self) -> IncomingFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, content: bytes | bytearray) -> None:
        if self._writer is None:
            self._file.write(content)
        else:
            self._writer.write(content)

    def finish(self) -> None:
        """Finish writing; the file can be read from now on."""
        if self._writer is not None:
            self._writer.finish()
        self._file.flush()

    def open(self) -> IO[bytes]:
        """Open the content at its beginning, for one reader at a time."""
        self._file.seek(0)
        return self._file if self.key is None else open_decrypting(self._file, self.key, self.name)

    def fileno(self) -> int:
        """Return a descriptor through which another process can read the file as stored on disk."""
        return self._file.fileno()


class DatasetFiles:
    """The files of the data sets under one data folder."""

    def __init__(self, data_dir: Path, encryption: FileEncryption) -> None:
        self.folder = data_dir / "datasets"
        self._encryption = encryption

    def open_incoming(self) -> IncomingFile:
        """Open a file for an upload, encrypted if stored files are encrypted."""
        return IncomingFile(self.folder, encrypted=self._encryption.is_on)

    def path(self, dataset_id: str) -> Path:
        return self.folder / f"{dataset_id}{_SUFFIX}"

    def write(self, dataset_id: str, table: Table, held_out: CoinArray | None = None) -> None:
        """Store the rows. The file gets its name only when all of it is on the disk.

        Args:
            dataset_id: The id of the version's data set.
            table: The rows.
            held_out: Which of them are held out; None if the data set holds none out.
        """

        def write(file: IO[bytes]) -> None:
            beside = {} if table.persons is None else dict(vars(table.persons))
            if held_out is not None:
                beside[_HELD_OUT] = held_out
            np.savez(file, features=table.features, labels=table.labels, **beside)

        self._encryption.write(self.path(dataset_id), write)

    def read(self, dataset_id: str) -> tuple[FloatArray, LabelArray]:
        """Return features and labels as they were stored.

        Raises:
            FileUnreadable: the file is encrypted under another key, or was changed.
        """
        with self._encryption.open(self.path(dataset_id)) as file, np.load(file, allow_pickle=False) as arrays:
            return arrays["features"], arrays["labels"]

    def read_held_out(self, dataset_id: str) -> CoinArray:
        """Return the coins of a data set that holds rows out: true for each row that is held out.

        Raises:
            FileUnreadable: As `read`.
        """
        with self._encryption.open(self.path(dataset_id)) as file, np.load(file, allow_pickle=False) as arrays:
            held_out: CoinArray = arrays[_HELD_OUT]
            return held_out

    def read_persons(self, dataset_id: str) -> Persons:
        """Return the person of each row, for a data set with ids of persons. Training never asks for it.

        Raises:
            FileUnreadable: As `read`.
        """
        with self._encryption.open(self.path(dataset_id)) as file, np.load(file, allow_pickle=False) as arrays:
            return Persons(arrays["hashes"], arrays["clipped"])

    def count_rows(self, dataset_id: str) -> int:
        """Return the number of rows, from the head of the file alone. The number is as private as the rows.

        Raises:
            OSError: there is no such file.
            FileUnreadable: As `read`.
        """
        with (
            self._encryption.open(self.path(dataset_id)) as file,
            zipfile.ZipFile(file) as archive,
            archive.open("labels.npy") as labels,
        ):
            version = np.lib.format.read_magic(labels)
            assert version == (1, 0), "as it was written"
            (rows,), _, _ = np.lib.format.read_array_header_1_0(labels)
            return int(rows)

    def remove(self, dataset_id: str) -> None:
        """Remove the rows, if there are any."""
        remove_private(self.path(dataset_id))

    def sweep(self, deleted: Callable[[Collection[str]], Collection[str]]) -> None:
        """Remove what a crash left behind: old drafts, and rows of data sets that are marked as deleted.

        A file that the database does not know is kept, whatever its age. Another database may use the folder, or the
        database may be an older copy, and then the file could be the only copy.

        Args:
            deleted: A function that returns which of the given ids the database marks as deleted.
        """
        if not self.folder.exists():
            return
        remove_left_over_drafts(self.folder)
        stored = {path.stem for path in self.folder.iterdir() if path.suffix == _SUFFIX}
        for dataset_id in deleted(stored):
            self.remove(dataset_id)
