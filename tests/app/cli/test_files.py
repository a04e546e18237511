"""Files that commands write are on the disk when they say so, and are their owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.cli.files import whole_file


def test_a_file_is_on_the_disk_whole_when_its_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "file", []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    with whole_file(path) as file:
        file.write(b"all of it")
    assert synced == [(path.stat().st_ino, b"all of it")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_of_a_file_that_is_not_finished(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "file"

    def write_half() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise failure

    with pytest.raises(failure):
        write_half()
    assert not path.exists()
