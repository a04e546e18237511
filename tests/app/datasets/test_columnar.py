"""Parquet and NPZ files as they are uploaded: read by a process of their own, bound like CSV, refused like CSV."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from app.context import Context
from app.datasets import columnar, service
from app.datasets.columnar import read_columnar
from app.datasets.file_kinds import FileKind
from app.datasets.files import DatasetFiles
from app.datasets.table import Table
from app.kit.data_keys import DataKeys
from app.kit.encryption import FileEncryption
from app.problems import Problem
from tests.app.datasets.declarations import COLUMNS, metadata, private_metadata
from tests.app.datasets.typed_files import ROWS, npz, parquet
from tests.app.datasets.uploads import create_budget, upload
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

KEY = bytes(range(32))


def send(client: TestClient, declared: dict[str, Any], name: str, file: bytes) -> Response:
    return client.post(
        "/v1/datasets",
        files={"file": (name, file), "metadata": (None, json.dumps(declared))},
        headers={"Idempotency-Key": uuid4().hex},
    )


def read(folder: Path, kind: FileKind, data: bytes, key: bytes | None = None) -> Table:
    with DatasetFiles(folder, FileEncryption(DataKeys(*filter(None, [key])))).open_incoming() as file:
        file.write(data)
        file.finish()
        return read_columnar(kind, file, COLUMNS, "outcome", threading.Semaphore(1))


def codes(folder: Path, kind: FileKind, data: bytes) -> list[str]:
    with pytest.raises(Problem) as caught:
        read(folder, kind, data)
    problem = caught.value
    assert (problem.status, problem.code) == (422, f"invalid_{kind.value}")
    assert "8675309" not in repr(problem.body("id"))
    return [item.code for item in problem.errors]


@on_one_engine
def test_rows_are_bound_to_one_root_budget_in_whichever_format_they_come(client: TestClient, context: Context) -> None:
    mine, theirs = create_budget(context), create_budget(context)
    response = send(client, private_metadata(mine), "rows.parquet", parquet())
    assert response.status_code == 201, response.text
    assert response.json()["owner_report"] == {"rows": 2, "values_clipped": 0}
    assert_problem(upload(client, private_metadata(theirs)), 409, "budget_not_bound")
    assert_problem(send(client, private_metadata(theirs), "rows.npz", npz()), 409, "budget_not_bound")
    assert upload(client, private_metadata(mine)).status_code == 201
    with context.database.read() as session:
        loaded = service.load(context, session, response.json()["id"])
    assert loaded.features.tolist() == [[40.0, 0.0], [50.5, 1.0]]
    assert loaded.labels.tolist() == [0, 1]


@on_one_engine
def test_refusals_name_row_and_column_or_what_was_found(client: TestClient) -> None:
    faulty = npz({**ROWS, "outcome": ["no", "8675309"]})
    response = send(client, metadata(), "rows.npz", faulty)
    body = assert_problem(response, 422, "invalid_npz", "/file", "unknown_category")
    assert "In row 2, column 'outcome'" in body["errors"][0]["detail"]
    assert "8675309" not in response.text
    mistaken = send(client, metadata(), "rows.csv", parquet())
    assert_problem(mistaken, 422, "unsupported_file", "/file")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", FileKind)
def test_an_upload_that_is_encrypted_on_the_disk_is_read_all_the_same(tmp_path: Path, kind: FileKind) -> None:
    if kind is FileKind.CSV:
        return
    data = {"parquet": parquet(), "npz": npz()}[kind.value]
    assert read(tmp_path, kind, data, KEY).content == read(tmp_path, kind, data).content


def test_other_columns_and_damaged_files_are_refused(tmp_path: Path) -> None:
    without = {name: values for name, values in ROWS.items() if name != "age"}
    assert codes(tmp_path, FileKind.NPZ, npz({**without, "8675309": [1, 2]})) == ["column_missing", "column_undeclared"]
    assert codes(tmp_path, FileKind.NPZ, npz()[:-30]) == ["damaged"]
    assert codes(tmp_path, FileKind.PARQUET, parquet()[:-30]) == ["damaged"]


@pytest.mark.parametrize("dtype", ["<i2", ">i2", "<i8", "|u1", "<f2", ">f4", "<f4", "<f8"])
@pytest.mark.one_in(4)
def test_numbers_of_every_type_come_through_the_process_as_they_are(tmp_path: Path, dtype: str) -> None:
    ages = np.array([40.0, 52.0])
    expected = read(tmp_path, FileKind.NPZ, npz(age=ages))
    table = read(tmp_path, FileKind.NPZ, npz(age=ages.astype(dtype)))
    assert table.content == expected.content
    assert table.features.tolist() == expected.features.tolist()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_in_every_type(tmp_path: Path, dtype: str, value: float) -> None:
    assert codes(tmp_path, FileKind.NPZ, npz(age=np.array([40.0, value], dtype))) == ["not_finite"]


@pytest.mark.parametrize(
    ("content", "types"), [(bytes(8), ["|u1"]), (bytes(2), ["<f8"]), (bytes(16), ["|O"]), (bytes(2), ["|u1", "|u1"])]
)
def test_a_reader_that_answers_otherwise_than_agreed_is_not_believed(content: bytes, types: list[str]) -> None:
    with pytest.raises(columnar._Lost):
        columnar._columns(content, types, 2)


def test_a_reader_that_takes_too_long_or_too_much_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> Any:
        assert not [name for name in kwargs["env"] if name.startswith("EPSILOND")], "the reader is told no secret"
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(columnar.subprocess, "Popen", noted)
    monkeypatch.setenv("EPSILOND_SECRET_KEY", "k" * 32)
    with monkeypatch.context() as patched:
        patched.setattr(columnar, "SECONDS", 0.01)
        assert codes(tmp_path, FileKind.NPZ, npz()) == ["not_readable"]
    with monkeypatch.context() as patched:
        patched.setattr(columnar, "MEMORY_BYTES", 2**27)
        assert set(codes(tmp_path, FileKind.PARQUET, parquet())) <= {"not_readable", "too_much_memory"}
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


def test_who_finds_no_free_reader_is_told_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "SECONDS", 0.01)
    with DatasetFiles(tmp_path, FileEncryption(DataKeys())).open_incoming() as file, pytest.raises(Problem) as caught:
        read_columnar(FileKind.NPZ, file, COLUMNS, "outcome", threading.Semaphore(0))
    assert (caught.value.status, caught.value.code) == (503, "readers_busy")
    assert "Retry-After" in caught.value.headers
