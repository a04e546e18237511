"""Private files: whole or not at all, for one user, on the disk with their names."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import IO

import pytest

from app.kit import private_files
from app.kit.private_files import (
    DRAFT_IS_LEFT_OVER_AFTER_S,
    make_private_folder,
    remove_left_over_drafts,
    remove_private,
    write_new_private,
    write_private,
    write_private_once,
)

pytestmark = pytest.mark.usefixtures("open_umask")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write_rows(file: IO[bytes]) -> None:
    file.write(b"rows")


def fail(file: IO[bytes]) -> None:
    file.write(b"ro")
    raise OSError("no space left")


def test_a_file_and_every_new_folder_are_one_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "models" / "run.npz"
    write_private(path, write_rows)
    assert path.read_bytes() == b"rows"
    assert [mode(path), mode(path.parent), mode(path.parent.parent)] == [0o600, 0o700, 0o700]
    assert [entry.name for entry in path.parent.iterdir()] == ["run.npz"]


def test_a_folder_of_the_services_own_is_closed_and_an_operators_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o755)
    (tmp_path / "operators").mkdir(mode=0o755)
    write_private(tmp_path / "own" / "file", write_rows)
    write_private_once(tmp_path / "operators" / "file", b"key")
    make_private_folder(tmp_path / "operators")
    assert mode(tmp_path / "own") == 0o700
    assert mode(tmp_path / "operators") == 0o755
    assert mode(tmp_path / "operators" / "file") == 0o600


def test_a_failed_write_leaves_the_older_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "own" / "file"
    write_private(path, write_rows)
    with pytest.raises(OSError, match="no space"):
        write_private(path, fail)
    assert path.read_bytes() == b"rows"
    assert list(path.parent.iterdir()) == [path]


def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace, link = os.fsync, Path.replace, Path.hardlink_to

    def record_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        folder = tmp_path.stat().st_ino == status.st_ino
        assert folder or (stat.S_ISREG(status.st_mode) and status.st_size == 4)
        steps.append("sync folder" if folder else "sync file")
        fsync(descriptor)

    def record_replace(draft: Path, target: Path) -> Path:
        steps.append("name")
        return replace(draft, target)

    def record_link(path: Path, draft: Path) -> None:
        steps.append("name")
        link(path, draft)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    monkeypatch.setattr(Path, "hardlink_to", record_link)
    write_private(tmp_path / "file", write_rows)
    assert steps == ["sync file", "name", "sync folder"]
    steps.clear()
    write_private_once(tmp_path / "key", b"rows")
    assert steps == ["sync file", "name", "sync folder"]
    steps.clear()
    remove_private(tmp_path / "file")
    assert steps == ["sync folder"]


def test_a_new_folders_own_name_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(private_files, "sync_folder", synced.append)
    make_private_folder(tmp_path / "a" / "b")
    make_private_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]


def test_of_two_that_write_at_once_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "key"
    contents = [bytes([letter]) * 32 for letter in b"abcdefgh"]
    gate = threading.Barrier(len(contents))

    def write(content: bytes) -> None:
        gate.wait()
        write_private_once(path, content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = path.read_bytes()
    assert first in contents
    write_private_once(path, b"later")
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def test_removing_is_repeatable(tmp_path: Path) -> None:
    path = tmp_path / "own" / "file"
    remove_private(path)
    write_private(path, write_rows)
    remove_private(path)
    remove_private(path)
    assert list(path.parent.iterdir()) == []


def test_a_draft_is_known_by_its_name_and_left_over_when_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCutError(BaseException):
        pass

    def cut(draft: Path, target: Path) -> Path:
        raise PowerCutError

    with monkeypatch.context() as machine:
        machine.setattr(Path, "replace", cut)
        machine.setattr(Path, "unlink", lambda path, missing_ok: None)
        with pytest.raises(PowerCutError):
            write_private(tmp_path / "rows.npz", write_rows)
    [draft] = tmp_path.iterdir()
    others = [tmp_path / name for name in ("rows.npz", "rows.part", "rows.npz.0.part", f"{'0' * 16}.part")]
    for path in others:
        path.touch()
        os.utime(path, (0, 0))
    remove_left_over_drafts(tmp_path)
    assert draft.exists()
    moment = draft.stat().st_mtime - DRAFT_IS_LEFT_OVER_AFTER_S - 60
    os.utime(draft, (moment, moment))
    remove_left_over_drafts(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_draft_that_goes_while_the_folder_is_read_is_nobodys_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / f"rows.npz.{'0' * 16}.part"]))
    remove_left_over_drafts(tmp_path)


def test_a_new_file_takes_nobodys_place_and_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    write_new_private(tmp_path / "new", write_rows)
    assert ((tmp_path / "new").read_bytes(), mode(tmp_path / "new"), mode(tmp_path)) == (b"rows", 0o600, 0o755)
    with pytest.raises(FileExistsError):
        write_new_private(tmp_path / "new", fail)
    with pytest.raises(OSError, match="no space left"):
        write_new_private(tmp_path / "other", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_of_two_that_write_a_new_file_at_once_one_is_refused(tmp_path: Path) -> None:
    def write(file: IO[bytes]) -> None:
        (tmp_path / "new").write_bytes(b"theirs")
        file.write(b"ours")

    with pytest.raises(FileExistsError):
        write_new_private(tmp_path / "new", write)
    assert (tmp_path / "new").read_bytes() == b"theirs"
