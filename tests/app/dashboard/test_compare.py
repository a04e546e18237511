"""The comparison: what is advised, the papers' tables beside it, and faults at their fields."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import parse_qsl

import pytest
from starlette.testclient import TestClient

from app.algorithms.advice import ADVISE_EXAMPLES
from app.dashboard.calibration_fields import RISKS, TARGETS
from app.dashboard.compare import _drawn
from app.dashboard.compare_form import read
from calibrators.tables import TABLES
from tests.app.dashboard.documents import Document

PATH = "/dashboard/compare"
LIVE = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def algorithms(reader: TestClient) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = reader.get("/v1/algorithms").json()["items"]
    return items


def show(reader: TestClient, **values: str) -> Document:
    response = reader.get(PATH, params={name.replace("__", "."): value for name, value in values.items()})
    assert response.status_code == 200
    document = Document(response.text)
    assert document.faults == []
    return document


def test_the_first_screen_says_what_the_advice_says(reader: TestClient, algorithms: list[dict[str, Any]]) -> None:
    document = show(reader)
    tables = {name: name for name in TABLES}
    said = reader.post("/v1/advise", json=read({}, algorithms, tables).problem()).json()
    ranked = [item["algorithm"] for group in said["measures"] for item in group["ranked"]]
    others = [item["algorithm"] for item in said["others"]]
    assert ranked
    assert others
    headings = [each.text for each in document.all("th", scope="row")]
    assert headings[: len(ranked) + len(others)] == [*ranked, *others]
    summary = document.text_of("summary")
    assert summary.startswith(f"{len(ranked)} algorithms apply and {len(others)} do not.")
    best = said["measures"][0]["ranked"][0]
    assert f"{best['algorithm']} has the least bound on the excess population risk" in summary
    assert f"{best['bound']['value']:.3g}"[:5] in document.text_of("answer")
    for item in said["others"]:
        for reason in item["reasons"]:
            assert " ".join(reason["detail"].split()) in document.text_of("answer")


def test_each_algorithm_that_applies_leads_to_its_calibration(reader: TestClient) -> None:
    document = show(reader)
    links = {
        each.text: each.attributes["href"] for each in document.all("a") if each.attributes["href"].startswith("/?")
    }
    assert len(links) >= 3
    said = reader.post("/v1/advise", json=asked(document)).json()
    plans = {item["algorithm"]: item["plan_hash"] for group in said["measures"] for item in group["ranked"]}
    assert set(links) == set(plans)
    for name, address in links.items():
        assert plans[name] in reader.get(address).text, "the very plan that was ranked"


def asked(document: Document) -> dict[str, Any]:
    """The request that a page shows."""
    command = shlex.split(document.all("pre")[0].text.replace("\\\n", " "))
    body: dict[str, Any] = json.loads(command[-1])
    return body


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_shown_with_its_rates_drawn(reader: TestClient, table: str) -> None:
    document = show(reader, table=table)
    body = reader.get("/v1/algorithms/compare", params={"table": table, "dataset_size": 50000, "dimension": 20}).json()
    [shown] = body["tables"]
    assert shown["title"] in [each.text for each in document.all("h2")]
    answer = document.text_of("answer")
    for row in shown["rows"]:
        assert " ".join(row["method"].split()) in answer
    assert len(document.all("svg")) == 1
    lines = [each for each in document.all("g") if each.attributes.get("class", "").startswith("series-")]
    assert 1 <= len(lines) <= 5
    assert len(lines) == len(_drawn(shown))


def test_methods_of_one_rate_share_a_line_that_says_so() -> None:
    def row(method: str, formula: str, value: float | None, algorithm: str | None = None) -> dict[str, Any]:
        return {"method": method, "algorithm": algorithm, "utility": {"formula": formula, "value": value}}

    rows = [row("A (1999)", "x", 1.0), row("B", "x", 1.0, "b"), row("C", "y", 2.0), row("D", "z", None)]
    table = {"rows": rows, "lower_bound": {"value": 0.5}}
    assert _drawn(table) == [("B and 1 more", 1.0), ("C", 2.0), ("lower bound", 0.5)]
    assert _drawn({"rows": rows, "lower_bound": None}) == [("B and 1 more", 1.0), ("C", 2.0)]


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"dataset_size": "0"}, "dataset_size", "1"),
        ({"norm_order": "3"}, "norm_order", "2"),
        ({"epsilon": "x"}, "epsilon", "valid number"),
        ({"dimension": ""}, "dimension", "required"),
        ({"max_grad_norm": "-1"}, "max_grad_norm", "greater than 0"),
    ],
)
def test_a_fault_stands_at_its_field(reader: TestClient, changed: dict[str, str], field: str, words: str) -> None:
    document = show(reader, **changed)
    assert document.text_of("summary").startswith("No answer")
    assert words in document.text_of(f"field-{field}-fault")
    [control] = [each for each in document.elements if each.attributes.get("id") == f"field-{field}"]
    assert control.attributes["aria-invalid"] == "true"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", ["strongly_convex", "polyak_lojasiewicz", "weakly_convex", "nonconvex"])
def test_the_form_makes_the_problem(algorithms: list[dict[str, Any]], shape: str, target: str) -> None:
    form = read({"shape": shape, "target": target, "smooth": "no"}, algorithms, {"t": "T", "convex_population": "C"})
    problem = form.problem()
    assert problem["problem"] == {"shape": shape, "smooth": False, "heavy_tailed": False, "norm_order": 2}
    assert problem["target"]["kind"] == ("attack_risk" if target in RISKS else target)
    assert problem["target"].keys() == {"kind", *TARGETS[target]}
    own = {
        "strongly_convex": "strong_convexity",
        "polyak_lojasiewicz": "pl_constant",
        "weakly_convex": "weak_convexity",
    }
    assert [name for name in own.values() if name in problem["assumptions"]] == ([own[shape]] if shape in own else [])
    assert read(dict(parse_qsl(form.address, keep_blank_values=True)), algorithms, {"t": "T"}).problem() == problem


def test_every_choice_and_every_size_is_sent_where_it_is_asked_for(algorithms: list[dict[str, Any]]) -> None:
    given = {"smooth": "yes", "heavy_tailed": "yes", "norm_order": "1.5", "delta": "1e-7", "epsilon": "0.5"}
    form = read(given | {"dataset_size": "123", "dimension": "4"}, algorithms, {"convex_population": "C"})
    assert form.problem()["problem"] == {"shape": "convex", "smooth": True, "heavy_tailed": True, "norm_order": 1.5}
    assert form.setting() == {
        "dataset_size": "123", "dimension": "4", "epsilon": "0.5", "delta": "1e-7", "norm_order": "1.5",
        "moment_order": "4",
    }  # fmt: skip


def test_only_what_changes_is_sent_while_one_types(reader: TestClient) -> None:
    typed = reader.get(PATH, params={"epsilon": "3"}, headers={**LIVE, "HX-Target": "answer"})
    part = Document(typed.text, is_part=True)
    assert not part.all("form")
    assert not part.all("html")
    assert part.all("section", id="answer")
    assert dict(parse_qsl(typed.headers["hx-replace-url"].partition("?")[2]))["epsilon"] == "3"
    chosen = reader.get(PATH, params={"shape": "strongly_convex"}, headers={**LIVE, "HX-Target": "problem"})
    part = Document(chosen.text, is_part=True)
    assert part.all("form", id="problem")
    assert part.all("input", id="field-assumptions-strong_convexity")


def test_examples_of_the_interface_can_be_asked_here(reader: TestClient) -> None:
    """What Swagger UI offers has its place in the form, too."""
    names = {each.attributes["name"] for each in show(reader, shape="convex").all("input")}
    for example in ADVISE_EXAMPLES.values():
        assert {f"assumptions.{name}" for name in example["value"].get("assumptions", {})} <= names


def test_sizes_that_a_table_does_not_take_do_not_spoil_the_advice(reader: TestClient) -> None:
    document = show(reader, dimension="100000000000")
    assert "The papers' tables" in [each.text for each in document.all("h2")]


def test_what_a_loader_loses_stands_beside_what_would_lose_less(reader: TestClient) -> None:
    sizes = {"max_grad_norm": "1", "batch_size": "500", "iterations": "2000", "epsilon": "8"}
    document = show(reader, shape="nonconvex", loader="fixed_order", **sizes)
    assert "Batches" in [each.text for each in document.all("h2")]
    [table] = [each for each in document.all("table") if "Ways of making batches" in each.text]
    assert table.text.count("not with this loader") == 2
    assert any("Your loader cannot draw Poisson batches" in each.text for each in document.all("p"))
    assert "Batches" not in [each.text for each in show(reader, shape="nonconvex", **sizes).all("h2")]


@pytest.mark.thorough
def test_a_simulation_goes_on_from_algorithm_to_algorithm_and_ends_as_the_service_says(
    reader: TestClient, algorithms: list[dict[str, Any]]
) -> None:
    values = {"shape": "mean", "simulated": "mean", "dataset_size": "1000", "dimension": "4"}
    values |= {"assumptions.coordinate_moment_bound": "1", "assumptions.mean_bound": "1"}
    document = Document(reader.get(PATH, params=values).text)
    assert document.faults == []
    [section] = [each for each in document.all("section") if each.attributes.get("id") == "simulation"]
    assert "0 of " in section.text
    seen = []
    while "hx-get" in section.attributes:
        assert len(seen) < 10
        part = Document(reader.get(section.attributes["hx-get"], headers=LIVE).text)
        [section] = part.all("section")
        seen.append(section.text)
    form = read(values, algorithms, {name: name for name in TABLES})
    advised = reader.post("/v1/advise", json=form.problem()).json()
    names = [item["algorithm"] for group in advised["measures"] for item in group["ranked"]]
    body = form.simulation(names)
    assert body is not None
    assert body["simulation"] == {"model": "mean"}
    said = reader.post("/v1/advise", json=body).json()["simulation"]
    assert len(seen) == len(names) == 4
    assert said["label"] in seen[-1]
    headings = [each.text for each in part.all("th", scope="row")]
    assert headings == [item["algorithm"] for item in said["ranked"]]
    assert all(item["why"] in seen[-1] for item in said["ranked"])
    assert form.simulation([]) != form.problem()


def test_nothing_is_simulated_unless_it_is_asked_for(reader: TestClient) -> None:
    document = show(reader)
    assert all(each.attributes.get("id") != "simulation" for each in document.all("section"))


def test_what_is_simulated_has_the_fields_of_its_model(algorithms: list[dict[str, Any]]) -> None:
    tables = {name: name for name in TABLES}

    def asked(**values: str) -> dict[str, Any]:
        body = read(values, algorithms, tables).simulation([])
        assert body is not None
        found: dict[str, Any] = body["simulation"]
        return found

    assert asked(simulated="logistic_regression") == {"model": "logistic_regression"}
    linear = asked(simulated="logistic_regression", fit_intercept="yes", penalty="l2", strength="0.2", hidden="8")
    penalty = {"kind": "l2", "strength": 0.2}
    assert linear == {"model": "logistic_regression", "fit_intercept": True, "penalty": penalty}
    perceptron = asked(simulated="mlp", classes="3", hidden="8", fit_intercept="yes")
    assert perceptron == {"model": "mlp", "classes": 3, "hidden": [8]}


@pytest.mark.thorough
def test_a_penalty_is_filled_in_and_reaches_the_runs(reader: TestClient) -> None:
    values = {"simulated": "logistic_regression", "penalty": "l2", "strength": "0.05", "dataset_size": "1000"}
    document = show(reader, **values)
    names = {each.attributes.get("name") for kind in ("input", "select") for each in document.all(kind)}
    assert {"fit_intercept", "penalty", "strength"} <= names
    assert "hidden" not in names
    address = f"{PATH}/simulation"
    part = Document(reader.get(address, params=values | {"algorithms": "dp_sgd", "done": "0"}, headers=LIVE).text)
    [section] = part.all("section")
    assert "the l2 penalty of strength 0.05" in section.text
