"""`POST /v1/account`: intervals over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import norm

from accounting.second_opinion import Opinion
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit.process_pool import JobFailed
from app.main import create_app
from app.privacy.examples import ACCOUNT_EXAMPLES
from app.settings import Settings
from tests.app.problem_assertions import assert_problem
from tests.local_access import local_client


def gaussian(noise_multiplier: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"mechanism": {"kind": "gaussian", "noise_multiplier": noise_multiplier}} | more


POISSON = {"sampling": {"kind": "poisson", "sampling_probability": 0.01}, "count": 1000}


def account(reader, *events, **question):
    return reader.post("/v1/account", json={"events": list(events)} | question)


@pytest.mark.parametrize("name", ACCOUNT_EXAMPLES)
@pytest.mark.one_in(12)
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


def test_a_group_costs_what_its_records_do_together(reader):
    body = account(reader, gaussian(4.0), delta=1e-5, group_size=4).json()
    assert body["epsilon"]["upper"] == pytest.approx(4.3771780956812246)
    assert body["group_size"] == 4
    assert "group_size" not in account(reader, gaussian(), delta=1e-5).json()
    several = account(reader, gaussian(4.0), epsilon=[1.0, 2.0], group_size=2, curve={"points": 3})
    assert [point["epsilon"] for point in several.json()["points"]] == [1.0, 2.0]
    refused = account(reader, gaussian(), delta=1e-5, group_size=2, certify=True)
    assert_problem(refused, 422, "unsupported", "/certify")
    assert account(reader, gaussian(), delta=1e-5, group_size=1001).status_code == 422


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
    assert body["epsilon"]["lower"] <= 0.9468668008 <= body["epsilon"]["upper"] + 1e-9
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
    pure = {"mechanism": {"kind": "pure_dp", "epsilon": 1.0}, **POISSON}
    problem = assert_problem(account(reader, gaussian(), pure, delta=1e-5), 422, "unsupported_sampling")
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
        (gaussian(1.0, sampling={"kind": "shuffled"}), "/events/0/sampling"),
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
    assert account(reader, *different, delta=1e-5).status_code == 200
    monkeypatch.setattr("app.privacy.service.MOST_SECONDS", 0)
    assert_problem(account(reader, gaussian(2.0, **POISSON), delta=[1e-5, 1e-6]), 422, "too_much_work", "/delta")
    problem = assert_problem(account(reader, gaussian(2.0), epsilon=1, curve={"points": 9}), 422, "too_much_work")
    assert problem["errors"][0]["pointer"] in ("/epsilon", "/curve/points")


ALWAYS = {"convention", "warnings"}
ONE = ALWAYS | {"epsilon", "delta", "method", "error_budget"}


def test_what_is_not_asked_for_is_not_in_the_answer(reader):
    assert set(account(reader, gaussian(), delta=1e-5).json()) == ONE
    assert set(account(reader, gaussian(), delta=[1e-5]).json()) == ALWAYS | {"points"}
    answer = account(reader, gaussian(), delta=[1e-5], curve={"points": 3}, certify=True).json()
    assert set(answer) == ALWAYS | {"points", "curve"}
    assert set(answer["points"][0]) == {"epsilon", "delta", "method", "error_budget", "certification"}
    answer = account(reader, gaussian(), epsilon=1, curve={"points": 3}, certify=True).json()
    assert set(answer) == ONE | {"curve", "certification"}
    # Null is for quantities without a finite bound, and stays.
    assert account(reader, gaussian(), delta=0).json()["epsilon"] == {"lower": None, "estimate": None, "upper": None}


def test_a_curve_of_epsilon_over_delta_goes_through_what_was_asked(reader):
    body = account(reader, gaussian(), delta=1e-5, curve={"points": 7}).json()
    assert set(body["curve"]) == {"epsilon_over_delta", "trade_off"}
    points = body["curve"]["epsilon_over_delta"]
    assert [point["delta"] for point in points] == pytest.approx([10.0**-k for k in range(8, 1, -1)], rel=1e-12)
    assert points[3]["epsilon"]["upper"] == pytest.approx(body["epsilon"]["upper"], rel=1e-9)
    uppers = [point["epsilon"]["upper"] for point in points]
    assert uppers == sorted(uppers, reverse=True)


def test_a_curve_of_delta_over_epsilon_goes_through_what_was_asked(reader):
    body = account(reader, gaussian(), epsilon=2.0, curve={"points": 5}).json()
    assert set(body["curve"]) == {"delta_over_epsilon", "trade_off"}
    points = body["curve"]["delta_over_epsilon"]
    assert [point["epsilon"] for point in points] == [0, 1, 2, 3, 4]
    assert points[2]["delta"] == body["delta"]
    assert points[0]["delta"]["upper"] == pytest.approx(0.3829249225480262)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_trade_off_curve_contains_the_gaussians_own(reader, relation):
    body = account(reader, gaussian(2.0), delta=1e-5, neighboring_relation=relation, curve={"points": 60}).json()
    mu = 0.5 * body["convention"]["sensitivity"]
    assert len(body["curve"]["trade_off"]) == 60
    for point in body["curve"]["trade_off"]:
        truth = norm.cdf(norm.isf(point["false_positive_rate"]) - mu)
        rate = point["false_negative_rate"]
        assert rate["lower"] - 1e-13 <= truth <= rate["upper"] + 1e-13
        assert rate["upper"] - rate["lower"] < 5e-3


@pytest.mark.parametrize(
    ("question", "ends"),
    [
        ({"delta": [1e-4, 1e-8]}, (1e-11, 0.1)),
        ({"delta": 0.3}, (3e-4, 0.5)),
        ({"delta": 1e-29}, (1e-30, 1e-26)),
        ({"delta": 0}, (1e-12, 1e-2)),
        ({"epsilon": [1, 3]}, (0, 6)),
        ({"epsilon": 0}, (0, 1)),
    ],
)
def test_the_ends_of_a_curve(reader, question, ends):
    curve = account(reader, gaussian(), **question, curve={"points": 2}).json()["curve"]
    field = next(iter(question))
    points = curve["epsilon_over_delta" if field == "delta" else "delta_over_epsilon"]
    assert tuple(point[field] for point in points) == pytest.approx(ends, rel=1e-12)


def test_the_points_of_a_curve_are_bounded(reader):
    for points in (1, 1001, 2.5, "3"):
        assert_problem(
            account(reader, gaussian(), delta=1e-5, curve={"points": points}), 422, "invalid_request", "/curve/points"
        )
    assert_problem(account(reader, gaussian(), delta=1e-5, curve={"steps": 3}), 422, "invalid_request", "/curve/steps")
    for field in ("delta", "epsilon"):
        assert_problem(account(reader, gaussian(), **{field: [0.5] * 1001}), 422, "invalid_request", f"/{field}")
    assert len(account(reader, gaussian(), epsilon=[0.5] * 1000).json()["points"]) == 1000
    curve = account(reader, gaussian(), epsilon=0.5, curve={"points": 1000}).json()["curve"]
    assert len(curve["delta_over_epsilon"]) == len(curve["trade_off"]) == 1000


def test_curves_of_pure_dp_reach_zero(reader):
    laplace = {"mechanism": {"kind": "laplace", "noise_multiplier": 1.0}}
    curve = account(reader, laplace, epsilon=2, curve={"points": 3}).json()["curve"]
    assert [point["delta"]["upper"] for point in curve["delta_over_epsilon"]][1:] == [0.0, 0.0]
    middle = curve["trade_off"][1]
    assert middle["false_positive_rate"] == pytest.approx(0.5)
    rate = middle["false_negative_rate"]
    assert rate["lower"] <= 0.18393972058572117 <= rate["upper"]


def test_what_a_sampling_scheme_is_charged_as_is_said(reader):
    shuffled = gaussian(0.5, count=1000, sampling={"kind": "shuffled_epochs", "steps_per_epoch": 1000})
    for question in ({"delta": 1e-6}, {"delta": [1e-6, 1e-7]}, {"epsilon": 3.0}):
        body = account(reader, shuffled, **question, neighboring_relation="replace_special").json()
        assert len([words for words in body["warnings"] if "not valid" in words]) == 1
    assert account(reader, gaussian(), delta=1e-6).json()["warnings"] == []


def test_a_curve_of_sampled_steps_is_certified_too(reader):
    body = account(reader, gaussian(2.0, **POISSON | {"count": 1}), epsilon=0.1, curve={"points": 9}).json()
    rates = [point["false_negative_rate"] for point in body["curve"]["trade_off"]]
    assert all(rate["upper"] - rate["lower"] < 1e-3 for rate in rates)


def test_a_certification_stands_beside_the_interval(reader):
    body = account(reader, gaussian(1.0, **POISSON), delta=1e-5, certify=True).json()
    found = body["certification"]
    assert found["engine"].startswith("dp-accounting ")
    assert found["epsilon"] == pytest.approx(body["epsilon"]["upper"], rel=1e-3)
    assert found["agrees"] is True
    assert found["position"] in ("within", "above")
    assert 0 < found["rounding_allowance"] < found["discretization_allowance"] < 1e-2
    assert found["value_discretization_interval"] > 0
    assert "delta" not in found
    assert body["epsilon"] == account(reader, gaussian(1.0, **POISSON), delta=1e-5).json()["epsilon"]
    assert "certification" not in account(reader, gaussian(), delta=1e-5, certify=False).json()


def test_each_point_of_a_list_is_certified(reader):
    points = account(reader, gaussian(), epsilon=[1, 4], certify=True, neighboring_relation="replace_one").json()[
        "points"
    ]
    for point in points:
        assert point["certification"]["agrees"] is True
        assert point["certification"]["delta"] == pytest.approx(point["delta"]["upper"], rel=1e-2)
        assert "epsilon" not in point["certification"]


@pytest.mark.parametrize(
    ("event", "question", "words"),
    [
        ({"mechanism": {"kind": "zcdp", "rho": 0.1}}, {"delta": 1e-5}, "zcdp"),
        (gaussian(1.0, **POISSON | {"count": 10**6}), {"epsilon": 100}, "200000 steps"),
        (gaussian(1.0, **POISSON), {"delta": 1e-18}, "finds no finite epsilon"),
        (gaussian(), {"delta": 1e-13}, "does not resolve"),
    ],
)
def test_where_there_is_no_second_opinion_the_note_says_why(reader, event, question, words):
    answer = account(reader, event, **question, certify=True)
    assert answer.status_code == 200
    found = answer.json()["certification"]
    assert found["agrees"] is None
    assert words in found["note"]


@pytest.mark.parametrize("failure", [JobFailed("it took longer than 20 s"), JobFailed("it needed more"), KeyError("x")])
def test_a_failure_of_the_second_opinion_leaves_the_answer(reader, monkeypatch, failure):
    def fail(*_):
        raise failure

    monkeypatch.setattr(reader.app.state.context.processes, "run", fail)
    body = account(reader, gaussian(), delta=1e-5, certify=True).json()
    assert body["epsilon"]["upper"] == pytest.approx(4.377178095681137)
    assert body["certification"]["agrees"] is None
    said = str(failure) if isinstance(failure, JobFailed) else "KeyError"
    assert said in body["certification"]["note"]
    assert "interval stands" in body["certification"]["note"]


def test_a_second_opinion_that_contradicts_is_said(reader, monkeypatch):
    monkeypatch.setattr(reader.app.state.context.processes, "run", lambda *_: [Opinion(1.0, 1e-6, 1e-4)])
    found = account(reader, gaussian(), delta=1e-5, certify=True).json()["certification"]
    assert (found["agrees"], found["position"]) == (False, "below")
    assert "one of the two accounts is wrong" in found["note"]


ALLOCATION = gaussian(sampling={"kind": "random_allocation", "num_bins": 7, "participations": 1}, count=7)


@pytest.mark.parametrize(("event", "more"), [(ALLOCATION, {}), (gaussian(), {"group_size": 2})])
@pytest.mark.parametrize(("field", "value"), [("delta", 1e-5), ("epsilon", 1.0)])
@pytest.mark.one_in(4)
def test_what_may_take_minutes_is_given_up_in_time(reader, monkeypatch, event, more, field, value):
    monkeypatch.setattr(reader.app.state.context.processes, "seconds", 0.0)
    problem = assert_problem(account(reader, event, **{field: value}, **more), 422, "too_much_work", f"/{field}")
    assert "longer than 0 s" in problem["detail"]
    assert account(reader, gaussian(), **{field: value}).status_code == 200, "a closed form needs no process"


def test_the_processes_end_with_the_application(tmp_path, sqlite_databases):
    database = Database(sqlite_databases.migrated())
    context = fenced_context(Settings(data_dir=tmp_path, workers=0), database)
    with local_client(create_app(context)) as client:
        assert account(client, gaussian(), delta=1e-5, certify=True).json()["certification"]["agrees"] is True
        worker = context.processes.run(os.getpid)
        assert Path(f"/proc/{worker}").exists()
    assert not Path(f"/proc/{worker}").exists()
    with pytest.raises(JobFailed, match="stopping"):
        context.processes.run(os.getpid)
    database.dispose()


def test_an_effort_is_kept_and_told(reader):
    few = {"events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 0.5}, "count": 1000}], "delta": 1e-7}
    few["events"][0]["sampling"] = {"kind": "poisson", "sampling_probability": 1e-6}
    wide = reader.post("/v1/account", json=few | {"effort": 2_000_000}).json()
    tight = reader.post("/v1/account", json=few).json()
    assert wide["epsilon"]["lower"] <= tight["epsilon"]["lower"] <= tight["epsilon"]["upper"] < wide["epsilon"]["upper"]
    assert any("limit of 2000000 operations" in warning for warning in wide["warnings"])
    assert_problem(reader.post("/v1/account", json=few | {"effort": 10}), 422, "invalid_request")
