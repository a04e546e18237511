"""`epsilond data-key`: keys are listed, rotated and dropped, and files get the newest one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from app.auth import database_secrets
from app.context import Context
from app.settings import Settings
from tests.app.cli.test_service import run
from tests.app.datasets.declarations import private_metadata
from tests.app.datasets.uploads import create_budget, upload
from tests.databases import on_one_engine

KEY, OTHER = bytes(range(32)), bytes(range(32, 64))


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    path = tmp_path / "data.key"
    path.write_text(KEY.hex())
    return settings.model_copy(update={"data_key_file": path})


def listed(settings: Settings) -> list[tuple[str, int]]:
    items = json.loads(run(settings, "data-key", "list", "--json").stdout)["items"]
    return [(item["use"], item["files"]) for item in items]


def test_a_key_is_rotated_and_dropped_once_nothing_is_under_it(
    context: Context, client: TestClient, settings: Settings
) -> None:
    database_secrets.admit(context)
    assert upload(client, private_metadata(create_budget(context))).status_code == 201
    assert listed(settings) == [("encrypts", 1)]
    [old] = [item["key"] for item in json.loads(run(settings, "data-key", "list", "--json").stdout)["items"]]

    rotated = run(settings, "data-key", "rotate")
    assert (rotated.exit_code, "encrypts from now on" in rotated.stdout) == (0, True)
    assert listed(settings) == [("encrypts", 0), ("decrypts", 1)]
    refused = run(settings, "data-key", "drop", old)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "1 file(s) are still encrypted with it" in refused.stderr

    assert run(settings, "data-key", "re-encrypt").stdout == "1 file(s) were encrypted with the newest data key.\n"
    assert run(settings, "data-key", "re-encrypt").stdout == "0 file(s) were encrypted with the newest data key.\n"
    assert run(settings, "data-key", "drop", old).exit_code == 0
    assert listed(settings) == [("encrypts", 1)]
    table = run(settings, "data-key", "list")
    assert table.exit_code == 0
    for text in (rotated.output, table.output):
        assert not any(key in text for key in settings.data_key_file.read_text().split())  # type: ignore[union-attr]


@on_one_engine
def test_files_in_the_clear_and_of_a_missing_key_are_shown(context: Context, settings: Settings) -> None:
    database_secrets.admit(context)
    folder = settings.data_dir / "datasets"
    settings.encryption.write(folder / "ds_a.npz", lambda file: file.write(b"rows") and None)
    (folder / "ds_b.npz").write_bytes(b"rows")
    other = settings.model_copy(update={"data_key_file": None, "data_key": SecretStr(OTHER.hex())})
    assert listed(other) == [("encrypts", 0), ("missing", 1), ("not encrypted", 1)]
    assert run(other, "data-key", "list").exit_code == 1
    result = run(other, "data-key", "re-encrypt", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"done": 0, "left": 1, "unreadable": [str(folder / "ds_a.npz")]}
    for command in ("rotate", ("drop", "0" * 12)):
        refused = run(other, "data-key", *((command,) if isinstance(command, str) else command))
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "EPSILOND_DATA_KEY holds the keys themselves" in refused.stderr


@on_one_engine
def test_a_rotation_by_the_setting_alone_takes_a_start_for_each_step(context: Context, settings: Settings) -> None:
    """First the new key decrypts everywhere, then it encrypts, then the old one is left out."""
    file = settings.data_dir / "datasets" / "ds_a.npz"
    for keys in ((KEY,), (KEY, OTHER), (OTHER, KEY)):
        text = SecretStr(",".join(key.hex() for key in keys))
        one = settings.model_copy(update={"data_key_file": None, "data_key": text})
        one.encryption.write(file, lambda written: written.write(b"rows") and None)
        assert [use for use, _ in listed(one)] == ["encrypts", "decrypts"][: len(keys)]
    with Settings(data_key=OTHER.hex()).encryption.open(file) as stored:
        assert stored.read() == b"rows"


@on_one_engine
@pytest.mark.parametrize("command", ["rotate", "re-encrypt"])
def test_without_a_key_there_is_nothing_to_rotate(context: Context, settings: Settings, command: str) -> None:
    database_secrets.admit(context)
    none = settings.model_copy(update={"data_key_file": None})
    refused = run(none, "data-key", command)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "No data key is set" in refused.stderr
