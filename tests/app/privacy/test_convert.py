"""`POST /v1/convert`: one guarantee in, another one out."""

from __future__ import annotations

from typing import Any

import pytest

from app.privacy.convert import CONVERT_EXAMPLES
from tests.app.problem_assertions import assert_problem

ZCDP = {"kind": "zcdp", "rho": 0.5}
AT_DELTA = {"kind": "approximate_dp", "delta": 1e-5}


def convert(reader, stated: Any, to: Any):
    return reader.post("/v1/convert", json={"from": stated, "to": to})


@pytest.mark.parametrize("name", CONVERT_EXAMPLES)
def test_every_example_runs_as_it_stands(reader, name):
    answer = reader.post("/v1/convert", json=CONVERT_EXAMPLES[name]["value"])
    assert answer.status_code == 200, answer.text
    assert answer.json()["source"]


def test_zcdp_to_approximate_dp_is_tight_with_the_textbook_forms_beside_it(reader):
    body = convert(reader, ZCDP, AT_DELTA).json()
    assert body["guarantee"] == {
        "kind": "approximate_dp",
        "epsilon": pytest.approx(4.728385649, abs=1e-8),
        "delta": 1e-5,
    }
    assert 4.377178 <= body["guarantee"]["epsilon"] <= 4.728386985
    assert body["tight"] is True
    epsilons = {item["method"]: item["guarantee"]["epsilon"] for item in body["alternatives"]}
    assert epsilons["canonne_kamath_steinke_2020_proposition_12"] == pytest.approx(4.7283869849, abs=1e-9)
    assert epsilons["bun_steinke_2016_proposition_1_3"] == pytest.approx(5.298526, abs=1e-6)


def test_published_numbers(reader):
    opendp = convert(reader, {"kind": "zcdp", "rho": 0.03125}, {"kind": "approximate_dp", "delta": 0.001}).json()
    assert 0.5 <= opendp["guarantee"]["epsilon"] <= 0.6880024556
    gaussian = convert(reader, {"kind": "gaussian_dp", "mu": 1.0}, {"kind": "attack_risk"}).json()
    assert gaussian["guarantee"] == {"kind": "attack_risk", "advantage": pytest.approx(0.3829249225480262, abs=1e-12)}
    known = convert(reader, {"kind": "gaussian_dp", "mu": 1}, AT_DELTA).json()
    assert known["guarantee"]["epsilon"] == pytest.approx(4.3771780957, abs=1e-9)


def test_attack_risk_in_its_three_forms(reader):
    pure = {"kind": "pure_dp", "epsilon": 1}
    at_fpr = convert(reader, pure, {"kind": "attack_risk", "fpr": 0.01}).json()["guarantee"]
    assert at_fpr == {"kind": "attack_risk", "fpr": 0.01, "tpr": pytest.approx(0.0271828182845904)}
    at_prior = convert(reader, pure, {"kind": "attack_risk", "prior": 0.5}).json()["guarantee"]
    assert at_prior == {"kind": "attack_risk", "prior": 0.5, "bayes_risk": pytest.approx(0.2689414213699951)}
    answer = convert(reader, pure, {"kind": "attack_risk", "prior": 0.5, "fpr": 0.01})
    assert_problem(answer, 422, "invalid_value", "/to/prior")


