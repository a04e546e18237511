"""The page on which somebody pastes a call: its answer, what is missing at its field, and the ways on."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from starlette.testclient import TestClient

from app.dashboard.imports import read
from tests.app.dashboard.documents import Document

PATH = "/dashboard/import"
LIVE = {"HX-Request": "true"}
POISSON = {
    "code": "make_private(noise_multiplier=4.0)",
    "dataset_size": "600",
    "batch_size": "60",
    "steps": "20",
    "delta": "1e-5",
}


def show(reader: TestClient, values: dict[str, str]) -> Document:
    response = reader.get(PATH, params=values)
    assert response.status_code == 200
    document = Document(response.text)
    assert document.faults == []
    return document


def asked(document: Document) -> dict[str, Any]:
    """The request that a page shows."""
    [command] = [each.text for each in document.all("pre") if each.text.startswith("curl")]
    body: dict[str, Any] = json.loads(shlex.split(command.replace("\\\n", " "))[-1])
    return body


def test_the_first_screen_shows_a_call_that_costs_more_than_its_library_says(reader: TestClient) -> None:
    document = show(reader, {})
    assert document.text_of("summary") == (
        "It costs epsilon at most 15.7828 at delta 1e-5, one record replaced by a null record. "
        "Opacus would say 1.52547, which is too little."
    )
    said = reader.post("/v1/import", json=asked(document)).json()
    answer = document.text_of("answer")
    assert said["reported"]["position"] == "below"
    assert "1000 × Gaussian" in answer
    for each in said["call"]["assumed"]:
        assert each["reason"] in answer
    assert [each.attributes["aria-current"] for each in document.all("a", href=PATH)] == ["page"]


def test_the_way_on_calibrates_the_same_steps_for_what_was_claimed(reader: TestClient) -> None:
    document = show(reader, POISSON)
    [way] = [each for each in document.all("a", class_="button") if "Calibrate" in each.text]
    address = way.attributes["href"]
    claimed = dict(parse_qsl(urlsplit(address).query))["epsilon"]
    said = reader.post("/v1/import", json=asked(document)).json()
    assert float(claimed) == pytest.approx(said["reported"]["epsilon"], rel=1e-3)
    calibrated = Document(reader.get(address).text)
    reached = re.search(r"epsilon at most ([\d.]+) at delta 1e-5", calibrated.text_of("summary"))
    assert reached
    assert float(reached[1]) == pytest.approx(float(claimed), rel=1e-5)
    assert "20 × Gaussian" in calibrated.text_of("answer")


def test_it_shows_how_to_reserve_what_is_released(reader: TestClient) -> None:
    document = show(reader, POISSON)
    [lines] = [each.text for each in document.all("pre") if "client.reserve" in each.text]
    events: list[Any] = []

    class Client:
        def __init__(self, address: str) -> None:
            assert address.startswith("http://")

        def reserve(self, budget: str, given: list[Any], *, purpose: str) -> Any:
            events.extend(given)
            return open("/dev/null")

    exec(lines.partition("\n")[2], {"Client": Client})
    assert events == reader.post("/v1/import", json=asked(document)).json()["events"]


def test_what_is_missing_is_marked_at_its_field(reader: TestClient) -> None:
    document = show(reader, {"code": "make_private(noise_multiplier=4.0)", "steps": "3"})
    faults = {
        each.attributes["id"]: each.text.strip() for each in document.all("p", class_="fault") if each.text.strip()
    }
    assert set(faults) == {"field-dataset_size-fault", "field-batch_size-fault", "field-delta-fault"}
    assert document.text_of("summary").startswith("No answer yet: The fields that are marked need another value.")
    assert faults["field-dataset_size-fault"] == "The call does not say how many records there are: fill it in."


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "make_private(\n    noise_multiplier=1.1",
            r"Your call: this is not Python: '(' was never closed (line 1, column 13)",
        ),
        ("", "Your call:"),
        ("<script>alert(1)</script>", "Your call: this is not Python"),
        ("print('<b>')", "Your call: print cannot be read here"),
    ],
)
def test_what_is_not_understood_is_told_with_its_place(reader: TestClient, code: str, said: str) -> None:
    document = show(reader, {"code": code, "delta": "1e-5"})
    assert said in document.text_of("summary")
    assert document.all("script", src=None) == [each for each in document.all("script") if "src" not in each.attributes]


def test_the_address_holds_what_was_pasted_as_it_stands(reader: TestClient) -> None:
    code = "engine = PrivacyEngine()\nengine.make_private(noise_multiplier=4.0)  # é, 100 %"
    values = POISSON | {"code": code, "batches": "shuffled", "neighboring_relation": "replace_one"}
    response = reader.get(PATH, params=values, headers=LIVE)
    address = response.headers["HX-Replace-Url"]
    assert dict(parse_qsl(urlsplit(address).query)) == values
    body = asked(show(reader, values))
    assert body["source"] | {"kind": "call"} == {
        "kind": "call", "code": code, "dataset_size": 600, "batch_size": 60, "steps": 20, "batches": "shuffled",
    }  # fmt: skip
    assert body["neighboring_relation"] == "replace_one"


def test_a_part_alone_is_sent_where_htmx_asks(reader: TestClient) -> None:
    answer = reader.get(PATH, params=POISSON, headers=LIVE)
    assert "<form" not in answer.text
    assert "<form" in reader.get(PATH, params=POISSON, headers=LIVE | {"HX-Target": "call"}).text


def test_what_is_no_choice_is_left_out() -> None:
    assert "batches" not in read({"code": "f()", "batches": "other"}).body()["source"]
