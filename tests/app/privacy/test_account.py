"""`POST /v1/account`: intervals over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from app.privacy.account import ACCOUNT_EXAMPLES
from tests.app.problem_assertions import assert_problem


def gaussian(noise_multiplier: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"mechanism": {"kind": "gaussian", "noise_multiplier": noise_multiplier}} | more


POISSON = {"sampling": {"kind": "poisson", "sampling_probability": 0.01}, "count": 1000}


def account(reader, *events, **question):
    return reader.post("/v1/account", json={"events": list(events)} | question)


@pytest.mark.parametrize("name", ACCOUNT_EXAMPLES)
def test_every_example_runs_as_it_stands(reader, name):
    answer = reader.post("/v1/account", json=ACCOUNT_EXAMPLES[name]["value"])
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("relation", "truth"),
    [
        ("add_or_remove_one", 4.3771780956812246),
        ("replace_special", 4.3771780956812246),
        ("replace_one", 9.997256146434301),
    ],
)
def test_epsilon_of_one_gaussian_under_each_relation(reader, relation, truth):
    body = account(reader, gaussian(), delta=1e-5, neighboring_relation=relation).json()
    assert body["epsilon"]["lower"] <= truth <= body["epsilon"]["upper"]
    assert body["epsilon"]["upper"] - truth < 1e-9
    assert body["delta"] == 1e-5
    assert body["convention"]["neighboring_relation"] == relation
    assert body["method"]


def test_delta_at_epsilon_is_the_interval(reader):
    body = account(reader, gaussian(), epsilon=4.3771780956812246).json()
    assert body["epsilon"] == 4.3771780956812246
    assert body["delta"]["lower"] <= 1e-5 * (1 + 1e-9)
    assert body["delta"]["upper"] >= 1e-5 * (1 - 1e-9)


def test_a_list_of_deltas_gives_points_in_order(reader):
    body = account(reader, gaussian(), delta=[1e-3, 1e-5, 1e-7]).json()
    assert [point["delta"] for point in body["points"]] == [1e-3, 1e-5, 1e-7]
    uppers = [point["epsilon"]["upper"] for point in body["points"]]
    assert uppers == sorted(uppers)
    assert "epsilon" not in body


def test_poisson_under_each_relation_contains_an_independent_estimate(reader):
    body = account(reader, gaussian(4.0, **POISSON | {"count": 10000}), delta=1e-5).json()
    assert body["epsilon"]["lower"] <= 0.946868 <= body["epsilon"]["upper"] + 1e-6
    assert body["convention"]["sampling_probability"] == 0.01
    replace = account(reader, gaussian(4.0, **POISSON), delta=1e-5, neighboring_relation="replace_one").json()
    special = account(reader, gaussian(4.0, **POISSON), delta=1e-5, neighboring_relation="replace_special").json()
    assert replace["epsilon"]["upper"] > special["epsilon"]["upper"]


def test_no_finite_bound_is_null_and_said_in_words(reader):
    body = account(reader, gaussian(), delta=0).json()
    assert body["epsilon"]["upper"] is None
    assert body["warnings"]


def test_an_integer_noise_multiplier_means_the_same_as_the_float(reader):
    whole = account(reader, gaussian(1, **POISSON), delta=1e-5)
    assert whole.json() == account(reader, gaussian(1.0, **POISSON), delta=1e-5).json()


@pytest.mark.parametrize(("question", "code"), [({}, "missing"), ({"delta": 1e-5, "epsilon": 1.0}, "overdetermined")])
def test_exactly_one_of_delta_and_epsilon_is_asked_for(reader, question, code):
    assert_problem(account(reader, gaussian(), **question), 422, code, "/delta")


def test_an_event_without_a_proof_is_pointed_at(reader):
    laplace = {"mechanism": {"kind": "laplace", "noise_multiplier": 1.0}, **POISSON}
    problem = assert_problem(account(reader, gaussian(), laplace, delta=1e-5), 422, "unsupported_sampling")
    assert problem["errors"][0]["pointer"] == "/events/1/sampling/kind"
    assert "full_batch" in problem["detail"]


@pytest.mark.parametrize(
    ("event", "pointer"),
    [
        (gaussian(0), "/events/0/mechanism"),
        (gaussian(True), "/events/0/mechanism"),
        (gaussian(1.0, count=0), "/events/0/count"),
        (gaussian(1.0, count=10**8 + 1), "/events/0/count"),
        (gaussian(1.0, sampling={"kind": "poisson", "sampling_probability": 0}), "/events/0/sampling"),
        (gaussian(1.0, sampling={"kind": "shuffled_epochs", "steps_per_epoch": 10}), "/events/0/sampling"),
        ({"mechanism": {"kind": "magic"}}, "/events/0/mechanism"),
    ],
)
def test_a_malformed_event_is_pointed_at(reader, event, pointer):
    problem = assert_problem(account(reader, event, delta=1e-5), 422, "invalid_request")
    assert problem["errors"][0]["pointer"].startswith(pointer), problem


def test_a_list_of_events_is_bounded(reader):
    assert_problem(account(reader, *[gaussian()] * 1001, delta=1e-5), 422, "invalid_request")
    assert_problem(account(reader, delta=1e-5), 422, "invalid_request")
    assert account(reader, *[gaussian(100.0)] * 1000, delta=1e-5).status_code == 200


def test_a_request_that_would_keep_a_core_busy_for_minutes_is_refused(reader, monkeypatch):
    different = [gaussian(1.0 + i / 1000, **POISSON) for i in range(301)]
    assert_problem(account(reader, *different, delta=1e-5), 422, "too_much_work", "/events")
    monkeypatch.setattr("app.privacy.service.MOST_SECONDS", 0)
    assert_problem(account(reader, gaussian(2.0, **POISSON), delta=[1e-5, 1e-6]), 422, "too_much_work", "/delta")
