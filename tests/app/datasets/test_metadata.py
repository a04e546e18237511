from __future__ import annotations

import json
from typing import Any

import pytest

from app.datasets.columns import MAX_CATEGORIES, MAX_COLUMNS
from app.datasets.registration import read_metadata
from app.problems import Problem
from tests.app.datasets.declarations import AGE, COLUMNS, OUTCOME, REGION, metadata, private_metadata


def refusal(document: dict[str, Any] | bytes) -> Problem:
    with pytest.raises(Problem) as caught:
        read_metadata(document if isinstance(document, bytes) else json.dumps(document).encode())
    assert caught.value.status == 422
    return caught.value


def test_a_declaration_is_private_by_default() -> None:
    declared = private_metadata("bud_a")
    del declared["public"]
    read = read_metadata(json.dumps(declared).encode())
    assert read.public is False
    assert read.privacy_unit == "record"
    assert list(read.columns) == COLUMNS


def test_an_integral_float_is_a_declared_size() -> None:
    assert read_metadata(json.dumps(metadata(declared_size=1e9)).encode()).declared_size == 10**9


def column(base: Any, **changes: Any) -> list[dict[str, Any]]:
    declared = [item.model_dump() for item in COLUMNS]
    declared[COLUMNS.index(base)] |= changes
    return declared


def without(base: Any, field: str) -> list[dict[str, Any]]:
    declared = [item.model_dump() for item in COLUMNS]
    del declared[COLUMNS.index(base)][field]
    return declared


MANY = [AGE.model_dump() | {"name": f"c{index}"} for index in range(MAX_COLUMNS)]
FAULTS = [
    ("unknown_field", metadata(rows=5), "/metadata/rows"),
    ("name_empty", metadata(name=""), "/metadata/name"),
    ("name_long", metadata(name="x" * 201), "/metadata/name"),
    ("name_control", metadata(name="a\nb"), "/metadata/name"),
    ("name_number", metadata(name=5), "/metadata/name"),
    ("public_text", metadata(public="false"), "/metadata/public"),
    ("public_number", metadata(public=1), "/metadata/public"),
    ("size_missing", metadata(declared_size=None), "/metadata/declared_size"),
    ("size_zero", metadata(declared_size=0), "/metadata/declared_size"),
    ("size_large", metadata(declared_size=10**9 + 1), "/metadata/declared_size"),
    ("size_text", metadata(declared_size="100"), "/metadata/declared_size"),
    ("size_boolean", metadata(declared_size=True), "/metadata/declared_size"),
    ("size_fraction", metadata(declared_size=1.5), "/metadata/declared_size"),
    ("capacity_zero", metadata(capacity=0), "/metadata/capacity"),
    ("capacity_below_size", metadata(capacity=99), "/metadata/capacity"),
    ("capacity_large", metadata(capacity=2 * 10**9 + 1), "/metadata/capacity"),
    ("capacity_text", metadata(capacity="200"), "/metadata/capacity"),
    ("capacity_fraction", metadata(capacity=200.5), "/metadata/capacity"),
    ("columns_one", metadata(columns=[OUTCOME.model_dump()]), "/metadata/columns"),
    ("columns_many", metadata(columns=[*MANY, OUTCOME.model_dump()]), "/metadata/columns"),
    ("columns_object", metadata(columns={"age": {}}), "/metadata/columns"),
    ("columns_repeated", metadata(columns=[AGE.model_dump()] * 2, label="age"), "/metadata/columns"),
    ("label_missing", metadata(label=None), "/metadata/label"),
    ("label_unknown", metadata(label="income"), "/metadata/label"),
    ("column_text", metadata(columns=["age", "outcome"]), "/metadata/columns/0"),
    ("type_missing", metadata(columns=without(AGE, "type")), "/metadata/columns/0/type"),
    ("type_unknown", metadata(columns=column(AGE, type="8675309")), "/metadata/columns/0/type"),
    ("column_field", metadata(columns=column(REGION, lower=1)), "/metadata/columns/1/lower"),
    ("lower_missing", metadata(columns=without(AGE, "lower")), "/metadata/columns/0/lower"),
    ("upper_boolean", metadata(columns=column(AGE, upper=True)), "/metadata/columns/0/upper"),
    ("upper_text", metadata(columns=column(AGE, upper="120")), "/metadata/columns/0/upper"),
    ("upper_below", metadata(columns=column(AGE, lower=121)), "/metadata/columns/0/upper"),
    ("upper_huge", metadata(columns=column(AGE, upper=1e101)), "/metadata/columns/0/upper"),
    ("lower_huge", metadata(columns=column(AGE, lower=-1e101)), "/metadata/columns/0/lower"),
    ("upper_infinite", metadata(columns=column(AGE, upper=float("inf"))), "/metadata/columns/0/upper"),
    ("lower_nan", metadata(columns=column(AGE, lower=float("nan"))), "/metadata/columns/0/lower"),
    ("categories_none", metadata(columns=column(OUTCOME, categories=[])), "/metadata/columns/2/categories"),
    ("categories_twice", metadata(columns=column(OUTCOME, categories=["a", "a"])), "/metadata/columns/2/categories"),
    (
        "categories_many",
        metadata(columns=column(OUTCOME, categories=[str(code) for code in range(MAX_CATEGORIES + 1)])),
        "/metadata/columns/2/categories",
    ),
    ("category_empty", metadata(columns=column(OUTCOME, categories=[""])), "/metadata/columns/2/categories/0"),
    ("category_number", metadata(columns=column(OUTCOME, categories=["a", 1])), "/metadata/columns/2/categories/1"),
    ("category_long", metadata(columns=column(OUTCOME, categories=["x" * 201])), "/metadata/columns/2/categories/0"),
    ("budget_missing", metadata(public=False), "/metadata/budget_id"),
    ("budget_for_public", metadata(budget_id="bud_a"), "/metadata/budget_id"),
    ("budget_path", private_metadata("../bud"), "/metadata/budget_id"),
    ("unit_control", metadata(privacy_unit="a\x00b"), "/metadata/privacy_unit"),
]


@pytest.mark.parametrize(("declared", "pointer"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_faulty_metadata_are_refused_with_a_pointer(declared: dict[str, Any], pointer: str) -> None:
    problem = refusal(declared)
    assert pointer in [item.pointer for item in problem.errors]
    assert "8675309" not in repr(problem.body("id"))


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"name=study",
        b'"study"',
        b"[]",
        b"null",
        b"\xff",
        b'{"name": "a", "name": "b"}',
        b'{"declared_size": 1e400}',
    ],
)
def test_metadata_are_json_under_the_rules_of_every_body(document: bytes) -> None:
    problem = refusal(document)
    assert all(item.pointer.startswith("/metadata") for item in problem.errors)


def test_deeply_nested_metadata_are_refused() -> None:
    assert refusal(b"[" * 100_000).errors[0].pointer.startswith("/metadata")


def test_limits_themselves_are_accepted() -> None:
    widest = metadata(columns=[*MANY[:-1], OUTCOME.model_dump()])
    assert len(read_metadata(json.dumps(widest).encode()).columns) == MAX_COLUMNS
    categories = [str(code) for code in range(MAX_CATEGORIES)]
    read_metadata(json.dumps(metadata(columns=column(OUTCOME, categories=categories))).encode())
    read_metadata(json.dumps(metadata(columns=column(AGE, lower=-1e100, upper=1e100))).encode())
    read_metadata(json.dumps(metadata(columns=column(AGE, lower=3, upper=3))).encode())
