"""The OpenAPI document: committed, complete about errors, and the same for the same code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app import openapi

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def document(reader: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = reader.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def test_the_committed_document_is_the_generated_one(document: dict[str, Any]) -> None:
    assert (ROOT / "openapi.json").read_text() == openapi.render(document), "run: make openapi"


def test_the_command_prints_the_same_bytes_whatever_the_settings(document: dict[str, Any], tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "EPSILOND_DATA_DIR": str(tmp_path / "data"),
        "EPSILOND_MAX_UPLOAD_BYTES": "2048",
    }
    command = [sys.executable, "-m", "app", "openapi"]
    printed = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    assert printed.stdout.decode() == openapi.render(document)
    assert not (tmp_path / "data").exists()


def test_operation_ids_are_unique_plain_words(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    assert all(name.isidentifier() and name == name.lower() for name in ids)


def test_every_operation_says_what_it_is_under_a_described_tag(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for path, method, operation in operations(document):
        assert operation["tags"], (method, path)
        assert set(operation["tags"]) <= tags, (method, path)
        assert operation["summary"], (method, path)
        assert operation["description"], (method, path)


def test_every_error_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    for path, method, operation in operations(document):
        errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        for answer in errors.values():
            assert answer["content"] == problem, (method, path)
            assert answer["description"]
        assert "500" in errors
        if path.startswith("/v1"):
            assert {"401", "403", "503"} <= set(errors), (method, path)
        if "requestBody" in operation:
            assert {"413", "415", "422"} <= set(errors), (method, path)
        if "{" in path:
            assert "404" in errors, (method, path)
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])
    assert "HTTPValidationError" not in json.dumps(document)


def test_keys_are_asked_for_but_by_health(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for path, _, operation in operations(document):
        assert operation.get("security") == (None if path.startswith("/health") else [{"key": []}])


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    for reference in set(references(document)):
        target: Any = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
