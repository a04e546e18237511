"""A data key is set: nothing of an upload lies on the disk in the clear, and a wrong key costs nobody anything."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.datasets import service as datasets
from app.datasets.files import DatasetFiles, IncomingFile
from app.kit.data_keys import DataKeys
from app.kit.encryption import FileEncryption, OtherKey
from tests.app.datasets.declarations import CSV, private_metadata
from tests.app.datasets.uploads import create_budget, upload
from tests.app.runs.conftest import Service
from tests.databases import on_one_engine

KEY = bytes(range(32))


@pytest.fixture
def encrypted(context: Context, monkeypatch: pytest.MonkeyPatch) -> Context:
    set_key(context, monkeypatch, KEY)
    return context


def set_key(context: Context, monkeypatch: pytest.MonkeyPatch, key: bytes | None) -> None:
    monkeypatch.setitem(vars(context.settings), "encryption", FileEncryption(DataKeys(*filter(None, [key]))))


@on_one_engine
def test_stored_rows_are_encrypted_and_loaded(encrypted: Context, client: TestClient) -> None:
    response = upload(client, private_metadata(create_budget(encrypted)))
    assert response.status_code == 201, response.text
    (path,) = (encrypted.settings.data_dir / "datasets").iterdir()
    stored = path.read_bytes()
    assert stored.startswith(b"EPSENC1\n")
    assert np.array([40.0]).tobytes() not in stored
    assert b"features" not in stored
    with encrypted.database.read() as session:
        assert datasets.load(encrypted, session, response.json()["id"]).features.tolist() == [[40.0, 0.0], [50.5, 1.0]]


def test_uploads_on_their_way_in_are_encrypted_if_stored_files_are(tmp_path: Path) -> None:
    for key in (None, KEY):
        with DatasetFiles(tmp_path, FileEncryption(DataKeys(*filter(None, [key])))).open_incoming() as file:
            assert (file.key is not None) is (key is not None)
            assert file.key != KEY


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_an_upload_on_its_way_in_is_encrypted_under_a_key_of_its_own(tmp_path: Path, is_encrypted: bool) -> None:
    content = CSV * 10_000
    with IncomingFile(tmp_path, encrypted=is_encrypted) as file:
        file.write(content)
        file.finish()
        on_disk = os.pread(file.fileno(), 10**7, 0)
        assert (CSV in on_disk) is not is_encrypted
        assert file.open().read() == content
        assert file.open().readline() == b"age,region,outcome\n"
    if is_encrypted:
        assert file.key is not None
        assert file.key not in on_disk
        assert b64encode(file.key) not in on_disk


@on_one_engine
def test_a_run_under_another_key_fails_without_a_charge_and_succeeds_under_the_right_one(
    encrypted: Context, client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(client, encrypted)
    budget, run = service.private()
    set_key(encrypted, monkeypatch, bytes(32))
    with encrypted.database.read() as session, pytest.raises(OtherKey):
        datasets.load(encrypted, session, run["dataset_id"])
    service.work()
    failed = service.get(f"/v1/runs/{run['id']}")
    assert (failed["state"], failed["problem"]["code"]) == ("failed", "run_not_started")
    assert service.reservation_state(run) == "voided"
    assert service.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"]["epsilon"] == 0.0
    assert KEY.hex() not in capsys.readouterr().out
    set_key(encrypted, monkeypatch, KEY)
    service.trained(dataset_id=run["dataset_id"], budget_id=budget["id"])
