"""`epsilond secrets`, and the commands that refuse a foreign secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.auth import database_secrets as service
from app.auth import service as keys
from app.auth.principal import Scope
from app.context import Context
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
    assert "never rotated: under another one, the same rows would be new to the service" in refused.stderr
