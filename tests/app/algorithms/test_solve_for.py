"""`POST /v1/calibrate` for each unknown and each target: postconditions over HTTP, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.problem_assertions import assert_problem

#: Full batches are solved in closed form, so each request takes a millisecond.
FULL: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "iterations": 100,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 2.0},
    "noise_multiplier": 20.0,
    "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
}
#: One sampled step has a closed form, too.
ONE_STEP: dict[str, Any] = FULL | {"sampling": "poisson", "batch_size": 100, "iterations": 1, "noise_multiplier": 1.0}
TARGETS: dict[str, dict[str, Any]] = {
    "epsilon": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
    "rho": {"kind": "zcdp", "rho": 0.5},
    "mu": {"kind": "gaussian_dp", "mu": 0.8},
    "advantage": {"kind": "attack_risk", "advantage": 0.3},
    "tpr": {"kind": "attack_risk", "fpr": 0.01, "tpr": 0.05},
}


def ask(reader, base, **changes):
    body = {key: value for key, value in (base | changes).items() if value is not ...}
    return reader.post("/v1/calibrate", json=body)


def solved(reader, base, **changes):
    answer = ask(reader, base, **changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


def upper(achieved: Any) -> float:
    return achieved["upper"] if isinstance(achieved, dict) else achieved


@pytest.mark.parametrize("field", TARGETS)
def test_the_least_noise_for_each_target(reader, field):
    target = TARGETS[field]
    body = solved(reader, FULL, noise_multiplier=..., target=target)
    assert target[field] * (1 - 1e-7) <= upper(body["achieved"][field]) <= target[field]
    assert body["next"] is None
    assert (body["literal"] is None) == (target["kind"] != "approximate_dp")
    assert body["events"][0]["mechanism"]["noise_multiplier"] == body["solution"]["noise_multiplier"]


@pytest.mark.parametrize("field", TARGETS)
def test_the_most_iterations_for_each_target(reader, field):
    target = TARGETS[field]
    body = solved(reader, FULL, iterations=..., solve_for="iterations", target=target)
    count = body["solution"]["iterations"]
    assert body["events"][0]["count"] == count
    assert body["solution"]["epochs"] == count
    assert body["next"]["value"] == count + 1
    assert upper(body["achieved"][field]) <= target[field] < upper(body["next"]["achieved"][field])


@pytest.mark.parametrize("field", ["epsilon", "advantage", "tpr"])
def test_the_largest_batch_for_each_target_that_uses_sampling(reader, field):
    target = TARGETS[field] if field != "epsilon" else {"kind": "approximate_dp", "epsilon": 0.5, "delta": 1e-5}
    body = solved(reader, ONE_STEP, batch_size=..., solve_for="batch_size", target=target)
    size = body["solution"]["batch_size"]
    assert body["solution"]["sampling_probability"] == size / 1000
    assert body["events"][0]["sampling"] == {"kind": "poisson", "sampling_probability": size / 1000}
    assert body["plan"]["phases"][0]["divisor"] == size
    assert body["next"]["value"] == size + 1
    assert upper(body["achieved"][field]) <= target[field] < upper(body["next"]["achieved"][field])


def test_epsilon_and_delta_are_what_is_certified(reader):
    at_delta = {"kind": "approximate_dp", "delta": 1e-5}
    body = solved(reader, FULL, solve_for="epsilon", target=at_delta)
    account = {"events": body["events"], "neighboring_relation": "add_or_remove_one", "delta": 1e-5}
    certified = reader.post("/v1/account", json=account).json()["epsilon"]
    assert body["solution"] == {"epsilon": certified["upper"]}
    assert body["achieved"]["epsilon"] == certified
    assert body["achieved"]["delta"] == 1e-5
    at_epsilon = {"kind": "approximate_dp", "epsilon": 2.0}
    delta = solved(reader, FULL, solve_for="delta", target=at_epsilon)
    assert delta["solution"]["delta"] == delta["achieved"]["delta"]["upper"]
    assert delta["achieved"]["epsilon"] == 2.0


def test_a_solution_given_back_reproduces_the_plan(reader):
    noise = solved(reader, FULL, noise_multiplier=...)
    given = solved(
        reader,
        FULL,
        noise_multiplier=noise["solution"]["noise_multiplier"],
        solve_for="epsilon",
        target={"kind": "approximate_dp", "delta": 1e-5},
    )
    assert given["plan_hash"] == noise["plan_hash"]
    assert given["solution"]["epsilon"] <= 2


def test_a_target_that_sampling_does_not_lower_says_so(reader):
    body = solved(reader, ONE_STEP, noise_multiplier=..., target=TARGETS["rho"])
    assert body["solution"]["noise_multiplier"] == pytest.approx(1.0, rel=1e-8)
    assert any("Sampling does not lower rho" in warning for warning in body["warnings"])


def test_the_published_calibration_is_rounded_up(reader):
    vectors = json.loads((Path(__file__).parent / "published_calibrations.json").read_text())
    for vector in vectors:
        found = solved(reader, {}, **vector["body"])["solution"]["noise_multiplier"]
        assert vector["at_least"] <= found <= vector["at_most"], vector["source"]


AT_DELTA = {"kind": "approximate_dp", "delta": 1e-5}
AT_EPSILON = {"kind": "approximate_dp", "epsilon": 2}


@pytest.mark.parametrize(
    ("base", "changes", "code", "pointer"),
    [
        (FULL, {}, "overdetermined", "/noise_multiplier"),
        (FULL, {"solve_for": "iterations"}, "overdetermined", "/iterations"),
        (FULL, {"solve_for": "iterations", "iterations": ..., "epochs": 3}, "overdetermined", "/epochs"),
        (FULL, {"solve_for": "epsilon"}, "overdetermined", "/target/epsilon"),
        (FULL, {"solve_for": "delta"}, "overdetermined", "/target/delta"),
        (ONE_STEP, {"solve_for": "batch_size"}, "overdetermined", "/batch_size"),
        (FULL, {"solve_for": "iterations", "iterations": ..., "noise_multiplier": ...}, "missing", "/noise_multiplier"),
        (FULL, {"solve_for": "epsilon", "target": AT_DELTA, "noise_multiplier": ...}, "missing", "/noise_multiplier"),
        (FULL, {"solve_for": "epsilon", "target": AT_DELTA, "iterations": ...}, "missing", "/iterations"),
        (FULL, {"solve_for": "epsilon", "target": {"kind": "approximate_dp"}}, "missing", "/target/delta"),
        (FULL, {"solve_for": "delta", "target": {"kind": "approximate_dp"}}, "missing", "/target/epsilon"),
        (FULL, {"noise_multiplier": ..., "target": AT_DELTA}, "missing", "/target/epsilon"),
        (FULL, {"noise_multiplier": ..., "target": AT_EPSILON}, "missing", "/target/delta"),
        (ONE_STEP, {"solve_for": "iterations", "iterations": ..., "batch_size": ...}, "missing", "/batch_size"),
        (FULL, {"solve_for": "epsilon", "target": TARGETS["rho"]}, "unsupported", "/target/kind"),
        (FULL, {"solve_for": "delta", "target": TARGETS["tpr"]}, "unsupported", "/target/kind"),
        (FULL, {"solve_for": "epsilon", "target": {"kind": "budget", "budget_id": "bud_1"}}, "unknown_budget", None),
        (FULL, {"solve_for": "batch_size"}, "unsupported", "/solve_for"),
        (
            ONE_STEP,
            {"solve_for": "batch_size", "batch_size": ..., "iterations": ..., "epochs": 2},
            "unsupported",
            "/epochs",
        ),
        (
            ONE_STEP,
            {"solve_for": "batch_size", "batch_size": ..., "target": TARGETS["mu"]},
            "unsupported",
            "/solve_for",
        ),
        (FULL, {"noise_multiplier": ..., "target": {"kind": "attack_risk"}}, "missing", "/target/advantage"),
        (FULL, {"noise_multiplier": ..., "target": {"kind": "attack_risk", "fpr": 0.1}}, "missing", "/target/tpr"),
        (FULL, {"noise_multiplier": ..., "target": {"kind": "attack_risk", "tpr": 0.1}}, "missing", "/target/fpr"),
        (
            FULL,
            {"noise_multiplier": ..., "target": {"kind": "attack_risk", "advantage": 0.1, "fpr": 0.1}},
            "overdetermined",
            "/target/fpr",
        ),
        (
            FULL,
            {"noise_multiplier": ..., "target": {"kind": "attack_risk", "fpr": 0.1, "tpr": 0.1}},
            "invalid_value",
            "/target/tpr",
        ),
        (
            FULL,
            {"noise_multiplier": ..., "target": {"kind": "budget", "budget_id": "bud_1"}},
            "unknown_budget",
            "/target/budget_id",
        ),
        (FULL, {"noise_multiplier": ..., "budget_id": "bud_1"}, "unknown_budget", "/budget_id"),
        (
            FULL,
            {"noise_multiplier": ..., "budget_id": "bud_1", "target": {"kind": "budget", "budget_id": "bud_1"}},
            "overdetermined",
            "/budget_id",
        ),
        (FULL, {"solve_for": "iterations", "iterations": ..., "noise_multiplier": 1}, "unreachable_target", "/target"),
        (
            FULL,
            {"solve_for": "iterations", "iterations": ..., "noise_multiplier": 1e6},
            "unreachable_target",
            "/target",
        ),
    ],
)
def test_a_combination_without_an_answer_is_pointed_at(reader, base, changes, code, pointer):
    assert_problem(ask(reader, base, **changes), 422, code, pointer)
