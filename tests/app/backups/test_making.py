"""What is in a backup and what is not, and that it is of one moment."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path
from typing import IO, Any

import pytest
import sqlalchemy as sa

from app.backups import contents
from app.backups.archive import ArchiveWriter, open_archive
from app.backups.making import BackupRefused, make_backup
from app.backups.manifest import ArchiveRefused
from app.db.database import Database
from app.fence.watching import fence_of
from app.kit import private_files
from app.ledger import transparency
from tests.app.backups.conftest import Home, nobody_counts

#: Tables that the story leaves empty.
EMPTY = {
    "audits",
    "certificates",
    "dataset_versions",
    "deployments",
    "limit_requests",
    "marked_steps",
    "merkle_cosignatures",
    "merkle_nodes",
    "webhook_messages",
    "webhooks",
}


def test_every_table_and_column_is_in_it_or_in_the_list_of_those_left_out(home: Home, tmp_path: Path) -> None:
    """As the database has them: a new table that nobody thought of here is found missing."""
    manifest = home.save(tmp_path / "b")
    database = Database(home.url)
    inspector = sa.inspect(database.engine)
    there = {
        f"{name}.{column['name']}"
        for name in set(inspector.get_table_names()) - {"alembic_version"}
        for column in inspector.get_columns(name)
    }
    database.dispose()
    inside = {f"{table.name}.{column}" for table in manifest.tables for column in table.columns}
    left_out = {each for each in there for gone in contents.LEFT_OUT if each == gone or each.startswith(f"{gone}.")}
    assert inside | left_out == there
    assert not inside & left_out
    rows = {table.name: table.rows for table in manifest.tables}
    assert rows == {name: len(found) for name, found in home.rows().items() if name not in contents.LEFT_OUT}
    assert all(rows[name] for name in set(rows) - EMPTY), "the story fills them"


def test_it_says_what_it_is_of(home: Home, tmp_path: Path) -> None:
    manifest = home.save(tmp_path / "b")
    with home.context() as context:
        verdict = transparency.verified(context)
    assert verdict.tree is not None
    said = manifest.ledger
    assert (said.entries, said.budgets, said.heads) == (verdict.entries, verdict.budgets, verdict.head)
    assert (said.tree_size, said.tree_root) == (verdict.tree.size, verdict.tree.root.hex())
    assert f"epsilond/{said.ledger_id}" in verdict.tree.origin or said.ledger_id in verdict.tree.origin
    assert (said.life, manifest.is_verified, manifest.missing_files) == (1, True, ())
    with open_archive(tmp_path / "b") as archive:
        assert archive.manifest == manifest


def test_no_secret_is_in_it_and_nothing_that_noise_comes_from(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    with zipfile.ZipFile(tmp_path / "b") as archive:
        names, everything = archive.namelist(), b"".join(archive.read(name) for name in archive.namelist())
    checkpoints = list((home.folder / "checkpoints").iterdir())
    secrets = [path for path in home.folder.iterdir() if path.suffix == ".key"]
    assert checkpoints
    assert len(secrets) == 3
    for path in [*checkpoints, *secrets]:
        assert not any(path.name in name for name in names)
        content = path.read_bytes()
        assert content not in everything
        assert content[-32:] not in everything
    assert home.names["token"].encode() not in everything
    assert {name.split("/")[0] for name in names} == {"tables", "files", "manifest.json", "seal"}
    assert {name.split("/")[1] for name in names if name.startswith("files/")} == {"datasets", "models"}


def test_it_is_its_owners_alone_and_never_in_the_place_of_another(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "b"
    home.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    with pytest.raises(FileExistsError):
        home.save(path)
    assert path.read_bytes() == content
    assert not list(tmp_path.glob("*.part"))


def test_it_is_of_one_moment_while_others_write(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget that is made, and a data set that is deleted, after the first table was read."""
    write, done = ArchiveWriter.write, []
    with home.service() as service, home.context() as context:
        transparency.verified(context)  # gives the newest entries their places in the tree
        before = home.rows()

        def writing(self: ArchiveWriter, name: str, *args: Any, **options: Any) -> Any:
            if not done:
                done.append(service.budget())
                assert service.client.delete(f"/v1/datasets/{home.names['dataset']}").status_code == 204
            return write(self, name, *args, **options)

        monkeypatch.setattr(ArchiveWriter, "write", writing)
        manifest = make_backup(context, tmp_path / "b", nobody_counts)
        monkeypatch.undo()
        assert len(home.rows()["budgets"]) == len(before["budgets"]) + 1
        assert fence_of(context).check() is None
    assert {table.name: table.rows for table in manifest.tables} == {
        name: len(rows) for name, rows in before.items() if name not in contents.LEFT_OUT
    }
    assert manifest.missing_files == (), "the data set was deleted, and is not missed"
    assert not any(file.path.startswith("datasets/") for file in manifest.files)
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    assert there.rows()["entries"] == before["entries"]


def test_a_file_that_is_missing_is_named(home: Home, tmp_path: Path) -> None:
    (home.folder / "datasets" / f"{home.names['dataset']}.npz").unlink()
    manifest = home.save(tmp_path / "b")
    assert manifest.missing_files == (f"datasets/{home.names['dataset']}.npz",)


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_encrypted_files_stay_encrypted(home: Home, tmp_path: Path) -> None:
    path = home.folder / "datasets" / f"{home.names['dataset']}.npz"
    path.write_bytes(b"as it lies there, whatever it is")
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    assert (there.folder / "datasets" / path.name).read_bytes() == path.read_bytes()


def test_damaged_books_are_not_saved_unless_that_is_asked_for(home: Home, tmp_path: Path) -> None:
    engine = sa.create_engine(home.url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE budgets SET spent = '[0]'"))
    engine.dispose()
    with pytest.raises(BackupRefused, match="The books are not valid: budget bud_"):
        home.save(tmp_path / "b")
    assert list(tmp_path.glob("b*")) == []
    assert not home.save(tmp_path / "b", verifies=False).is_verified


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_a_value_that_is_not_of_its_column_is_told(home: Home, tmp_path: Path) -> None:
    engine = sa.create_engine(home.url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE runs SET heartbeat = x'00ff'"))
    engine.dispose()
    with pytest.raises(
        BackupRefused, match=r"The table runs cannot be read: .* runs\.heartbeat is not of the kind integer"
    ):
        home.save(tmp_path / "b")


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_what_is_broken_off_leaves_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    for place in ("write", "finish"):
        with monkeypatch.context() as patch:
            patch.setattr(ArchiveWriter, place, broken)
            with pytest.raises(type(error)):
                home.save(tmp_path / "b")
        assert list(tmp_path.glob("b*")) == []


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_a_backup_that_the_disk_has_changed_is_not_kept(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again before it has its name."""
    finish = ArchiveWriter.finish

    def damaged(self: ArchiveWriter, *args: Any) -> None:
        file: IO[bytes] = self._archive.fp  # type: ignore[assignment]
        finish(self, *args)
        file.seek(200)
        file.write(b"\0\0\0\0")

    monkeypatch.setattr(ArchiveWriter, "finish", damaged)
    with pytest.raises(ArchiveRefused):
        home.save(tmp_path / "b")
    assert list(tmp_path.glob("b*")) == []


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_it_may_be_written_where_there_are_no_hard_links(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(private_files.Path, "hardlink_to", refuses)
    home.save(tmp_path / "b")
    assert [path.name for path in tmp_path.glob("b*")] == ["b"]
