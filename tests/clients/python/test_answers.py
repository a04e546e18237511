"""Answers keep every field of the service's JSON; the types that classes declare are those of the contract."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from epsilond_client import Answer, Budget, Dataset, Entry, Interval, Key, Reservation, Run, answers

ROOT = Path(__file__).parents[3]
OPENAPI: dict[str, Any] = json.loads((ROOT / "openapi.json").read_text())
SCHEMAS = OPENAPI["components"]["schemas"]
CLASSES = {
    Budget: "BudgetBody",
    Reservation: "ReservationBody",
    Run: "RunBody",
    Entry: "EntryBody",
    Dataset: "UploadedDataset",
    Key: "KeyWithToken",
}
JSON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def declared(kind: type) -> dict[str, str]:
    """The annotations of a class, which are there for type checkers alone."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def python_type(schema: dict[str, Any]) -> set[str]:
    """Which annotations a field's schema admits."""
    if "$ref" in schema:
        target = SCHEMAS[schema["$ref"].rsplit("/", 1)[1]]
        return python_type(target)
    if "anyOf" in schema:
        inner = [option for option in schema["anyOf"] if option.get("type") != "null"]
        assert len(inner) == len(schema["anyOf"]) - 1, schema
        return {f"{name} | None" for name in python_type(inner[0])}
    kind = schema.get("type")
    if kind == "array":
        return {"Sequence[str]", "Sequence[Event]", "Sequence[Mapping[str, Any]]"}
    if kind == "object":
        return {"Answer", "Amounts", "Mapping[str, str]", "Progress"}
    return {JSON_TYPES[kind]}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_declared_fields_are_those_of_the_contract(kind: type) -> None:
    properties = SCHEMAS[CLASSES[kind]]["properties"]
    annotations = declared(kind)
    assert len(annotations) >= 4
    for name, annotation in annotations.items():
        assert name in properties, f"{kind.__name__}.{name} is no field of the contract"
        # Only the answer to a dry run has no id, and that is an `Answer`.
        admitted = {"str"} if name == "id" else python_type(properties[name])
        assert annotation in admitted, (name, annotation)


@pytest.mark.parametrize("script", sorted((ROOT / "clients/python/examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_read_fields_that_a_budget_has(script: Path) -> None:
    """The adapters' tests run these scripts, with libraries that `make test` does not have."""
    read = {
        node.attr
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "budget"
    }
    assert "id" in read
    assert read <= SCHEMAS["BudgetBody"]["properties"].keys()


def test_every_field_is_there_also_one_that_is_newer() -> None:
    budget = Budget({"id": "bud_1", "rho": {"spent": 0.5}, "newer": {"field": [{"x": 1}]}})
    assert budget.id == "bud_1"
    assert budget.rho.spent == 0.5
    assert budget.newer.field[0].x == 1
    assert budget["newer"] == {"field": [{"x": 1}]}
    assert dict(budget)["id"] == "bud_1"


def test_an_interval_has_its_class() -> None:
    answer = Answer({"epsilon": {"lower": 1.0, "estimate": 1.5, "upper": 2.0}, "points": [], "none": None})
    assert answer.epsilon == Interval(1.0, 1.5, 2.0)
    assert answer.points == ()
    assert answer.none is None


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="Run has no field 'lose'"):
        _ = Run({"id": "run_1"}).lose
    assert not hasattr(Run({}), "progress")


def test_answers_are_copied_and_pickled() -> None:
    answer = Run({"id": "run_1", "progress": {"done": 1, "total": 2}})
    for other in (copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
        assert other == answer
        assert isinstance(other, Run)
        assert other.progress.total == 2


def test_a_token_is_in_no_repr() -> None:
    key = Key({"id": "key_1", "token": "epsilond_secret", "scopes": ["admin"]})
    assert key.token == "epsilond_secret"
    assert "secret" not in repr(key) + str(key) + f"{key}"
    assert repr(key) == "Key(id='key_1')"


def test_the_states_in_which_a_run_stays_are_the_service_s() -> None:
    assert set(SCHEMAS["RunState"]["enum"]) >= answers.ENDED == {"succeeded", "failed", "cancelled"}
