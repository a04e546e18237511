"""What may take long is never begun in a thread of the server: with no time for processes it is refused at once.

Each request here was found by a search for valid requests that take longest: tens of seconds, or for ever, in a thread.
"""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from accounting.accountant import MAX_EPSILON
from tests.app.problem_assertions import assert_problem


def event(mechanism: dict[str, Any], sampling: dict[str, Any] | None = None, count: int = 1) -> dict[str, Any]:
    found = {"mechanism": mechanism, "count": count}
    return found if sampling is None else {**found, "sampling": sampling}


def gaussian(multiplier: float) -> dict[str, Any]:
    return {"kind": "gaussian", "noise_multiplier": multiplier}


def poisson(probability: float) -> dict[str, Any]:
    return {"kind": "poisson", "sampling_probability": probability}


LAPLACES = [event({"kind": "laplace", "noise_multiplier": 1 + k / 100}, count=1 + k) for k in range(200)]
SAMPLED = [event(gaussian(1 + k / 100), poisson(0.001 + k * 1e-5), 1 + k) for k in range(200)]
SHUFFLED = [
    event(gaussian(1 + k / 100), {"kind": "shuffled_epochs", "steps_per_epoch": 10 + k}, 10 + k) for k in range(200)
]
FIXED = [
    event(gaussian(1 + k / 100), {"kind": "without_replacement", "batch_size": 10 + k, "dataset_size": 10**5}, 1 + k)
    for k in range(200)
]
FULL = [event(gaussian(1 + k / 100), count=1 + k) for k in range(1000)]
ONE = event(gaussian(2.0))
ORDERS = [1.0001 * (1 + k * 0.37) ** 3 for k in range(60)]
CALIBRATION = {
    "algorithm": "dp_sgd",
    "dataset_size": 10**6,
    "iterations": 10**6,
    "batch_size": 1000,
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1.0, "delta": 1e-30},
}

WORST: dict[str, tuple[str, dict[str, Any]]] = {
    "laplace": ("account", {"events": LAPLACES, "delta": 1e-5}),
    "sampled": ("account", {"events": SAMPLED, "delta": 1e-5}),
    "fixed size": ("account", {"events": FIXED, "delta": 1e-5, "neighboring_relation": "replace_one"}),
    "shuffled": ("account", {"events": SHUFFLED, "epsilon": 1, "neighboring_relation": "replace_special"}),
    "many values": ("account", {"events": FULL, "delta": [1e-5 * (1 + k) for k in range(1000)]}),
    "a long curve": ("account", {"events": FULL, "delta": 1e-5, "curve": {"points": 1000}}),
    "attacks": ("account", {"events": [ONE], "delta": 1e-5, "group_size": 7, "attack_risk": {"fpr": [0.01]}}),
    "one mu": ("account", {"events": FULL[:2], "delta": 1e-5, "group_size": 1000, "gaussian_dp": {}}),
    "conversion": (
        "convert",
        {
            "from": {"kind": "renyi_dp", "orders": ORDERS, "epsilons": [0.1 * order for order in ORDERS]},
            "to": {"kind": "attack_risk", "prior": 1e-30},
        },
    ),
    "history": (
        "import",
        {
            "source": {
                "kind": "opacus",
                "mechanism": "prv",
                "history": [[1 + k / 100, 0.001 + k * 1e-5, 1 + k] for k in range(200)],
            },
            "delta": 1e-5,
        },
    ),
    "tuning": (
        "tuning-cost",
        {
            "events": [event(gaussian(1.0), {"kind": "random_allocation", "num_bins": 9, "participations": 1}, 9)],
            "distribution": {"kind": "geometric", "expected_trials": 20},
            "delta": 1e-6,
        },
    ),
    "one step": (
        "tuning-cost",
        {
            "events": [event({"kind": "laplace", "noise_multiplier": 1.0}, poisson(0.1))],
            "distribution": {"kind": "geometric", "expected_trials": 20},
            "delta": 1e-6,
        },
    ),
    "calibration": ("calibrate", {**CALIBRATION, "sampling": "poisson"}),
    "a large plan": (
        "calibrate",
        {**CALIBRATION, "sampling": "without_replacement", "neighboring_relation": "replace_one"},
    ),
    "advice": (
        "advise",
        {
            "dataset_size": 10**9,
            "dimension": 10**6,
            "problem": {"shape": "nonconvex"},
            "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-6},
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1},
            "batch_size": 1000,
            "iterations": 10**6,
        },
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_requests_are_no_work_of_the_server(reader: TestClient, monkeypatch: Any, name: str) -> None:
    call, body = WORST[name]
    monkeypatch.setattr(reader.app.state.context.processes, "seconds", 0.0)  # type: ignore[attr-defined]
    answer = reader.post(f"/v1/{call}", json=body)
    problem = assert_problem(answer, 422, "too_much_work")
    assert "longer than 0 s" in problem["detail"]


@pytest.mark.parametrize("sampling", ["poisson", "full_batch"])
def test_long_sweeps_are_no_work_of_the_server(reader: TestClient, monkeypatch: Any, sampling: str) -> None:
    monkeypatch.setattr(reader.app.state.context.processes, "seconds", 1e-9)  # type: ignore[attr-defined]
    sizes = {"batch_size": 1000} if sampling == "poisson" else {}
    spec = {key: value for key, value in CALIBRATION.items() if key != "batch_size"} | sizes
    body = {**spec, "sampling": sampling, "iterations": list(range(1, 33))}
    rows = reader.post("/v1/sweep", json=body).json()["rows"]
    assert {row["problem"]["code"] for row in rows} == {"too_much_work"}


def test_a_request_that_waited_has_no_more_time_than_another(reader: TestClient, monkeypatch: Any) -> None:
    monkeypatch.setattr("app.privacy.service.MOST_SECONDS", -1.0)
    body = {"events": SAMPLED[:1], "delta": 1e-5}
    assert_problem(reader.post("/v1/account", json=body), 422, "too_much_work", "/delta")


def test_attacks_on_a_group_are_on_the_group(reader: TestClient) -> None:
    """For k records of full-batch Gaussians with mu, the group's mu is k times as large."""
    wanted = {"attack_risk": {"fpr": [0.01]}, "gaussian_dp": {"regret": 0.01}}
    group = reader.post(
        "/v1/account", json={"events": [event(gaussian(8.0))], "delta": 1e-5, "group_size": 4, **wanted}
    )
    alone = reader.post("/v1/account", json={"events": [event(gaussian(2.0))], "delta": 1e-5, **wanted})
    of_group, of_one = group.json(), alone.json()
    [rate], [expected] = (each["attack_risk"]["true_positive_rates"] for each in (of_group, of_one))
    assert rate["tpr"]["upper"] >= expected["tpr"]["upper"] * (1 - 1e-9)
    assert rate["tpr"]["upper"] == pytest.approx(expected["tpr"]["upper"], rel=1e-3)
    assert rate["tpr"]["lower"] <= expected["tpr"]["upper"]
    closest = of_group["gaussian_dp"]["closest"]
    assert abs(closest["mu"] - 0.5) < 0.05
    assert of_group["epsilon"]["upper"] < MAX_EPSILON
