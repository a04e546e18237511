"""`POST /v1/import`: histories of other libraries over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from app.privacy.imports import IMPORT_EXAMPLES


def ask(reader: Any, source: dict[str, Any], **more: Any) -> Any:
    return reader.post("/v1/import", json={"source": source, "delta": 1e-5} | more)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", IMPORT_EXAMPLES)
def test_every_example_runs_as_it_stands(reader: Any, name: str) -> None:
    answer = reader.post("/v1/import", json=IMPORT_EXAMPLES[name]["value"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["differences"]
    question = {
        "events": body["events"],
        "delta": body["delta"],
        "neighboring_relation": body["convention"]["neighboring_relation"],
    }
    assert reader.post("/v1/account", json=question).json()["epsilon"] == body["epsilon"]


def test_the_library_is_placed_beside_the_interval(reader: Any) -> None:
    history = {"kind": "opacus", "history": [[1.1, 0.1, 50]]}
    renyi = ask(reader, history | {"mechanism": "rdp"}).json()
    limit = ask(reader, history | {"mechanism": "gdp"}).json()
    assert renyi["reported"]["position"] == "above"
    assert renyi["reported"]["epsilon"] == pytest.approx(4.89909894882855, rel=1e-7)
    assert limit["reported"]["position"] == "below"
    assert any(difference["unsound"] for difference in limit["differences"])


def test_dp_accounting_answers_for_its_own_event(reader: Any) -> None:
    source = {"kind": "dp_event", "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}}
    body = ask(reader, source, neighboring_relation="replace_one").json()
    assert body["reported"]["epsilon"] == pytest.approx(4.7285, abs=1e-3)
    assert body["reported"]["position"] == "below"
    assert body["epsilon"]["upper"] == pytest.approx(9.997256146434301)
    over = ask(reader, source | {"noise_over": "sensitivity"}, neighboring_relation="replace_one").json()
    assert over["epsilon"]["upper"] == pytest.approx(4.3771780956812246)


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        ({"kind": "opacus", "mechanism": "rdp", "history": [[1.1, 2.0, 50]]}, "/source"),
        ({"kind": "dp_event", "event": {"class_name": "GaussianDpEvent"}}, "/source/event/noise_multiplier"),
        ({"kind": "dp_event", "event": {"class_name": "NonPrivateDpEvent"}}, "/source/event"),
        ({"kind": "dp_event", "event": {"class_name": "NoOpDpEvent"}}, "/source/event"),
        (
            {"kind": "opacus", "mechanism": "rdp", "history": [[1.1, 0.01, 50]], "batches": "shuffled"},
            "/source",
        ),
    ],
)
def test_what_cannot_be_read_is_pointed_at(reader: Any, source: dict[str, Any], pointer: str) -> None:
    answer = ask(reader, source)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)
