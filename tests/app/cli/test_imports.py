"""`epsilond import`: the bytes that the endpoint answers, from a file or from standard input."""

from __future__ import annotations

import json
from pathlib import Path

from starlette.testclient import TestClient

from tests.app.cli.calls import done, problem, refused

CALL = "engine.make_private(noise_multiplier=4.0, poisson_sampling=False)"
SIZES = ["--dataset-size", "600", "--batch-size", "60", "--steps", "20", "--delta", "1e-5"]


def test_it_is_what_the_endpoint_answers(reader: TestClient, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(CALL)
    source = {"kind": "call", "code": CALL, "dataset_size": 600, "batch_size": 60, "steps": 20}
    answer = reader.post("/v1/import", json={"source": source, "delta": 1e-5}).json()
    assert json.loads(done("import", file, *SIZES, "--json")) == answer
    assert json.loads(done("import", "-", *SIZES, "--json", given=CALL)) == answer


def test_it_says_what_the_library_would_claim_and_what_the_numbers_rest_on() -> None:
    said = done("import", "-", *SIZES, given=CALL)
    assert "Opacus (prv) says" in said
    assert "below the interval" in said
    assert "poisson_sampling=False keeps the given loader" in said
    assert "No amplification by shuffled batches is proved" in said


def test_what_is_missing_is_named_by_its_option(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(CALL)
    said = refused("import", file)
    for option in ("--dataset-size", "--batch-size", "--epochs", "--delta"):
        assert f"{option}: The call does not say" in said
    assert problem("import", file)["code"] == "missing"


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert "Cannot read" in refused("import", tmp_path / "none.py")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff\xfe")
    assert "it is not text in UTF-8" in refused("import", tmp_path / "image.png")
    assert "FILE: give a file with the call" in refused("import", *SIZES, status=2)
