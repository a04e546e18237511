"""Files of rows: by path, as bytes, or open already; the format follows from the name."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from epsilond_client import Client, InvalidRequest

ROWS = b"x,y\n1,2\n3,4\n"
COLUMNS = [{"name": name, "type": "number", "lower": 0.0, "upper": 9.0} for name in ("x", "y")]
METADATA: dict[str, Any] = {"declared_size": 2, "columns": COLUMNS, "label": "y", "public": True}


def test_a_path_says_its_format(client: Client, tmp_path: Path) -> None:
    csv, npz = tmp_path / "rows.csv", tmp_path / "rows.npz"
    csv.write_bytes(ROWS)
    np.savez(npz, x=np.array([1.0, 3.0]), y=np.array([2.0, 4.0]))
    for path in (csv, str(npz)):
        assert client.datasets.upload(path, name="by path", **METADATA).owner_report.rows == 2


def test_an_open_file_is_read_from_its_beginning(client: Client) -> None:
    file = io.BytesIO(ROWS)
    file.read()
    assert client.datasets.upload(file, name="open", filename="rows.csv", **METADATA).declared_size == 2


def test_what_can_be_read_once_alone_is_refused(client: Client) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe, pytest.raises(ValueError, match="not a pipe"):
        client.datasets.upload(pipe, name="pipe", filename="rows.csv", **METADATA)


def test_a_format_is_never_guessed(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="filename must show the format"):
        client.datasets.upload(ROWS, name="bytes", **METADATA)
    with pytest.raises(ValueError, match=r"must end in one of \.csv, \.parquet, \.npz"):
        client.datasets.upload(ROWS, name="bytes", filename="rows.txt", **METADATA)
    with pytest.raises(FileNotFoundError):
        client.datasets.upload(tmp_path / "none.csv", name="none", **METADATA)


def test_a_fault_of_the_rows_is_told_with_its_place(client: Client) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.datasets.upload(b"x,y\n1,two\n", name="bad", filename="rows.csv", **METADATA)
    assert (caught.value.code, caught.value.errors[0].code) == ("invalid_csv", "not_a_number")
