"""`"certificate": true` in `POST /v1/calibrate`: what a plan achieves, verified, in the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from epsilond_verifier import check

from tests.app.problem_assertions import assert_problem

REQUEST: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 50_000,
    "batch_size": 500,
    "iterations": 1000,
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 2.0, "delta": 1e-5},
    "certificate": True,
}


def calibrate(reader: Any, **changes: Any) -> Any:
    body = {name: value for name, value in (REQUEST | changes).items() if value is not None}
    return reader.post("/v1/calibrate", json=body)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sampling": "full_batch", "batch_size": None},
        {
            "solve_for": "epsilon",
            "noise_multiplier": 1.0,
            "target": {"kind": "approximate_dp", "delta": 1e-5},
        },
        {
            "solve_for": "delta",
            "noise_multiplier": 1.0,
            "target": {"kind": "approximate_dp", "epsilon": 2.0},
        },
    ],
    ids=["noise", "full_batch", "epsilon", "delta"],
)
def test_what_a_plan_achieves_is_certified_at_both_ends(reader: Any, changes: dict[str, Any]) -> None:
    body = calibrate(reader, **changes).json()
    found = body["certificates"]
    wanted = "delta" if changes.get("solve_for") == "delta" else "epsilon"
    for end in ("upper", "lower"):
        certificate = found[end]
        assert certificate[wanted] == body["achieved"][wanted][end]
        assert check(certificate["certificate"].encode()).verdict == "verified"
        statement = json.loads(certificate["certificate"])["statement"]
        stated = [float(event["mechanism"]["noise_multiplier"]) for event in statement["events"]]
        assert stated == [event["mechanism"]["noise_multiplier"] for event in body["events"]]


def test_nothing_is_certified_unless_it_is_asked_for(reader: Any) -> None:
    assert "certificates" not in calibrate(reader, certificate=False).json()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"kind": "zcdp", "rho": 0.1}, "zcdp"),
        ({"kind": "gaussian_dp", "mu": 0.5}, "gaussian_dp"),
    ],
    ids=["zcdp", "gaussian_dp"],
)
def test_targets_that_have_no_certificate_are_refused_before_anything_is_solved(
    reader: Any, target: Any, said: str
) -> None:
    problem = assert_problem(calibrate(reader, target=target), 422, "unsupported", "/certificate")
    assert f"instead of {said}," in problem["detail"]


def test_what_is_achieved_for_groups_is_certified(reader: Any) -> None:
    target = {"kind": "approximate_dp", "epsilon": 6.0, "delta": 1e-5, "group_size": 2}
    body = calibrate(reader, target=target).json()
    statement = json.loads(body["certificates"]["upper"]["certificate"])["statement"]
    assert statement["group_size"] == "2"
    assert float(statement["epsilon"]) == body["achieved"]["epsilon"]["upper"] <= 6.0


def test_a_sweep_has_none(reader: Any) -> None:
    response = reader.post("/v1/sweep", json=REQUEST | {"iterations": [10, 20]})
    assert_problem(response, 422, "unsupported", "/certificate")
