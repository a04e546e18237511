"""`kill -9` in the middle of a backup and of a restore: nothing that is half done is ever taken for whole."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from app.backups import restoring
from app.backups.archive import ArchiveWriter, open_archive
from app.backups.making import make_backup
from app.backups.restoring import restore
from app.settings import environment_of
from tests.app.backups.conftest import Home, home, home_of
from tests.app.cli.calls import done, refused

__all__ = ["home", "home_of"]


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(work: Callable[[], None]) -> None:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def after(calls: int) -> Callable[[int], None]:
    """Die when so many parts were written or read."""
    seen = 0

    def counts(_size: int) -> None:
        nonlocal seen
        seen += 1
        if seen == calls:
            _die()

    return counts


@pytest.mark.parametrize("place", ["rows", "before the manifest", "before it has its name"])
@pytest.mark.one_in(3)
def test_a_backup_that_is_killed_is_none_and_the_next_one_succeeds(home: Home, tmp_path: Path, place: str) -> None:
    path = tmp_path / "kept" / "b"
    path.parent.mkdir()

    def work() -> None:
        if place == "before the manifest":
            ArchiveWriter.finish = _die  # type: ignore[method-assign]
        elif place == "before it has its name":
            Path.hardlink_to = _die  # type: ignore[method-assign,assignment]
        with home.context() as context:
            make_backup(context, path, after(30) if place == "rows" else after(-1))

    killed(work)
    assert not path.exists()
    (draft,) = path.parent.iterdir()
    assert draft.stat().st_mode & 0o777 == 0o600
    env = environment_of(home.settings)
    if place == "before it has its name":
        done("check-backup", draft, env=env)
    else:
        assert "is refused" in refused("check-backup", draft, env=env)
    home.save(path)
    with open_archive(path) as archive:
        archive.check(after(-1))


def in_the_files() -> None:
    """A file is written and has no name yet."""
    Path.replace = _die  # type: ignore[method-assign,assignment]


def before_the_database() -> None:
    restoring._new_database = _die  # type: ignore[assignment]


def in_the_rows() -> None:
    write, seen = restoring._write_table, []

    def half(*args: object) -> None:
        seen.append(args)
        if len(seen) == 8:
            _die()
        write(*args)  # type: ignore[arg-type]

    restoring._write_table = half


def before_the_commit() -> None:
    restoring._check_books = _die  # type: ignore[assignment]


def at_the_end() -> None:
    """The database is there, and the file that says that a restore is under way, too."""
    unlink = Path.unlink

    def dies(self: Path, missing_ok: bool = False) -> None:
        if self.name == "unfinished-restore":
            _die()
        unlink(self, missing_ok=missing_ok)

    Path.unlink = dies  # type: ignore[method-assign]


@pytest.mark.parametrize("arm", [in_the_files, before_the_database, in_the_rows, before_the_commit, at_the_end])
@pytest.mark.one_in(10)
def test_a_restore_that_is_killed_serves_nothing_and_the_next_one_succeeds(
    home: Home, tmp_path: Path, arm: Callable[[], None]
) -> None:
    path = tmp_path / "b"
    home.save(path)
    there = home.elsewhere(tmp_path / "there")

    def work() -> None:
        arm()
        with there.context() as context, open_archive(path) as archive:
            restore(context, archive, after(-1))

    killed(work)
    env = environment_of(there.settings)
    for command in (("serve", "--migrate"), ("worker",), ("migrate",), ("ledger", "verify")):
        assert "is in progress or was interrupted. Run `epsilond restore` again" in refused(*command, env=env)
    assert "restored" not in done("restore", path, env=env)
    assert not there.settings.unfinished_restore_file.exists()
    assert [len(rows) for rows in there.rows().values()] == [len(rows) for rows in home.rows().values()]
    for folder in ("datasets", "models"):
        names = {file.name for file in (home.folder / folder).iterdir()}
        assert {file.name for file in (there.folder / folder).iterdir()} == names
    assert "valid" in done("ledger", "verify", env=env)
    left = {file.name for file in there.folder.iterdir()}
    assert not {name for name in left if "restoring" in name or name.endswith(".part")}
