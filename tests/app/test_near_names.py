"""Faults in names say which name was probably meant: of fields wherever they are, of parameters, of options."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.testclient import TestClient

from accounting.near_names import hint, nearest
from app.kit.schema_names import names_at
from app.kit.validation import from_model
from app.privacy.account import AccountRequest
from app.runs.schemas import RunRequest

GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 1.0}
POISSON = {"kind": "poisson", "sampling_probability": 0.1}
ACCOUNT = {"events": [{"mechanism": GAUSSIAN, "sampling": POISSON}], "delta": 1e-5}


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        (ACCOUNT | {"deltas": 1e-5}, "/deltas", "Did you mean delta?"),
        (ACCOUNT | {"groupsize": 2}, "/groupsize", "Did you mean group_size?"),
        ({"events": [{"mechanism": GAUSSIAN, "steps": 3}], "delta": 1e-5}, "/events/0/steps", "count, mechanism and"),
        (
            {"events": [{"mechanism": GAUSSIAN | {"noise": 2.0}}], "delta": 1e-5},
            "/events/0/mechanism/noise",
            "Did you mean noise_multiplier?",
        ),
        (
            {"events": [{"mechanism": GAUSSIAN, "sampling": POISSON | {"probability": 0.1}}], "delta": 1e-5},
            "/events/0/sampling/probability",
            "Did you mean sampling_probability?",
        ),
    ],
)
def test_an_unknown_field_is_told_with_the_one_that_was_meant(
    reader: TestClient, body: dict[str, Any], pointer: str, said: str
) -> None:
    answer = reader.post("/v1/account", json=body)
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert fault["pointer"] == pointer
    assert fault["code"] == "unknown_field"
    assert fault["detail"].startswith("There is no field of this name here.")
    assert said in fault["detail"]
    assert answer.json()["detail"] == fault["detail"]


def test_an_unknown_parameter_is_told_with_the_one_that_was_meant(reader: TestClient) -> None:
    [fault] = reader.get("/v1/budgets?limits=3").json()["errors"]
    assert fault["detail"] == "There is no query parameter of this name here. Did you mean limit?"


CALIBRATION = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "batch_size": 100,
    "iterations": 10,
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1.0, "delta": 1e-5},
}


@pytest.mark.parametrize(
    ("path", "body", "pointer", "meant"),
    [
        (
            "account",
            ACCOUNT | {"events": [{"mechanism": GAUSSIAN | {"kind": "gausian"}}]},
            "mechanism/kind",
            "gaussian",
        ),
        (
            "account",
            ACCOUNT | {"events": [{"mechanism": GAUSSIAN, "sampling": POISSON | {"kind": "poison"}}]},
            "sampling/kind",
            "poisson",
        ),
        ("account", ACCOUNT | {"neighboring_relation": "replace-one"}, "neighboring_relation", "replace_one"),
        ("calibrate", CALIBRATION | {"algorithm": "dp_sdg"}, "algorithm", "dp_sgd"),
        ("calibrate", CALIBRATION | {"sampling": "poison"}, "sampling", "poisson"),
        ("calibrate", CALIBRATION | {"target": {"kind": "zdcp", "rho": 1.0}}, "target/kind", "zcdp"),
    ],
)
def test_an_unknown_kind_is_told_with_the_one_that_was_meant(
    reader: TestClient, path: str, body: dict[str, Any], pointer: str, meant: str
) -> None:
    answer = reader.post(f"/v1/{path}", json=body)
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert fault["pointer"].endswith(f"/{pointer}")
    assert fault["detail"].endswith(f" Did you mean {meant}?")
    assert answer.json()["detail"] == fault["detail"]


def test_a_scheme_that_an_algorithm_does_not_take_is_no_slip(reader: TestClient) -> None:
    answer = reader.post("/v1/calibrate", json=CALIBRATION | {"sampling": "with_replacement"})
    assert answer.json()["code"] == "unsupported_sampling"
    assert "without_replacement" in answer.json()["detail"]
    assert "Did you mean" not in answer.json()["detail"]


def test_an_unknown_algorithm_is_told_with_the_one_that_was_meant(reader: TestClient) -> None:
    answer = reader.get("/v1/algorithms/dp_sdg")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "There is no algorithm with the id 'dp_sdg'. Did you mean dp_sgd?"
    assert reader.get("/v1/algorithms/of_nobody").json()["detail"] == "There is no algorithm with the id 'of_nobody'."


def test_only_fields_of_the_alternative_that_was_chosen_are_known() -> None:
    assert names_at(AccountRequest, ["events", 0, "mechanism", "gaussian"]) == {"kind", "noise_multiplier"}
    assert "scale" not in names_at(AccountRequest, ["events", 0, "sampling", "poisson"])
    assert names_at(RunRequest, ["target", "zcdp"]) == {"kind", "rho"}


class Inmost(BaseModel):
    depth: int


def test_what_is_read_inside_a_body_is_told_by_its_place_in_it() -> None:
    class Inner(BaseModel):
        model_config = ConfigDict(extra="forbid")
        colour: str = ""
        metadata: Inmost | None = None

    value = {"color": "red"}
    with pytest.raises(ValidationError) as raised:
        Inner.model_validate(value)
    [fault] = from_model(raised.value, Inner, {"metadata": value}, "metadata").errors
    assert fault.pointer == "/metadata/color"
    assert fault.detail == "There is no field of this name here. Did you mean colour?"


@pytest.mark.parametrize("name", ["x" * 10_000, "x" * 65, "", "e"])
def test_no_name_is_guessed_from_what_is_nobodys_slip(name: str) -> None:
    assert nearest(name, ["epsilon", "delta"]) is None


def test_a_very_long_name_is_not_compared_with_any() -> None:
    assert nearest("n" * 64, ["n" * 66]) is not None
    assert nearest("n" * 65, ["n" * 66]) is None


def test_a_name_that_is_known_is_not_what_was_meant() -> None:
    assert hint("delta", ["delta"]) == ""
    assert "Did you mean" not in hint("delta", ["delta", "rho"])
