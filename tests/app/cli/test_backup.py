"""`epsilond backup`, `check-backup` and `restore`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from app.settings import Settings, environment_of
from tests.app.backups.conftest import Home, home, home_of
from tests.app.cli.calls import call, done, refused
from tests.databases import DatabaseFactory

__all__ = ["home", "home_of"]


@pytest.fixture
def databases(sqlite_databases: DatabaseFactory) -> DatabaseFactory:
    """Use SQLite alone, because the commands print the same on both engines."""
    return sqlite_databases


def test_a_backup_is_made_checked_and_restored(home: Home, tmp_path: Path) -> None:
    path, env = tmp_path / "b", environment_of(home.settings)
    made = json.loads(done("backup", path, "--json", env=env))
    assert (made["archive"], made["books_verified"], made["missing_files"]) == (str(path), True, [])
    assert made["entries"] == len(home.rows()["entries"])
    checked = json.loads(done("check-backup", path, "--json", env=env))
    assert checked.pop("seal") == "checked"
    assert checked == made
    there = home.elsewhere(tmp_path / "there")
    restored = done("restore", path, env=environment_of(there.settings))
    assert f"entries          {made['entries']}\n" in restored
    assert done("ledger", "acknowledge-loss", env=environment_of(there.settings)) == (
        "The database has everything that was acknowledged.\n"
    )


def test_a_backup_is_checked_without_a_database(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "b"
    home.save(path)
    env = {"EPSILOND_DATA_DIR": str(tmp_path / "nowhere"), "EPSILOND_DATABASE_URL": "postgresql://nobody@nowhere/x"}
    result = call("check-backup", path, env=env)
    assert result.exit_code == 0
    assert "seal             not checked" in result.stdout
    assert "warning: Without the secret, the seal was not checked" in result.stderr
    assert not (tmp_path / "nowhere").exists(), "no secret was made"
    assert "seal does not match this content secret" in refused(
        "check-backup", path, env=env | {"EPSILOND_SECRET_KEY": "k" * 32}
    )


def test_a_loss_is_shown_and_stands_until_it_is_acknowledged(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "b"
    home.save(path)
    with home.service() as service:
        budget = service.budget()["id"]
    there = home.elsewhere(tmp_path / "there")
    env = environment_of(there.settings)
    result = call("restore", path, env=env)
    assert result.exit_code == 1
    assert re.search(r"1 of \d+ acknowledged ledger entries are missing, in 1 chain\(s\)", result.stdout)
    assert f"{budget}  1             0" in result.stdout
    assert "Nothing is served until the loss is acknowledged: epsilond ledger acknowledge-loss --yes" in result.stderr
    assert "life 2 of the ledger has begun" in done("ledger", "acknowledge-loss", "--yes", "--reason", "x", env=env)


@pytest.mark.parametrize("has_fence", [True, False])
def test_a_loss_is_acknowledged_by_the_same_command(home: Home, tmp_path: Path, has_fence: bool) -> None:
    path = tmp_path / "b"
    home.save(path)
    with home.service() as service:
        service.budget()
    there = home.elsewhere(tmp_path / "there")
    if not has_fence:
        (there.folder / "fence").unlink()
    env = environment_of(there.settings)
    restored = json.loads(done("restore", path, "--acknowledge-loss", "the disk failed", "--json", env=env))
    assert restored["loss"]["reason"] == ("behind" if has_fence else "no_fence")
    assert restored["loss"]["missing_entries"] == (1 if has_fence else None)
    assert restored["acknowledged"]["life"] == 2
    with there.service() as service:
        assert service.client.get("/health/ready").status_code == 200


def test_where_a_fence_is_looked_for_is_told_truly(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "b"
    home.save(path)
    there = home.elsewhere(tmp_path / "there")
    (there.folder / "fence").unlink()
    env = environment_of(there.settings)
    told = f"The fence's place: {there.folder / 'fence'} (the default)."
    assert told in call("restore", path, env=env).stdout
    assert told in call("ledger", "acknowledge-loss", env=env).stdout
    words = Settings(fence="postgresql://me:hush@fence.example:5433/marks").fence_in_words
    assert words == "the database marks on fence.example (named by EPSILOND_FENCE)"
    elsewhere = str(tmp_path / "other" / "fence")
    assert f"The fence's place: {elsewhere} (named by EPSILOND_FENCE)." in done(
        "ledger", "acknowledge-loss", env=env | {"EPSILOND_FENCE": elsewhere}
    )


def test_nothing_is_acknowledged_where_nothing_is_lost(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    env = environment_of(there.settings)
    restored = json.loads(done("restore", tmp_path / "b", "--acknowledge-loss", "to be safe", "--json", env=env))
    assert restored["loss"] is None
    assert "acknowledged" not in restored
    assert len(there.rows()["ledger_lives"]) == 1


def test_what_is_refused_is_told_in_one_line(home: Home, tmp_path: Path) -> None:
    path, env = tmp_path / "b", environment_of(home.settings)
    home.save(path)
    assert f"{path} exists already and is not overwritten" in refused("backup", path, env=env)
    assert "No such file or directory" in refused("backup", tmp_path / "no" / "b", env=env)
    assert "No such file or directory" in refused("check-backup", tmp_path / "no", env=env)
    assert "is not empty" in refused("restore", path, env=env)
    damaged = tmp_path / "damaged"
    content = bytearray(path.read_bytes())
    # So many bytes that some of them say something: others are only filling.
    for place in range(len(content) // 2, len(content) // 2 + 4096):
        content[place] ^= 1
    damaged.write_bytes(content)
    assert f"{damaged} is refused." in refused("check-backup", damaged, env=env)
    there = home.elsewhere(tmp_path / "there")
    assert f"{damaged} is refused." in refused("restore", damaged, env=environment_of(there.settings))
    assert not (there.folder / "models").exists()
    shutil.rmtree(there.folder)
    assert "There is no secret at" in refused("restore", path, env=environment_of(there.settings))


def test_a_missing_file_is_a_warning(home: Home, tmp_path: Path) -> None:
    (home.folder / "datasets" / f"{home.names['dataset']}.npz").unlink()
    result = call("backup", tmp_path / "b", env=environment_of(home.settings))
    assert result.exit_code == 0
    assert f"warning: The file datasets/{home.names['dataset']}.npz was missing in the data folder" in result.stderr
