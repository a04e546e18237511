"""The OpenAPI document: committed, complete about errors, and the same for the same code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.db.database import Database
from app.main import create_app
from app.openapi.document import build_document
from app.openapi.errors import codes_in
from app.openapi.examples import answers_in
from app.openapi.layout import render
from app.openapi.sharing import resolved
from app.problem_catalogue import PROBLEMS
from app.settings import Settings
from app.web.docs import DOCUMENT
from calibrators.registry import ALGORITHMS

ROOT = DOCUMENT.parent

#: Codes that no operation of the document answers with, and why.
OF_NO_OPERATION = {
    "method_not_allowed": "it is about a method that is no operation",
    "head_too_large": "it is said before there is a path",
    "not_expired": "the ledger says it to itself",
    "price_outdated": "the ledger says it to who asked for the price, and the new events are priced",
    "other_origin": "the dashboard's commands say it",
    "checkpoint_refused": "a run says it to its worker",
}
#: About half of what it would be if equal parts were not shared. Each mechanism and each sampling adds about 1,000
#: bytes for its schema and its example, an operation with schemas of its own about 7,500.
MOST_BYTES = 600_000
#: Characters of a schema that is worth a name.
LONG = 500
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


def test_the_committed_document_is_the_one_that_the_routes_make(document: dict[str, Any]) -> None:
    # It depends on no setting; an empty database in memory is never opened.
    app = create_app(Context(Settings.model_construct(), Database("sqlite://")))
    assert DOCUMENT.read_text() == render(build_document(app, answers_in(document))), "run: make openapi"


def test_the_served_document_is_the_committed_one(reader: TestClient) -> None:
    answer = reader.get("/openapi.json")
    assert answer.content == DOCUMENT.read_bytes()
    assert answer.headers["content-type"] == "application/json"


def test_the_command_prints_the_same_bytes_and_makes_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "EPSILOND_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "app", "openapi"]
    printed = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    assert printed.stdout == DOCUMENT.read_bytes()
    assert not (tmp_path / "data").exists()


def test_bounds_are_told_in_the_words_of_json_schema(document: dict[str, Any]) -> None:
    assert not re.findall(r'"(?:ge|gt|le|lt|multiple_of)":', json.dumps(document["components"]["schemas"]))


def test_the_document_is_small_and_a_review_can_compare_its_lines() -> None:
    written = DOCUMENT.read_bytes()
    assert len(written) < MOST_BYTES, "what is repeated belongs in app/openapi/sharing.py"
    assert sum(len(line) > 1000 for line in written.splitlines()) < 10


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


def test_every_error_is_a_problem_and_lists_its_codes(document: dict[str, Any]) -> None:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    for path, method, operation in operations(document):
        errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        assert all(set(answer) == {"$ref"} for answer in errors.values()), (method, path)
        for status, answer in ((status, resolved(document, answer)) for status, answer in errors.items()):
            assert answer["content"] == problem, (method, path)
            codes = codes_in(answer["description"])
            assert codes, (method, path, status)
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


def test_the_schema_of_a_problem_says_what_every_code_means(document: dict[str, Any]) -> None:
    described = document["components"]["schemas"]["ProblemBody"]["properties"]["code"]["description"]
    assert told(described) == {code: meaning for code, (_, meaning) in PROBLEMS.items()}


def test_equal_errors_stand_once_and_each_is_referred_to(document: dict[str, Any]) -> None:
    shared = document["components"]["responses"]
    assert len({answer["description"] for answer in shared.values()}) == len(shared) > 40
    referred = [
        answer["$ref"].rpartition("/")[2]
        for _, _, operation in operations(document)
        for answer in operation["responses"].values()
        if "$ref" in answer
    ]
    assert set(referred) == set(shared)
    assert len(referred) > 5 * len(shared)


def test_equal_parameters_stand_once_and_each_is_referred_to(document: dict[str, Any]) -> None:
    written = [each for _, _, operation in operations(document) for each in operation.get("parameters", ())]
    inline = [json.dumps(each) for each in written if "$ref" not in each]
    assert len(set(inline)) == len(inline)
    referred = [each["$ref"].rpartition("/")[2] for each in written if "$ref" in each]
    assert set(referred) == set(document["components"]["parameters"])
    assert all(referred.count(name) > 1 for name in referred)


def test_what_several_schemas_have_stands_once(document: dict[str, Any]) -> None:
    found: dict[str, int] = {}
    for schema in schemas(document):
        if "$ref" not in schema and len(text := json.dumps(schema)) > LONG:
            found[text] = found.get(text, 0) + 1
    assert [text for text, count in found.items() if count > 1] == []


def test_no_title_repeats_a_name(document: dict[str, Any]) -> None:
    parts = (document["paths"], document["components"])
    assert [schema for part in parts for schema in schemas(part) if isinstance(schema.get("title"), str)] == []


def test_every_code_occurs_in_some_operation(document: dict[str, Any]) -> None:
    listed = {
        code
        for _, _, operation in operations(document)
        for status, answer in operation["responses"].items()
        for code in (codes_in(resolved(document, answer)["description"]) if status >= "400" else ())
    }
    assert set(PROBLEMS) - listed == set(OF_NO_OPERATION)


def test_every_value_of_every_enumeration_is_explained(document: dict[str, Any]) -> None:
    explained = list(enumerations(document, ""))
    assert len(explained) > 40
    for place, values, description in explained:
        meanings = told(description)
        for value in values:
            assert len(meanings.get(value, "").split()) >= 2, f"{place}: what does {value} mean?"


def test_an_enumeration_without_the_meanings_of_its_values_is_seen() -> None:
    unexplained = {"properties": {"kind": {"enum": ["a"], "description": "Which one."}}}
    assert list(enumerations(unexplained, "")) == [("/properties/kind", ["a"], "Which one.")]


def test_every_kind_of_every_union_is_described(document: dict[str, Any]) -> None:
    unions = [schema["discriminator"] for schema in schemas(document) if "discriminator" in schema]
    assert len(unions) > 10
    for union in unions:
        for value, reference in union["mapping"].items():
            kind = resolved(document, {"$ref": reference})
            # A schema of several kinds says of its field what each of them is.
            of_field = told(kind["properties"][union["propertyName"]].get("description", ""))
            explained = of_field.get(value) if of_field else kind.get("description")
            assert len((explained or "").split()) >= 2, f"what is {value} of {reference}?"


def test_every_parameter_is_described(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        for parameter in (resolved(document, each) for each in operation.get("parameters", ())):
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
    components = document["components"]["schemas"]
    unions = [
        *(components["EventSchema"]["properties"][field] for field in ("mechanism", "sampling")),
        *(components["ConvertRequest"]["properties"][field] for field in ("from", "to")),
        components["CalibrateRequest"]["properties"]["target"],
        components["BudgetRequest"]["properties"]["filter"],
        components["TuningCostRequest"]["properties"]["distribution"],
    ]
    for union in (resolved(document, union) for union in unions):
        assert set(union["discriminator"]["mapping"]) - shown <= WITHOUT_EXAMPLE
    for path in ("/v1/calibrate", "/v1/runs"):
        examples = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"]
        assert {example["value"].get("algorithm") for example in examples.values()} - {None} == set(ALGORITHMS)


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
    """Each enumeration: its place, its values, and the description that is nearest."""
    if isinstance(part, dict):
        own = part.get("description")
        description = own if isinstance(own, str) else above
        if isinstance(part.get("enum"), list):
            yield place, part["enum"], description
        for name, value in part.items():
            if name not in ("example", "examples", "default", "links"):
                # An alternative, an item or a parameter's schema is described where it is used.
                inherits = name in ("anyOf", "items", "schema")
                yield from enumerations(value, f"{place}/{name}", description if inherits else "")
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from enumerations(value, f"{place}/{index}", above)


def told(text: str) -> dict[str, str]:
    """What a description says of each value, as in "`json`: A document. `npz`: An archive."."""
    parts = re.split(r"`(\w+)`: ", text)
    return {value: meaning.strip(" \n-") for value, meaning in zip(parts[1::2], parts[2::2], strict=True)}


def schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Every schema of the document, and of the same form some objects that hold schemas."""
    if isinstance(part, dict):
        yield part
        for name, value in part.items():
            if name not in ("example", "examples", "default", "links", "responses"):
                yield from schemas(value)
    elif isinstance(part, list):
        for value in part:
            yield from schemas(value)


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
