"""`/v1/budgets`: what a budget is made of, and how its amounts are told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.budgets.conftest import Api, gaussian, laplace, made, zcdp
from tests.app.problem_assertions import assert_problem


def _request(**fields: Any) -> dict[str, Any]:
    return {
        "name": "survey",
        "neighboring_relation": "add_or_remove_one",
        "filter": {"kind": "zcdp", "rho": 1},
        **fields,
    }


def test_a_new_budget_has_nothing_spent(api: Api) -> None:
    response = api.post("/v1/budgets", _request(labels={"team": "health"}, report_delta=1e-5))
    body = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/v1/budgets/{body['id']}"
    assert body["id"].startswith("bud_")
    assert body["filter"] == {"kind": "zcdp", "rho": 1.0}
    nothing = {"rho": 0.0}
    assert body["rho"] == {"limit": 1.0, "spent": 0.0, "reserved": 0.0, "started": 0.0, "left": 1.0}
    assert body["share"] == {"used": 0.0, "spent": 0.0, "started": 0.0, "pending": 0.0}
    assert body["amounts"] == {
        "limit": {"rho": 1.0},
        "spent": nothing,
        "reserved": nothing,
        "started": nothing,
        "remaining": {"rho": 1.0},
    }
    assert body["privacy_unit"] == "record"
    assert body["labels"] == {"team": "health"}
    assert body["report_delta"] == 1e-5
    assert body["created_at"] == "2026-05-01T00:00:00Z"
    assert (body["overdue"], body["overdrawn"]) == (0, False)
    assert (body["parent_id"], body["path"]) == (None, [body["id"]])
    assert (body["epsilon"], body["mu"], body["report"]) == (None, None, None)
    with_report = api.read(body["id"])
    report = with_report.pop("report")
    assert report["epsilon"] == {"lower": 0, "estimate": 0, "upper": 0}
    assert report["left"] > 1
    assert with_report == {name: value for name, value in body.items() if name in with_report}


def test_amounts_after_reserve_and_commit(api: Api) -> None:
    budget = api.budget({"kind": "pure_dp", "epsilon": 1})
    event = {"mechanism": {"kind": "pure_dp", "epsilon": 0.1}, "count": 4}
    held = api.hold(budget["id"], [event])
    assert held["cost"] == {"epsilon": 0.4}
    assert held["remaining"] == {"epsilon": 0.6}
    use = {"delta": 0.0, "limit": 1.0, "spent": 0.0, "reserved": 0.4, "started": 0.0, "left": 0.6}
    assert api.read(budget["id"])["epsilon"] == use
    api.post(f"/v1/reservations/{held['id']}/commit")
    body = api.read(budget["id"])
    assert body["epsilon"] == use | {"spent": 0.4, "reserved": 0.0}
    assert body["amounts"]["remaining"] == {"epsilon": 0.6}


def test_epsilon_and_delta_alone_open_a_budget_that_charges_near_the_tight_epsilon(api: Api) -> None:
    budget = api.budget({"epsilon": 1.6, "delta": 1e-5})
    assert budget["filter"]["kind"] == "approximate_gaussian_dp"
    assert budget["amounts"]["spent"] == {"epsilon": 0, "mu_squared": 0, "failure_delta": 0, "pure_epsilon": 0}
    training = {"mechanism": {"kind": "gaussian", "noise_multiplier": 4.0}, "count": 600}
    sampled = training | {"sampling": {"kind": "poisson", "sampling_probability": 0.05}}
    tight = api.post("/v1/account", {"events": [sampled], "neighboring_relation": "add_or_remove_one", "delta": 1e-5})
    held = api.hold(budget["id"], [sampled])
    epsilon = made(tight)["epsilon"]["upper"]
    assert epsilon < held["cost"]["epsilon"] < 1.01 * epsilon
    assert held["cost"]["pure_epsilon"] is None
    assert api.get(f"/v1/budgets/{budget['id']}").json()["amounts"]["limit"]["epsilon"] == pytest.approx(1.6, abs=1e-8)
    # The sum of pure epsilons is within epsilon, whatever the Gaussian limit says.
    other = api.budget({"epsilon": 1.6, "delta": 1e-5})
    for _ in range(2):
        api.spend(other["id"], [laplace(1.25)])
    spent = api.get(f"/v1/budgets/{other['id']}").json()
    assert spent["amounts"]["spent"]["epsilon"] == spent["amounts"]["spent"]["pure_epsilon"] == 1.6
    assert spent["amounts"]["spent"]["mu_squared"] > spent["amounts"]["limit"]["mu_squared"]
    assert_problem(api.reserve(other["id"], [laplace(1e6)]), 409, "budget_exceeded")


def test_a_dry_run_explains_its_price(api: Api) -> None:
    """Beside the tight number, in budgets of other kinds, and in parts; also where it does not fit."""
    budget = api.budget({"epsilon": 1.6, "delta": 1e-5})
    plan = gaussian(4.0, 600, sampling_probability=0.05)

    def dry_run(where: dict[str, Any], event: dict[str, Any]) -> Any:
        asked = {"events": [event], "purpose": "mean"}
        return api.post(f"/v1/budgets/{where['id']}/reservations", asked, dry_run="true")

    asked = dry_run(budget, plan)
    price = made(asked)["price"]
    tight = price["tight"]["upper"]
    assert price["delta"] == 1e-5
    assert tight < price["charged"] < 1.01 * tight
    assert price["charged"] == pytest.approx(made(asked)["cost"]["epsilon"], abs=1e-9)
    assert price["kinds"]["renyi_dp"] > 1.2 * tight
    assert price["kinds"]["pure_dp"] is None
    assert price["kinds"]["approximate_gaussian_dp"] == price["charged"]
    in_parts = [part["epsilon"] for part in price["in_parts"]]
    assert [part["parts"] for part in price["in_parts"]] == [2, 4, 12]
    assert price["charged"] < in_parts[0] < in_parts[1] < in_parts[2] < 1.2 * tight
    denied = assert_problem(dry_run(budget, plan | {"count": 6000}), 409, "budget_exceeded")
    assert denied["price"]["charged"] > 1.6
    rho = api.budget({"kind": "zcdp", "rho": 1.0})
    assert made(dry_run(rho, gaussian(4.0)))["price"] is None, "nothing has a delta"


def test_a_renyi_filter_tells_every_order(api: Api) -> None:
    budget = api.budget({"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5})
    orders = budget["filter"]["orders"]
    assert len(orders) == len(set(orders)) == 16
    assert budget["amounts"]["spent"]["epsilon"] == 0
    assert budget["amounts"]["spent"]["epsilons"] == [0] * 16
    held = api.hold(budget["id"], [gaussian(10.0, count=2)])
    body = api.get(f"/v1/budgets/{budget['id']}").json()
    assert body["amounts"]["reserved"]["orders"] == orders
    # order / (2 s^2) per step, rounded up to nano-units.
    for order, epsilon in zip(orders, body["amounts"]["reserved"]["epsilons"], strict=True):
        assert order / 100 <= epsilon <= order / 100 + 2e-9
    assert 0 < held["cost"]["epsilon"] < 1.6
    assert body["amounts"]["limit"]["epsilon"] == pytest.approx(1.6, abs=1e-8)


def test_orders_may_be_given(api: Api) -> None:
    budget = api.budget({"kind": "renyi_dp", "epsilon": 4, "delta": "1e-5", "orders": [8, 16.0, 32.5]})
    assert budget["filter"]["orders"] == [8.0, 16.0, 32.5]


def test_a_limit_is_an_exact_decimal_rounded_down_to_nano_units(api: Api) -> None:
    for limit in ("0.1", 0.1, "0.1000000009", 0.1000000009, "1e-1", "0.1000000009999999999999999999999999999999"):
        budget = api.budget({"kind": "zcdp", "rho": limit})
        assert budget["amounts"]["limit"] == {"rho": 0.1}, limit
        assert api.reserve(budget["id"], [zcdp(1e-9, count=10**8)]).status_code == 201
        assert_problem(api.reserve(budget["id"], [zcdp(1e-9)]), 409, "budget_exceeded")


@pytest.mark.parametrize("limit", ["0.99999999999999999999999999999999999", "0.999999999999", 0.9999999999999999])
def test_a_limit_just_below_a_number_is_not_that_number(api: Api, limit: Any) -> None:
    assert api.budget({"kind": "zcdp", "rho": limit})["amounts"]["limit"] == {"rho": 0.999999999}


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"filter": {"kind": "gaussian"}}, "/filter/kind"),
    ({"filter": {"kind": "approximate_dp", "epsilon": 1}}, "/filter/delta"),
    ({"filter": {"kind": "approximate_dp", "epsilon": 1, "delta": 0}}, "/filter/delta"),
    ({"filter": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-19}}, "/filter/delta"),
    ({"filter": {"kind": "approximate_dp", "epsilon": 1, "delta": 0.6}}, "/filter/delta"),
    ({"filter": {"kind": "gaussian_dp", "mu": 1001}}, "/filter/mu"),
    ({"filter": {"kind": "gaussian_dp", "mu": 1e-5}}, "/filter/mu"),
    ({"filter": {"kind": "gaussian_dp", "rho": 1}}, "/filter/rho"),
    ({"parent_id": "bud_1"}, "/parent_id"),
    ({"parent_id": 7}, "/parent_id"),
    ({"filter": {"kind": "zcdp", "rho": 0}}, "/filter/rho"),
    ({"filter": {"kind": "zcdp", "rho": -1}}, "/filter/rho"),
    ({"filter": {"kind": "zcdp", "rho": 1000001}}, "/filter/rho"),
    ({"filter": {"kind": "zcdp", "rho": True}}, "/filter/rho"),
    ({"filter": {"kind": "zcdp", "rho": "one"}}, "/filter/rho"),
    ({"filter": {"kind": "zcdp", "rho": "NaN"}}, "/filter/rho"),
    ({"filter": {"kind": "zcdp", "rho": None}}, "/filter/rho"),
    ({"filter": {"kind": "zcdp", "epsilon": 1}}, "/filter/epsilon"),
    ({"filter": {"kind": "renyi_dp", "epsilon": 1, "delta": 0}}, "/filter/delta"),
    ({"filter": {"kind": "renyi_dp", "epsilon": 1, "delta": 1e-5, "orders": []}}, "/filter/orders"),
    ({"filter": {"kind": "renyi_dp", "epsilon": 1, "delta": 1e-5, "orders": [1]}}, "/filter/orders/0"),
    ({"filter": {"kind": "renyi_dp", "epsilon": 1, "delta": 1e-5, "orders": [2.0] * 65}}, "/filter/orders"),
    ({"filter": []}, "/filter"),
    ({"neighboring_relation": "substitute"}, "/neighboring_relation"),
    ({"name": ""}, "/name"),
    ({"name": "x" * 201}, "/name"),
    ({"name": "a\u0000b"}, "/name"),
    ({"privacy_unit": ""}, "/privacy_unit"),
    ({"labels": {f"l{i}": "" for i in range(33)}}, "/labels"),
    ({"report_delta": 0}, "/report_delta"),
    ({"report_delta": "0.1"}, "/report_delta"),
    ({"color": "red"}, "/color"),
]


def test_a_budget_that_cannot_be_made_is_refused_where_it_is_wrong(api: Api) -> None:
    for fields, pointer in MALFORMED:
        response = api.post("/v1/budgets", _request(**fields))
        assert response.status_code == 422, fields
        assert_problem(response, 422, response.json()["code"], pointer)
    assert api.get("/v1/budgets").json() == {"items": [], "next_cursor": None}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("amount", "code"),
    [
        (True, "wrong_type"),
        (None, "wrong_type"),
        ([1], "wrong_type"),
        ({}, "wrong_type"),
        ("abc", "wrong_form"),
        ("", "wrong_form"),
        ("-1", "wrong_form"),
        ("1" * 61, "wrong_form"),
        (0, "out_of_range"),
        ("0", "out_of_range"),
    ],
)
def test_an_amount_that_is_none_is_told_what_would_be_one(api: Api, amount: Any, code: str) -> None:
    response = api.post("/v1/budgets", _request(filter={"kind": "zcdp", "rho": amount}))
    problem = assert_problem(response, 422, "invalid_request", "/filter/rho", code)
    if code != "out_of_range":
        assert problem["detail"] == 'Input should be a number, or a decimal string such as "0.25".'


def test_a_query_parameter_that_the_call_does_not_take_is_refused(api: Api) -> None:
    budget_id = api.budget()["id"]
    for path in (f"/v1/budgets/{budget_id}", "/v1/budgets", f"/v1/budgets/{budget_id}/entries"):
        problem = assert_problem(api.get(path, status="x"), 422, "invalid_request", "/query/status", "unknown_field")
        assert len(problem["errors"]) == 1
        assert api.get(path).status_code == 200
    path = f"/v1/budgets/{budget_id}/reservations"
    request = {"events": [zcdp(0.1)], "purpose": "p"}
    assert_problem(api.post(path, request, dryrun="true"), 422, "invalid_request", "/query/dryrun", "unknown_field")
    assert api.post(path, request, dry_run="true").status_code == 201
    assert api.get(path, limit="2").json()["items"] == []


def test_a_renyi_filter_without_room_at_any_order_is_refused(api: Api) -> None:
    response = api.post("/v1/budgets", _request(filter={"epsilon": 0.01, "delta": 1e-5, "orders": [2, 3]}))
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["pointer"].startswith("/filter")


def test_an_unknown_budget_is_404(api: Api) -> None:
    for path in ("", "/reservations", "/entries"):
        assert_problem(api.get(f"/v1/budgets/bud_nope{path}"), 404, "not_found")
    assert_problem(api.reserve("bud_nope", [zcdp(0.1)]), 404, "not_found")


def test_budgets_are_listed_newest_first_in_pages(api: Api, clock: Any) -> None:
    made = []
    for number in range(5):
        made.append(api.budget(name=f"b{number}")["id"])
        clock.advance(number % 2)  # two of them in one second, too
    seen, cursor = [], None
    while True:
        page = api.get("/v1/budgets", limit=2, **({} if cursor is None else {"cursor": cursor})).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(made)
    assert seen[0] == made[4]
    assert set(seen[-2:]) == set(made[:2])


def test_a_foreign_cursor_is_refused(api: Api) -> None:
    for cursor in ("x", "WzFd", "W10", "bnVsbA", "WyIyMDI2LTA1LTAxIiwiYSJd", "é", "e30"):
        assert_problem(api.get("/v1/budgets", cursor=cursor), 422, "invalid_cursor", "/query/cursor")


def test_a_page_has_1_to_200_items(api: Api) -> None:
    for limit in ("0", "201", "x"):
        assert_problem(api.get("/v1/budgets", limit=limit), 422, "invalid_request", "/query/limit")
