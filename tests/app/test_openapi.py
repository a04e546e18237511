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
from app.openapi_values import told
from app.problem_catalogue import PROBLEMS
from calibrators.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]

#: Codes that no operation of the document answers with, and why.
OF_NO_OPERATION = {
    "method_not_allowed": "it is about a method that is no operation",
    "head_too_large": "it is said before there is a path",
    "not_expired": "the ledger says it to itself",
    "other_origin": "the dashboard's commands say it",
    "checkpoint_refused": "a run says it to its worker",
}
#: Kinds that no example shows, since they name something that a fresh server has not.
WITHOUT_EXAMPLE = {"budget"}


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


def test_every_error_is_a_problem_with_its_codes_and_their_meanings(document: dict[str, Any]) -> None:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    for path, method, operation in operations(document):
        errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        for status, answer in errors.items():
            assert answer["content"] == problem, (method, path)
            codes = told(answer["description"])
            assert codes, (method, path, status)
            assert codes == {code: PROBLEMS[code][1] for code in codes}, (method, path, status)
            assert {PROBLEMS[code][0] for code in codes} == {int(status)}, (method, path, status)
        assert "500" in errors
        if path.startswith("/v1"):
            assert {"401", "403", "503"} <= set(errors), (method, path)
        if "requestBody" in operation:
            assert {"413", "415", "422"} <= set(errors), (method, path)
        if "{" in path:
            assert "404" in errors, (method, path)
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])
    assert "HTTPValidationError" not in json.dumps(document)


def test_every_code_occurs_in_some_operation(document: dict[str, Any]) -> None:
    listed = {
        code
        for _, _, operation in operations(document)
        for status, answer in operation["responses"].items()
        for code in (told(answer["description"]) if status >= "400" else ())
    }
    assert set(PROBLEMS) - listed == set(OF_NO_OPERATION)


def test_every_value_of_every_enumeration_is_explained(document: dict[str, Any]) -> None:
    explained = list(enumerations(document, ""))
    assert len(explained) > 60
    for place, values, description in explained:
        meanings = told(description)
        for value in values:
            assert len(meanings.get(value, "").split()) >= 2, f"{place}: what does {value} mean?"


def test_a_page_of_values_without_their_meanings_is_seen() -> None:
    unexplained = {"properties": {"kind": {"enum": ["a"], "description": "Which one."}}}
    assert list(enumerations(unexplained, "")) == [("/properties/kind", ["a"], "Which one.")]
    union = {"oneOf": [], "discriminator": {"propertyName": "kind", "mapping": {"a": "#/A", "b": "#/B"}}}
    assert list(enumerations(union, "")) == [("", ["a", "b"], "")]


def test_every_parameter_is_described(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            assert len(parameter.get("description", "")) > 0, (method, path, parameter["name"])


def test_every_body_and_every_answer_has_an_example(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            if kind == "application/json":
                assert content["examples"], (method, path)
                for name, example in content["examples"].items():
                    assert len(example["summary"].split()) >= 2, (method, path, name)
            else:
                assert content["schema"]["properties"]["metadata"]["example"], (method, path)
        for status, answer in operation["responses"].items():
            if status < "300" and "application/json" in answer.get("content", {}):
                assert "example" in answer["content"]["application/json"], (method, path, status)


def test_every_mechanism_sampling_and_algorithm_has_an_example(document: dict[str, Any]) -> None:
    shown = {
        kind
        for _, _, operation in operations(document)
        for content in operation.get("requestBody", {}).get("content", {}).values()
        for example in content.get("examples", {}).values()
        for kind in kinds(example["value"])
    }
    schemas = document["components"]["schemas"]
    unions = [
        *(schemas["EventSchema"]["properties"][field] for field in ("mechanism", "sampling")),
        *(schemas["ConvertRequest"]["properties"][field] for field in ("from", "to")),
        schemas["CalibrateRequest"]["properties"]["target"],
        schemas["BudgetRequest"]["properties"]["filter"],
        schemas["TuningCostRequest"]["properties"]["distribution"],
    ]
    for union in unions:
        assert set(union["discriminator"]["mapping"]) - shown <= WITHOUT_EXAMPLE
    for path in ("/v1/calibrate", "/v1/runs"):
        examples = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"]
        assert {example["value"]["algorithm"] for example in examples.values()} == set(ALGORITHMS)


def kinds(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        # A scheme without parameters may be written as its kind alone.
        yield from (part[name] for name in ("kind", "sampling") if isinstance(part.get(name), str))
        for value in part.values():
            yield from kinds(value)
    elif isinstance(part, list):
        for value in part:
            yield from kinds(value)


def enumerations(part: Any, place: str, above: str = "") -> Iterator[tuple[str, list[str], str]]:
    """Each enumeration and each union of kinds: its place, its values, and the description that is nearest."""
    if isinstance(part, dict):
        own = part.get("description")
        description = own if isinstance(own, str) else above
        if isinstance(part.get("enum"), list):
            yield place, part["enum"], description
        discriminator = part.get("discriminator")
        if isinstance(discriminator, dict) and "propertyName" in discriminator:
            yield place, list(discriminator["mapping"]), description
        for name, value in part.items():
            if name not in ("example", "examples", "default", "links"):
                # An alternative, an item or a parameter's schema is described where it is used.
                inherits = name in ("anyOf", "items", "schema")
                yield from enumerations(value, f"{place}/{name}", description if inherits else "")
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from enumerations(value, f"{place}/{index}", above)


def test_keys_are_asked_for_but_by_health(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for path, _, operation in operations(document):
        assert operation.get("security") == (None if path.startswith("/health") else [{"key": []}])


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            # An answer that is shown may hold a schema of its own.
            for item in (item for name, item in value.items() if name != "example"):
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    for reference in set(references(document)):
        target: Any = document
        for part in reference.removeprefix("#/").split("/"):
            assert part in target, reference
            target = target[part]
