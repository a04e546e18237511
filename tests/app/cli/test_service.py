"""The commands that run the service and make its keys, called in this process."""

from __future__ import annotations

import errno
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner, Result

from app.auth import service
from app.auth.principal import Scope
from app.cli.main import cli
from app.cli.service import until_stopped
from app.cli.setting_up import warn_of_open_database
from app.context import Context
from app.kit.data_keys import DataKeys
from app.kit.encryption import FileEncryption
from app.settings import Settings, environment_of
from tests.databases import DatabaseFactory, on_one_engine, on_postgresql


def run(settings: Settings, *arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), env=environment_of(settings))


@on_one_engine
def test_a_created_key_is_shown_once_and_works(context: Context) -> None:
    result = run(context.settings, "keys", "create", "--name", "ci", "--scope", "owner", "--scope", "analyst")
    assert result.exit_code == 0, result.output
    principal = service.authenticate(context, result.stdout.strip())
    assert principal is not None
    assert principal.scopes == {Scope.OWNER, Scope.ANALYST}
    listed = run(context.settings, "keys", "list").stdout
    assert principal.id in listed
    assert "analyst,owner  ci" in listed
    assert "active" in listed
    assert result.stdout.strip().rpartition("_")[2] not in listed


@on_one_engine
def test_a_key_written_to_a_file_is_its_owners_alone_and_not_shown(context: Context, tmp_path: Path) -> None:
    path = tmp_path / "key"
    arguments = ("keys", "create", "--name", "ci", "--scope", "admin", "--if-none", "--output", str(path))
    result = run(context.settings, *arguments)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text()
    assert service.authenticate(context, token.strip()) is not None
    assert token.strip() not in result.output
    again = run(context.settings, *arguments)
    assert again.exit_code == 0
    assert "no key was created" in again.stdout
    assert path.read_text() == token
    assert len(service.list_keys(context)) == 1


