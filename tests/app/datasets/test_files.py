from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from app.datasets.csv_file import read_csv
from app.datasets.files import DatasetFiles
from app.datasets.table import Table
from app.kit.data_keys import DataKeys
from app.kit.encryption import FileEncryption
from app.kit.private_files import DRAFT_IS_LEFT_OVER_AFTER_S
from tests.app.datasets.declarations import COLUMNS, CSV


@pytest.fixture
def table() -> Table:
    return read_csv(io.BytesIO(CSV), COLUMNS, "outcome")


@pytest.fixture
def files(tmp_path: Path) -> DatasetFiles:
    return DatasetFiles(tmp_path / "data", FileEncryption(DataKeys()))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_files_are_the_services_alone(files: DatasetFiles, table: Table) -> None:
    previous = os.umask(0)
    try:
        files.write("ds_a", table)
    finally:
        os.umask(previous)
    assert mode(files.folder.parent) == 0o700
    assert mode(files.folder) == 0o700
    assert mode(files.path("ds_a")) == 0o600


def test_a_folder_that_others_can_read_is_closed(files: DatasetFiles, table: Table) -> None:
    files.folder.mkdir(parents=True, mode=0o755)
    files.folder.chmod(0o755)
    files.write("ds_a", table)
    assert mode(files.folder) == 0o700


def test_an_incoming_file_has_no_name(files: DatasetFiles) -> None:
    with files.open_incoming() as incoming:
        incoming.write(b"rows")
        incoming.finish()
        assert incoming.open().read() == b"rows"
        assert list(files.folder.iterdir()) == []
        assert stat.S_IMODE(os.fstat(incoming.fileno()).st_mode) == 0o600
        assert os.fstat(incoming.fileno()).st_dev == files.folder.stat().st_dev


def test_rows_come_back_as_they_were_stored(files: DatasetFiles, table: Table) -> None:
    files.write("ds_a", table)
    features, labels = files.read("ds_a")
    assert np.array_equal(features, table.features)
    assert np.array_equal(labels, table.labels)
    assert features.dtype == np.float64
    assert labels.dtype == np.int64
    with zipfile.ZipFile(files.path("ds_a")) as archive:
        assert sorted(archive.namelist()) == ["features.npy", "labels.npy"]


def test_pickles_are_not_read(files: DatasetFiles, table: Table) -> None:
    files.write("ds_a", table)
    with files.path("ds_a").open("wb") as file:
        np.savez(file, features=np.array([{}], dtype=object), labels=np.zeros(1))
    with pytest.raises(ValueError, match="allow_pickle"):
        files.read("ds_a")


def test_a_failed_write_leaves_nothing(files: DatasetFiles, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **arrays: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="no space"):
        files.write("ds_a", table)
    assert list(files.folder.iterdir()) == []


def test_removing_is_repeatable(files: DatasetFiles, table: Table) -> None:
    files.remove("ds_a")
    files.write("ds_a", table)
    files.remove("ds_a")
    files.remove("ds_a")
    assert list(files.folder.iterdir()) == []


def test_a_sweep_removes_old_drafts_and_what_is_marked_deleted_and_nothing_else(
    files: DatasetFiles, table: Table
) -> None:
    asked: list[Collection[str]] = []

    def deleted(ids: Collection[str]) -> Collection[str]:
        asked.append(ids)
        return {"ds_deleted"}

    files.sweep(deleted)
    assert asked == []
    for name in ("ds_living", "ds_unknown", "ds_deleted"):
        files.write(name, table)
    for name in ("notes.txt", "backup.part", f"ds_draft.npz.{'0' * 16}.part"):
        (files.folder / name).touch()
    for path in files.folder.iterdir():
        moment = path.stat().st_mtime - 2 * DRAFT_IS_LEFT_OVER_AFTER_S
        os.utime(path, (moment, moment))
    files.sweep(deleted)
    kept = ["backup.part", "ds_living.npz", "ds_unknown.npz", "notes.txt"]
    assert sorted(path.name for path in files.folder.iterdir()) == kept
    assert asked == [{"ds_living", "ds_unknown", "ds_deleted"}]