@pytest.mark.parametrize(
    ("stated", "to"),
    [
        ({"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5}, {"kind": "zcdp"}),
        ({"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5}, {"kind": "pure_dp"}),
        (ZCDP, {"kind": "pure_dp"}),
        (ZCDP, {"kind": "gaussian_dp"}),
        ({"kind": "renyi_dp", "orders": [2], "epsilons": [1]}, {"kind": "gaussian_dp"}),
        ({"kind": "gaussian_dp", "mu": 1}, {"kind": "pure_dp"}),
    ],
)
def test_a_direction_that_does_not_exist_is_refused_with_what_does(reader, stated, to):
    problem = assert_problem(convert(reader, stated, to), 422, "no_such_conversion", "/to/kind")
    assert "converts to" in problem["detail"]
    assert "attack_risk" in problem["detail"]


def test_an_impossible_delta_is_pointed_at(reader):
    stated = {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5}
    assert_problem(convert(reader, stated, {**AT_DELTA, "delta": 1e-6}), 422, "unreachable_target", "/to/delta")
    assert_problem(convert(reader, ZCDP, {**AT_DELTA, "delta": 0}), 422, "unreachable_target", "/to/delta")


@pytest.mark.parametrize(
    ("stated", "to", "pointer"),
    [
        ({"kind": "zcdp", "rho": -1}, AT_DELTA, "/from/rho"),
        ({"kind": "zcdp", "rho": 1e7}, AT_DELTA, "/from/rho"),
        ({"kind": "zcdp", "rho": True}, AT_DELTA, "/from/rho"),
        ({"kind": "zcdp", "rho": 1, "delta": 0}, AT_DELTA, "/from/delta"),
        ({"kind": "gaussian_dp"}, AT_DELTA, "/from/mu"),
        ({"kind": "gaussian_dp", "mu": 1e7}, AT_DELTA, "/from/mu"),
        ({"kind": "pure_dp", "epsilon": 1e7}, AT_DELTA, "/from/epsilon"),
        ({"kind": "approximate_dp", "epsilon": 1, "delta": 1.5}, AT_DELTA, "/from/delta"),
        ({"kind": "truncated_zcdp", "rho": 1, "omega": 1}, AT_DELTA, "/from/omega"),
        ({"kind": "renyi_dp", "orders": [1], "epsilons": [1]}, AT_DELTA, "/from/orders/0"),
        ({"kind": "renyi_dp", "orders": [2e7], "epsilons": [1]}, AT_DELTA, "/from/orders/0"),
        ({"kind": "renyi_dp", "orders": list(range(2, 67)), "epsilons": [1]}, AT_DELTA, "/from/orders"),
        ({"kind": "attack_risk", "advantage": 2}, AT_DELTA, "/from/advantage"),
        ({"kind": "magic"}, AT_DELTA, "/from/kind"),
        (ZCDP, {"kind": "approximate_dp"}, "/to/delta"),
        (ZCDP, {"kind": "approximate_dp", "delta": 2}, "/to/delta"),
        (ZCDP, {"kind": "zcdp", "delta": 0.1}, "/to/delta"),
        (ZCDP, {"kind": "renyi_dp", "orders": []}, "/to/orders"),
        (ZCDP, {"kind": "renyi_dp", "orders": [1.5] * 65}, "/to/orders"),
        (ZCDP, {"kind": "truncated_zcdp", "omega": 1e8}, "/to/omega"),
        (ZCDP, {"kind": "attack_risk", "fpr": -0.1}, "/to/fpr"),
        (ZCDP, {"kind": "attack_risk", "prior": 1.1}, "/to/prior"),
        (ZCDP, {}, "/to/kind"),
    ],
)
def test_a_malformed_request_is_pointed_at(reader, stated, to, pointer):
    assert_problem(convert(reader, stated, to), 422, "invalid_request", pointer)


@pytest.mark.parametrize(
    ("stated", "to", "pointer"),
    [
        ({"kind": "renyi_dp", "orders": [3, 2], "epsilons": [1, 1]}, AT_DELTA, "/from/orders/1"),
        ({"kind": "renyi_dp", "orders": [2, 3], "epsilons": [1]}, AT_DELTA, "/from/epsilons"),
        ({"kind": "attack_risk", "advantage": 0.1, "fpr": 0.1}, AT_DELTA, "/from"),
        (ZCDP, {"kind": "renyi_dp", "orders": [3, 3]}, "/to/orders/1"),
    ],
)
def test_numbers_that_contradict_each_other_are_pointed_at(reader, stated, to, pointer):
    assert_problem(convert(reader, stated, to), 422, "invalid_value", pointer)


def test_an_attack_risk_at_one_error_rate_is_not_converted(reader):
    stated = {"kind": "attack_risk", "fpr": 0.1, "tpr": 0.2}
    assert_problem(convert(reader, stated, AT_DELTA), 422, "no_such_conversion", "/from")
    advantage = convert(reader, {"kind": "attack_risk", "advantage": 0.1}, {**AT_DELTA, "delta": 0.1}).json()
    assert advantage["guarantee"] == {"kind": "approximate_dp", "epsilon": 0.0, "delta": 0.1}


def test_sixty_four_orders_are_converted(reader):
    orders = [1.5 + 0.5 * index for index in range(64)]
    stated = {"kind": "renyi_dp", "orders": orders, "epsilons": [0.1 * order for order in orders]}
    body = convert(reader, stated, AT_DELTA).json()
    zcdp = convert(reader, {"kind": "zcdp", "rho": 0.1}, AT_DELTA).json()
    assert 0 <= body["guarantee"]["epsilon"] - zcdp["guarantee"]["epsilon"] < 1e-3
    assert len(convert(reader, ZCDP, {"kind": "renyi_dp", "orders": orders}).json()["guarantee"]["orders"]) == 64
