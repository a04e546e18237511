"""Logistic noise over HTTP: accounted, refused and documented as every other mechanism."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from accounting.accountant import epsilon_for_delta
from accounting.events import Event
from accounting.events.logistic import Logistic
from accounting.relations import NeighboringRelation
from tests.app.problem_assertions import assert_problem

DELTA = 1e-5


def question(**mechanism: object) -> dict[str, object]:
    return {"events": [{"mechanism": {"kind": "logistic", **mechanism}, "count": 3}], "delta": DELTA}


def test_it_is_accounted(reader: TestClient) -> None:
    answer = reader.post("/v1/account", json=question(noise_multiplier=2))
    assert answer.status_code == 200, answer.text
    events = [Event(Logistic(2.0), count=3)]
    value = epsilon_for_delta(events, NeighboringRelation.ADD_OR_REMOVE_ONE, DELTA).value
    assert answer.json()["epsilon"]["upper"] == pytest.approx(value.upper, rel=1e-12)
    convention = answer.json()["convention"]
    assert (convention["norm"], convention["noise_multiplier_is"]) == (Logistic.norm, Logistic.noise_multiplier_is)


@pytest.mark.parametrize(
    ("mechanism", "field"),
    [({"noise_multiplier": 1e-9}, "noise_multiplier"), ({}, "noise_multiplier"), ({"scale": 2}, "scale")],
)
def test_a_fault_is_pointed_at(reader: TestClient, mechanism: dict[str, object], field: str) -> None:
    problem = assert_problem(reader.post("/v1/account", json=question(**mechanism)), 422, "invalid_request")
    assert f"/events/0/mechanism/{field}" in {fault["pointer"] for fault in problem["errors"]}


def test_it_is_a_choice_in_the_document(reader: TestClient) -> None:
    schemas = reader.app.openapi()["components"]["schemas"]  # type: ignore[attr-defined]
    one = schemas["LogisticSchema"]
    assert one["description"] == "Logistic noise on a scalar sum of contributions of bounded absolute value."
    assert one["required"] == ["kind", "noise_multiplier"]
    assert one["properties"]["noise_multiplier"]["minimum"] == 0.001
    choices = schemas["EventSchema"]["properties"]["mechanism"]
    assert choices["discriminator"]["mapping"]["logistic"] == "#/components/schemas/LogisticSchema"