@on_one_engine
def test_a_file_that_exists_is_left_alone_and_costs_no_key(context: Context, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("mine")
    result = run(context.settings, "keys", "create", "--name", "ci", "--scope", "admin", "--output", str(path))
    assert result.exit_code == 1
    assert "new file" in result.stderr
    assert path.read_text() == "mine"
    assert not service.keys_exist(context)


@on_one_engine
def test_a_key_is_revoked(context: Context) -> None:
    created = service.create_key(context, "ci", [Scope.OWNER])
    assert created is not None
    assert run(context.settings, "keys", "revoke", created.id).exit_code == 0
    assert service.authenticate(context, created.token) is None
    assert "revoked" in run(context.settings, "keys", "list").stdout
    admins = [service.create_key(context, name, [Scope.ADMIN]) for name in ("first", "second")]
    hints = ["is left" in run(context.settings, "keys", "revoke", each.id).stdout for each in admins if each]
    assert hints == [False, True], "the last key with the scope admin does not go unnoticed"
    again = run(context.settings, "keys", "revoke", created.id)
    assert again.exit_code == 1
    assert "no active key" in again.stderr


@on_one_engine
@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_a_name_is_printable_and_short(context: Context, name: str) -> None:
    result = run(context.settings, "keys", "create", "--name", name, "--scope", "admin")
    assert result.exit_code == 1
    assert not service.keys_exist(context)


@on_one_engine
def test_migrate_makes_the_schema_that_the_other_commands_ask_for(databases: DatabaseFactory, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=databases.empty())
    for command in (("serve",), ("keys", "list"), ("worker",)):
        refused = run(settings, *command)
        assert refused.exit_code == 1
        assert "epsilond migrate" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert run(settings, "migrate").exit_code == 0
    assert run(settings, "keys", "list").exit_code == 0
    assert run(settings, "migrate").exit_code == 0


def test_another_folder_is_told_from_an_old_schema(tmp_path: Path) -> None:
    refused = run(Settings(data_dir=tmp_path), "ledger", "verify")
    assert refused.exit_code == 1
    assert str(tmp_path) in refused.stderr
    assert "EPSILOND_DATA_DIR" in refused.stderr


def test_a_database_that_is_away_is_one_line_without_its_password(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url="postgresql://user:password1@127.0.0.1:1/name")
    result = run(settings, "keys", "list")
    assert result.exit_code == 1
    assert re.fullmatch(r"epsilond: The database .* Nothing accepts connections .* Is it running\?\n", result.stderr)
    assert "password1" not in result.output


def test_a_host_that_is_not_known_is_told_without_its_name(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url="postgresql://user:password1@password1.invalid/name")
    result = run(settings, "keys", "list")
    assert result.exit_code == 1
    assert "The name of its host is not known." in result.stderr
    assert "password1" not in result.output


@on_postgresql
@pytest.mark.parametrize(
    ("part", "why"), [("database", "It has no database of this name"), ("username", "It has no such user.")]
)
def test_a_database_that_lets_nobody_in_is_told_by_its_reason_alone(
    databases: DatabaseFactory, tmp_path: Path, part: str, why: str
) -> None:
    url = make_url(databases.empty()).set(**{part: "password1"}).render_as_string(hide_password=False)
    result = run(Settings(data_dir=tmp_path, database_url=url), "keys", "list")
    assert result.exit_code == 1
    assert why in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "password1" not in result.output


@pytest.mark.parametrize("url", ["password1", "mysql://user:password1@host/name", "postgresql+password1://host/name"])
def test_a_database_that_is_no_database_is_one_line_without_its_password(url: str) -> None:
    result = CliRunner().invoke(cli, ["keys", "list"], env={"EPSILOND_DATABASE_URL": url})
    assert result.exit_code == 1
    assert re.fullmatch(r"epsilond: EPSILOND_DATABASE_URL: .*\.\n", result.stderr)
    assert "password1" not in result.output


@on_one_engine
@pytest.mark.parametrize("command", [("serve",), ("worker",), ("keys", "create", "--name", "ci", "--scope", "admin")])
def test_a_data_folder_that_cannot_be_written_to_is_one_line(
    context: Context, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    settings = context.settings.model_copy(update={"data_dir": tmp_path / "file" / "data"})
    result = run(settings, *command)
    assert result.exit_code == 1
    assert re.fullmatch(r"epsilond: The data folder cannot be written to: .*EPSILOND_DATA_DIR.*\n", result.stderr)
    assert not service.keys_exist(context)


@on_one_engine
def test_a_damaged_secret_is_not_used(context: Context) -> None:
    assert context.settings.secret
    path = context.settings.data_dir / "secret.key"
    for damaged in (b"", b"\xff\0"):
        path.write_bytes(damaged)
        result = run(context.settings, "keys", "create", "--name", "ci", "--scope", "admin")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert "is damaged: secret.key. Restore it from the backup" in result.stderr
    assert not service.keys_exist(context)


@on_one_engine
def test_files_under_another_data_key_are_found_at_the_start(context: Context) -> None:
    folder = context.settings.data_dir / "datasets"
    FileEncryption(DataKeys(bytes(range(32)))).write(folder / "ds_a.npz", lambda file: None)
    for key, why in ((None, "no data key is set"), ("ab" * 32, "not among the data keys")):
        settings = Settings(
            data_dir=context.settings.data_dir, database_url=context.settings.database_url, data_key=key
        )
        for command in (("serve",), ("worker",)):
            result = run(settings, *command)
            assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
            assert "1 file(s) are encrypted" in result.stderr
            assert why in result.stderr
            assert "abab" not in result.stderr


def test_a_sqlite_file_that_cannot_be_made_or_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("this is no database, and longer than the header of one would be" * 9)
    (tmp_path / "folder").mkdir()
    for path, words in (
        ("file/a.db", "cannot be made"),
        ("folder", "Check that this user"),
        ("file", "Check that this user"),
    ):
        result = run(Settings(data_dir=tmp_path / "data", database_url=f"sqlite:///{tmp_path / path}"), "migrate")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result
        assert words in result.stderr


@on_one_engine
def test_a_database_of_a_later_version_is_one_line(context: Context) -> None:
    with context.database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    result = run(context.settings, "migrate")
    assert result.exit_code == 1
    assert re.fullmatch(r"epsilond: The database is at a revision that this version does not know\..*\n", result.stderr)


@on_one_engine
def test_a_host_that_is_no_name_is_one_line(context: Context) -> None:
    result = run(context.settings.model_copy(update={"host": "x" * 70}), "serve")
    assert result.exit_code == 1
    assert re.fullmatch(r"epsilond: cannot listen on x+, port 8000: .*EPSILOND_HOST.*\n", result.stderr)


def test_a_wrong_setting_is_named() -> None:
    result = CliRunner().invoke(cli, ["keys", "list"], env={"EPSILOND_PORT": "seventy"})
    assert result.exit_code == 1
    assert "EPSILOND_PORT" in result.stderr
    assert "seventy" not in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_heard_even_where_a_shell_has_it_ignored(number: signal.Signals) -> None:
    """As it has for what runs in its background."""
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        heard = True
        with until_stopped():
            signal.raise_signal(number)
            heard = False
        assert heard
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_command_in_a_wrong_folder_makes_no_database(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "var")
    for command in (["keys", "list"], ["ledger", "verify"], ["ledger", "checkpoint"], ["worker"], ["serve"]):
        result = run(settings, *command)
        assert result.exit_code == 1
        assert f"There is no database at {tmp_path / 'var'}" in result.output
        assert "epsilond migrate" in result.output
    assert list(tmp_path.iterdir()) == []
    assert run(settings, "migrate").exit_code == 0
    assert run(settings, "keys", "list").exit_code == 0


@on_one_engine
def test_no_file_stays_where_no_token_is_written(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    arguments = ("keys", "create", "--name", "ci", "--scope", "admin", "--output", str(path))
    with monkeypatch.context() as patched:
        patched.setattr("app.auth.service.create_key", refuse_with(OperationalError("insert", {}, Exception())))
        assert run(context.settings, *arguments).exit_code == 1
    assert not path.exists()
    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", refuse_with(OSError(errno.ENOSPC, "No space left on device")))
        full = run(context.settings, *arguments)
    [key] = service.list_keys(context)
    assert f"`epsilond keys rotate {key.id}` gives it another" in full.output
    assert not path.exists()
    assert run(context.settings, "keys", "rotate", key.id, "--output", str(path)).exit_code == 0
    assert service.authenticate(context, path.read_text().strip()) is not None


def refuse_with(error: Exception) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise error

    return refuse


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o644, True), (0o660, True)])
def test_a_database_that_others_may_open_is_told(
    mode: int, warns: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a b.sqlite3"
    file.touch()
    file.chmod(mode)
    warn_of_open_database(Settings(database_url=f"sqlite:///{file}"))
    told = capsys.readouterr().err
    assert ("chmod 600" in told) == warns
    assert file.stat().st_mode & 0o777 == mode, "it is the operator's to change"
