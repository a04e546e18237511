"""The form of a plain list of events: the request that it makes, the service's answer, and faults at their fields."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import parse_qsl

import pytest
from starlette.testclient import TestClient

from accounting.events import MECHANISMS, SAMPLINGS
from app.dashboard.calibrate_events import _value
from app.dashboard.events_form import MOST_PARTS, read
from tests.app.dashboard.documents import Document

PATH = "/dashboard/calibrate/events"
LIVE = {"HX-Request": "true"}
QUICK = {"1.sampling": "full_batch", "1.count": "10"}


def show(reader: TestClient, values: dict[str, str]) -> Document:
    response = reader.get(PATH, params=values)
    assert response.status_code == 200
    document = Document(response.text)
    assert document.faults == []
    return document


def asked(document: Document) -> dict[str, Any]:
    """The request that a page shows."""
    command = shlex.split(document.all("pre")[0].text.replace("\\\n", " "))
    body: dict[str, Any] = json.loads(command[-1])
    return body


def faults(document: Document) -> dict[str, str]:
    said = {each.attributes["id"]: " ".join(each.text.split()) for each in document.all("p", class_="fault")}
    return {identifier.removeprefix("field-").removesuffix("-fault"): text for identifier, text in said.items() if text}


def test_the_first_screen_answers_the_common_case(reader: TestClient) -> None:
    document = show(reader, {})
    body = asked(document)
    assert body == {
        "events": [
            {
                "mechanism": {"kind": "gaussian"},
                "sampling": {"kind": "poisson", "sampling_probability": 0.01},
                "count": 5000,
            }
        ],
        "neighboring_relation": "add_or_remove_one",
        "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
        "solve_for": "noise_multiplier",
    }
    said = reader.post("/v1/calibrate/events", json=body).json()
    summary = document.text_of("summary")
    assert summary.startswith(f"Noise multiplier {_value(said)}: epsilon at most 7.9")
    assert summary.endswith("one record added or removed.")
    answer = document.text_of("answer")
    assert "proved within [7.9" in answer
    assert "none beyond it meets the target" in answer
    assert "5000 × Gaussian" in answer
    assert [each.text for each in document.all("a", href="#request")] == ["The request as JSON"]
    assert [each.attributes["aria-current"] for each in document.all("a", href=PATH)] == ["page"]


@pytest.mark.parametrize(
    ("solve_for", "fields", "said"),
    [
        ("count", {"1.mechanism.noise_multiplier": "4", "1.sampling": "full_batch"}, "count"),
        ("sampling_probability", {"1.mechanism.noise_multiplier": "2", "1.count": "50"}, "sampling probability"),
        (
            "batch_size",
            {
                "1.mechanism.noise_multiplier": "4",
                "1.sampling": "without_replacement",
                "1.count": "50",
                "neighboring_relation": "replace_one",
            },
            "batch size",
        ),
        ("noise_multiplier", {"1.mechanism": "laplace", "target": "pure_dp", **QUICK}, "noise multiplier"),
        ("noise_multiplier", {"target": "zcdp", **QUICK}, "noise multiplier"),
        ("noise_multiplier", {"target": "bayes_risk", **QUICK}, "noise multiplier"),
    ],
)
def test_each_field_that_is_left_open_is_solved_for(
    reader: TestClient, solve_for: str, fields: dict[str, str], said: str
) -> None:
    document = show(reader, {"solve_for": solve_for} | fields)
    body = asked(document)
    answer = reader.post("/v1/calibrate/events", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert f"{solve_for}" not in json.dumps(body["events"])
    tiles = dict(
        zip((each.text for each in document.all("dt")), (each.text for each in document.all("dd")), strict=False)
    )
    assert tiles[said] == _value(found)
    shown = document.text_of("answer")
    if solve_for in ("count", "batch_size"):
        assert f"{said} {found['next']['value']}misses" in shown
    assert document.text_of("summary").startswith(f"{said.capitalize()} {_value(found)}: ")


def test_values_are_rounded_so_that_they_still_meet_the_target() -> None:
    """Noise is rounded up, and a sampling probability down."""
    assert _value({"solve_for": "noise_multiplier", "value": 1.00000049}) == "1.00001"
    assert _value({"solve_for": "sampling_probability", "value": 0.00999999999}) == "0.00999999"
    assert _value({"solve_for": "count", "value": 123456789.0}) == "123456789"


def test_a_field_with_a_value_stays_as_it_is_in_other_steps(reader: TestClient) -> None:
    """Two kinds of steps, one of which has its noise already, and a stated release."""
    fields = {"parts": "3", "2.mechanism.noise_multiplier": "9", "2.sampling": "full_batch", "2.count": ""}
    stated = {"3.mechanism": "pure_dp", "3.mechanism.epsilon": "0.1", "3.sampling": "full_batch", "3.count": "1"}
    document = show(reader, fields | QUICK | stated)
    body = asked(document)
    assert body["events"][1] == {
        "mechanism": {"kind": "gaussian", "noise_multiplier": 9},
        "sampling": {"kind": "full_batch"},
    }
    assert [each.text for each in document.all("legend")] == ["Privacy", "List", "Steps 1", "Steps 2", "Steps 3"]
    answer = reader.post("/v1/calibrate/events", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["events"][1]["mechanism"]["noise_multiplier"] == 9.0
    assert _value(found) in document.text_of("summary")


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"epsilon": "x"}, "epsilon", "valid number"),
        ({"delta": ""}, "delta", "required"),
        ({"1.count": "-3"}, "1-count", "1"),
        ({"1.sampling.sampling_probability": "2"}, "1-sampling-sampling_probability", "1"),
        ({"1.sampling.sampling_probability": ""}, "1-sampling-sampling_probability", "required"),
        ({"1.mechanism": "laplace", "1.mechanism.noise_multiplier": "-1"}, "1-mechanism-noise_multiplier", "0"),
    ],
)
def test_a_fault_stands_at_its_field(reader: TestClient, changed: dict[str, str], field: str, words: str) -> None:
    document = show(reader, changed)
    [control] = [each for each in document.elements if each.attributes.get("id") == f"field-{field}"]
    [label] = document.all("label", **{"for": f"field-{field}"})
    assert document.text_of("summary").startswith(f"No answer: {label.text}: ")
    assert words in document.text_of("summary")
    assert words in faults(document)[field]
    assert control.attributes["aria-invalid"] == "true"


def test_a_refusal_says_why(reader: TestClient) -> None:
    document = show(reader, {"neighboring_relation": "replace_one", "1.sampling": "random_allocation"})
    assert document.text_of("summary").startswith("No answer")
    assert "not accounted under replace_one" in document.text_of("answer")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_has_its_fields(mechanism: str) -> None:
    form = read({"1.mechanism": mechanism, "solve_for": "count"})
    names = [name for name in form.values if name.startswith("1.mechanism.")]
    assert names == [f"1.mechanism.{name}" for name in MECHANISMS[mechanism].ranges]
    lists = read({"1.mechanism": "gaussian_mixture", "1.mechanism.weights": "0.5, 0.5", "solve_for": "count"}).body()
    assert lists["events"][0]["mechanism"] == {"kind": "gaussian_mixture", "weights": [0.5, 0.5]}


def test_a_long_list_arrives_whole() -> None:
    """Without its end it would be another mechanism, and the answer would be about that."""
    coefficients = [1.0, *(0.5 / number for number in range(1, 60))]
    typed = ", ".join(map(str, coefficients))
    form = read({"1.mechanism": "correlated_gaussian", "1.mechanism.coefficients": typed})
    assert form.body()["events"][0]["mechanism"]["coefficients"] == coefficients


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_sampling_has_its_fields_and_an_address(sampling: str) -> None:
    form = read({"1.sampling": sampling, "parts": f"{MOST_PARTS}"})
    names = [name for name in form.values if name.startswith("1.sampling.")]
    assert names == [f"1.sampling.{name}" for name in SAMPLINGS[sampling].ranges]
    again = read(dict(parse_qsl(form.address, keep_blank_values=True)))
    assert again.body() == form.body()
    assert len(form.body()["events"]) == MOST_PARTS


def test_only_what_changes_is_sent_while_one_types_or_chooses(reader: TestClient) -> None:
    typed = reader.get(PATH, params=QUICK, headers={**LIVE, "HX-Target": "answer"})
    part = Document(typed.text, is_part=True)
    assert not part.all("form")
    assert typed.headers["HX-Replace-Url"].startswith(f"{PATH}?solve_for=noise_multiplier&")
    chosen = Document(reader.get(PATH, params=QUICK, headers={**LIVE, "HX-Target": "list"}).text, is_part=True)
    assert len(chosen.all("form")) == 1
    assert not chosen.all("html")
