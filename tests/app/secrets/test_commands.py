"""`epsilond secrets`, and the commands that refuse a foreign secret."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from app.auth import database_secrets as service
from app.auth import service as keys
from app.auth.principal import Scope
from app.context import Context
from app.kit.signing_keys import new_signing_key
from app.secrets.material import Purpose
from app.settings import Settings
from tests.app.cli.test_service import run


@pytest.mark.parametrize(
    "command",
    [
        ("serve",),
        ("worker",),
        ("keys", "create", "--name", "ci", "--scope", "admin"),
        ("keys", "rotate", "key_a"),
        ("ledger", "checkpoint"),
        ("ledger", "public-key"),
        ("secrets", "rotate", "keys"),
    ],
)
def test_a_command_with_another_secret_is_refused_in_one_line(
    context: Context, tmp_path: Path, command: tuple[str, ...]
) -> None:
    service.admit(context)
    settings = Settings(data_dir=tmp_path / "other", database_url=context.database.url, secret_key="k" * 32)
    result = run(settings, *command)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "The content secret is not the one of this database" in result.stderr
    assert "EPSILOND_SECRET_KEY has" in result.stderr
    assert "kkkk" not in result.stderr
    assert not keys.keys_exist(context)
    assert len(service.listed(context)) == 3


def test_versions_are_listed_rotated_and_retired(context: Context) -> None:
    settings = context.settings
    service.admit(context)
    created = keys.create_key(context, "key", [Scope.ADMIN])
    assert created is not None
    assert "keys.2.key" in run(settings, "secrets", "rotate", "keys").stdout
    signatures = json.loads(run(settings, "secrets", "rotate", "signatures", "--json").stdout)
    assert signatures == {"secret": "signatures", "version": 2, "file": str(settings.data_dir / "checkpoint.2.key")}
    for name in ("keys.2.key", "checkpoint.2.key"):
        assert (settings.data_dir / name).stat().st_mode & 0o777 == 0o600

    listed = run(settings, "secrets", "list", "--json")
    items = json.loads(listed.stdout)["items"]
    assert [(item["secret"], item["version"], item["retired_at"]) for item in items] == [
        ("content", 1, None),
        ("keys", 1, None),
        ("keys", 2, None),
        ("signatures", 1, None),
        ("signatures", 2, None),
    ]
    for name in ("secret.key", "keys.2.key", "checkpoint.key", "checkpoint.2.key"):
        assert (settings.data_dir / name).read_text().strip() not in listed.stdout
    assert items[0]["check_value"] in run(settings, "secrets", "list").stdout

    refused = run(settings, "secrets", "retire", "keys", "1")
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert f"still under version 1, such as {created.id}" in refused.stderr
    retired = run(settings, "secrets", "retire", "keys", "1", "--revoke-keys")
    assert retired.stdout == f"Version 1 of the secret of keys is retired. Revoked with it: {created.id}.\n"
    assert keys.authenticate(context, created.token) is None


def test_the_secret_of_contents_is_refused_with_the_reason(context: Context) -> None:
    service.admit(context)
    refused = run(context.settings, "secrets", "rotate", "content")
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert (
        "never rotated: with another secret, the service would not recognise the rows that it knows" in refused.stderr
    )


def extracted(archive: Path, folder: Path) -> Path:
    """The folder, with what `tar` finds in an archive."""
    folder.mkdir()
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)
    return folder


def test_saved_secrets_are_those_that_another_folder_needs(context: Context, tmp_path: Path) -> None:
    settings, archive = context.settings, tmp_path / "secrets.tar"
    service.admit(context)
    service.rotate(context, Purpose.KEYS)
    service.rotate(context, Purpose.SIGNATURES)
    said = run(settings, "secrets", "save", str(archive)).stdout
    names = ["checkpoint.2.key", "checkpoint.key", "keys.2.key", "secret.key"]
    assert said.startswith(f"{', '.join(names)}: in {archive}")
    assert archive.stat().st_mode & 0o777 == 0o600

    there = extracted(archive, tmp_path / "there")
    assert sorted(path.name for path in there.iterdir()) == names
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in there.iterdir())
    other = Settings(data_dir=there, database_url=context.database.url)
    assert run(other, "ledger", "checkpoint").exit_code == 0
    refused = run(settings, "secrets", "save", str(archive))
    assert refused.stderr == f"epsilond: {archive} exists already and is not overwritten. Name a new file.\n"


def test_secrets_that_settings_name_are_saved_with_the_others(context: Context, tmp_path: Path) -> None:
    pem = tmp_path / "ledger.pem"
    pem.write_bytes(new_signing_key())
    given = {"data_dir": tmp_path / "here", "database_url": context.database.url}
    settings = Settings(**given, secret_key="s" * 40, checkpoint_key_file=pem, data_key="ab" * 32)
    result = run(settings, "secrets", "save", str(tmp_path / "secrets.tar"))
    assert "warning: The data key (EPSILOND_DATA_KEY or EPSILOND_DATA_KEY_FILE) is not in this file" in result.stderr
    there = extracted(tmp_path / "secrets.tar", tmp_path / "there")
    assert (there / "secret.key").read_text() == "s" * 40
    assert run(Settings(data_dir=there, database_url=context.database.url), "ledger", "checkpoint").exit_code == 0


def test_no_archive_is_made_that_lacks_a_secret(context: Context, tmp_path: Path) -> None:
    """One that is missing or another one is refused, and none is drawn in its place."""
    service.admit(context)
    service.rotate(context, Purpose.KEYS)
    archive, lost = tmp_path / "secrets.tar", context.settings.data_dir / "keys.2.key"
    lost.unlink()
    refused = run(context.settings, "secrets", "save", str(archive))
    assert (refused.exit_code, "secret of keys is missing" in refused.stderr) == (1, True)
    nowhere = Settings(data_dir=tmp_path / "nowhere", database_url=f"sqlite:///{tmp_path / 'nowhere.sqlite3'}")
    assert "There is no database at" in run(nowhere, "secrets", "save", str(archive)).stderr
    assert not archive.exists()
    assert not lost.exists()
