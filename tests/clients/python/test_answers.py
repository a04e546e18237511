"""Answers keep every field of the service's JSON; the types that classes declare are those of the contract."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from epsilond_client import Answer, Budget, Card, Dataset, Entry, Interval, Key, Reservation, Run, answers

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
    Card: "PrivacyReport",
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
    """Return the annotations that the schema of a field admits."""
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


def examples_of_answers() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in OPENAPI["paths"].items():
        for method, operation in operations.items():
            for answer in operation["responses"].values():
                content = answer.get("content", {}).get("application/json", {})
                if isinstance(content.get("example"), dict):
                    yield f"{method} {path}", content["example"]


def same_at_every_depth(found: Any, plain: Any) -> int:
    """Return how many attributes were read."""
    if isinstance(plain, list):
        assert isinstance(found, tuple)
        return sum(same_at_every_depth(*pair) for pair in zip(found, plain, strict=True))
    if isinstance(found, Interval):
        assert {"lower": found.lower, "estimate": found.estimate, "upper": found.upper} == plain
        return 3
    if not isinstance(plain, dict):
        assert found == plain
        return 0
    # Fields with the names of a mapping's methods are read in brackets, as `Document` says.
    names = [name for name in plain if name not in ("items", "values", "keys", "get")]
    return len(names) + sum(same_at_every_depth(getattr(found, name), plain[name]) for name in names)


def test_every_documented_answer_has_its_fields_as_attributes_at_every_depth() -> None:
    examples = dict(examples_of_answers())
    read = {name: same_at_every_depth(Answer(fields), fields) for name, fields in examples.items()}
    assert len(read) > 40
    assert sum(read.values()) > 1000


def test_every_documented_answer_has_a_table_that_is_escaped_and_keeps_secrets() -> None:
    for name, fields in examples_of_answers():
        shown = Answer({**fields, "name": "<script>alert(1)</script>", "secret": "hush", "x": {"token": "hush"}})
        html = shown._repr_html_()
        assert html.count("<table>") == html.count("</table>"), name
        assert "<script" not in html
        assert "&lt;script&gt;" in html
        assert "hush" not in html + repr(shown), name


USED = {"limit": 3.0, "spent": 1.25, "reserved": 0.5, "started": 0.0, "left": 1.25, "delta": 1e-5}


def test_a_budget_says_in_one_line_what_became_of_its_limit() -> None:
    budget = Budget({"id": "bud_1", "name": "digits <b>", "epsilon": USED, "rho": None, "overdrawn": False})
    said = "epsilon 1.25 of 3 spent, 0.5 reserved, 1.25 left, at delta 1e-05"
    assert repr(budget) == f"<Budget 'digits <b>' (bud_1): {said}>"
    assert said in budget._repr_html_()
    assert "digits &lt;b&gt;" in budget._repr_html_()
    overdrawn = Budget({"id": "bud_1", "name": "z", "rho": USED | {"delta": None}, "overdrawn": True})
    assert repr(overdrawn).endswith(
        "rho 1.25 of 3 spent, 0.5 reserved, 1.25 left; overdrawn: nothing more is admitted>"
    )
    fine = USED | {"spent": 0.10000000001, "left": 2.39999999999}
    said = "epsilon 0.100001 of 3 spent, 0.5 reserved, 2.39999 left"
    assert said in repr(Budget({"id": "bud_1", "name": "z", "epsilon": fine, "overdrawn": False}))
    assert repr(Budget({"id": "bud_1"})) == "Budget(id='bud_1')"


def test_an_answer_shows_its_intervals_and_how_much_else_there_is() -> None:
    answer = Answer({"epsilon": {"lower": 1.0, "estimate": 1.5, "upper": 2.0}, "events": [{}, {}], "none": None})
    assert repr(answer) == "Answer(epsilon=[1.0, 2.0], events=<2>)"
    assert "1.0 to 2.0" in answer._repr_html_()


def test_a_card_begins_with_its_guarantee_and_says_what_it_does_not_cover() -> None:
    fields = dict(examples_of_answers())["get /v1/runs/{run_id}/report"]
    card = Card({**fields, "statement": "a <i>", "caveats": ["one <b>"]})
    assert repr(card) == f"<Card of {card.run_id}: a <i>>"
    html = card._repr_html_()
    assert html.startswith("<p><strong>a &lt;i&gt;</strong></p>")
    assert "<li>one &lt;b&gt;</li>" in html
    assert html.index(card.plan_hash) < html.index("All other fields")


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
    assert repr(key) == "Key(id='key_1', scopes=<1>)"


def test_the_states_in_which_a_run_stays_are_the_service_s() -> None:
    assert set(SCHEMAS["RunState"]["enum"]) >= answers.ENDED == {"succeeded", "failed", "cancelled"}
