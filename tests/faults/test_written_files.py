"""Files that a command writes: whole and on the disk, or not there."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.cli.files import whole_file
from app.cli.refusals import Refusal


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may be longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("pieces", [1, 2, 100])
def test_a_file_that_finds_no_room_is_not_left_in_part(tmp_path: Path, pieces: int) -> None:
    path = tmp_path / "export"

    def write() -> None:
        with whole_file(path) as file:
            for _ in range(pieces):
                file.write(b"x" * 2000)

    with room_for(1000), pytest.raises(Refusal) as refused:
        write()
    assert not path.exists()
    assert str(refused.value) == f"Cannot write to {path}: File too large. No partial file is left."


def test_a_file_is_on_the_disk_when_it_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    path = tmp_path / "export"
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
    with room_for(1000), whole_file(path) as file:
        file.write(b"content")
    assert synced == [b"content"]
    assert path.stat().st_mode & 0o777 == 0o600
