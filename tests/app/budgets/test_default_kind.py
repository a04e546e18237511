"""What budgets of the default kind are used for, end to end: targets, histories of others, stated deltas, trees."""

from __future__ import annotations

from typing import Any

import pytest

from app.context import Context
from app.ledger.price_search import PriceSearch
from app.ledger.price_verification import PriceClass, PriceVerification
from app.ledger.verification import verify
from tests.app.budgets.conftest import Api, gaussian, made
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

DELTA = 1e-5
LIMIT = {"epsilon": 2, "delta": DELTA}
REQUEST: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "batch_size": 20,
    "iterations": 100,
    "sampling": "poisson",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
}


def calibrate(api: Api, budget: dict[str, Any], **changes: Any) -> Any:
    body = REQUEST | {"target": {"kind": "budget", "budget_id": budget["id"]}} | changes
    answer = api.client.post("/v1/calibrate", json={name: value for name, value in body.items() if value is not ...})
    assert answer.status_code == 200, answer.text
    return answer.json()


def check_prices(context: Context) -> None:
    """Every charge of the ledger is the price of its events."""
    charges = PriceVerification(PriceSearch(context.processes, at_once=2))
    with context.database.read() as session:
        verdict = verify(session, charges=charges)
    report = verdict.with_prices(charges).prices
    assert report is not None
    assert set(report.entries) - {each for each in PriceClass if not report.entries[each]} == {PriceClass.RIGHT}


@on_one_engine
@pytest.mark.one_in(1000)
@pytest.mark.parametrize("sampling", [{}, {"sampling": "full_batch", "batch_size": ...}], ids=["poisson", "full"])
@pytest.mark.parametrize("is_under_another", [False, True])
def test_a_calibration_fills_what_is_left_and_its_plan_is_admitted(
    api: Api, context: Context, sampling: dict[str, Any], is_under_another: bool
) -> None:
    budget = api.budget(LIMIT)
    if is_under_another:
        api.spend(api.child(budget, {"epsilon": 5, "delta": DELTA})["id"], [gaussian(4.69, 300, 0.05)])
        budget = api.child(budget, {"epsilon": 4, "delta": DELTA})
    else:
        api.spend(budget["id"], [gaussian(4.69, 300, 0.05)])
    body = calibrate(api, budget, **sampling)
    cost = body["cost_in_budget"]
    assert 0.99 <= body["achieved"]["share_of_remaining"] <= 1
    assert cost["fits"] is True
    assert 0.99 * cost["price"]["left"] < cost["price"]["adds"] <= cost["price"]["left"]
    assert cost["price"]["left"] == api.read(budget["id"])["epsilon"]["left"]
    held = api.hold(budget["id"], body["events"])
    assert held["cost"] == cost["cost"]
    made(api.resolve(held, "start"))
    made(api.resolve(held, "commit"))
    assert api.read(api.read(budget["id"])["path"][0])["share"]["used"] == pytest.approx(1.0, abs=0.01)
    assert_problem(api.reserve(budget["id"], [gaussian(4.69, 300, 0.05)]), 409, "budget_exceeded")
    check_prices(context)


@on_one_engine
@pytest.mark.parametrize("unknown", ["iterations", "batch_size"])
def test_a_whole_number_is_found_that_fits_and_the_next_does_not(api: Api, unknown: str) -> None:
    budget = api.budget(LIMIT)
    body = calibrate(api, budget, **{unknown: ...}, noise_multiplier=2.0, solve_for=unknown)
    api.hold(budget["id"], body["events"])
    other = api.budget(LIMIT)
    one_more = body["solution"][unknown] + 1
    (event,) = body["events"]
    if unknown == "iterations":
        next_plan = [event | {"count": one_more}]
    else:
        next_plan = [event | {"sampling": event["sampling"] | {"sampling_probability": one_more / 1000}}]
    assert_problem(api.reserve(other["id"], next_plan), 409, "budget_exceeded")


@pytest.mark.thorough
@on_one_engine
def test_what_another_library_recorded_is_charged(api: Api, context: Context) -> None:
    history = [[1.1, 0.01, 500], [1.5, 0.02, 300]]
    source = {"kind": "opacus", "mechanism": "rdp", "history": history}
    imported = api.client.post("/v1/import", json={"source": source, "delta": DELTA}).json()
    budget = api.budget(LIMIT)
    dry = made(
        api.post(
            f"/v1/budgets/{budget['id']}/reservations",
            {"events": imported["events"], "purpose": "trained elsewhere"},
            dry_run="true",
        )
    )
    assert dry["price"]["tight"]["upper"] == pytest.approx(imported["epsilon"]["upper"], rel=1e-6)
    assert dry["price"]["charged"] <= 1.05 * imported["epsilon"]["upper"]
    # What is over already is charged by a correction, whether it fits or not.
    made(api.correct(budget["id"], events=imported["events"]))
    assert api.read(budget["id"])["epsilon"]["spent"] == pytest.approx(dry["price"]["charged"], abs=1e-9)
    check_prices(context)


@on_one_engine
@pytest.mark.parametrize(
    ("delta", "is_admitted"), [(0, True), (5e-8, True), (2e-6, False)], ids=["none", "within the reserve", "beyond"]
)
@pytest.mark.one_in(4)
def test_a_stated_delta_takes_what_is_kept_for_it(api: Api, context: Context, delta: float, is_admitted: bool) -> None:
    budget = api.budget(LIMIT)
    events = [{"mechanism": {"kind": "approximate_dp", "epsilon": 0.1, "delta": delta}}]
    if not delta:
        events = [{"mechanism": {"kind": "pure_dp", "epsilon": 0.1}}]
    answer = api.reserve(budget["id"], events)
    if not is_admitted:
        problem = assert_problem(answer, 409, "budget_exceeded")
        assert problem["remaining"]["failure_delta"] < delta
        return
    held = made(answer)
    assert held["cost"]["failure_delta"] >= delta
    made(api.resolve(held, "start"))
    made(api.resolve(held, "commit"))
    training = calibrate(api, budget)
    api.hold(budget["id"], training["events"])
    assert api.read(budget["id"])["share"]["used"] == pytest.approx(1.0, abs=0.02), "it leaves room for a training"
    check_prices(context)


@on_one_engine
def test_a_larger_reserve_admits_a_larger_delta(api: Api) -> None:
    event = {"mechanism": {"kind": "approximate_dp", "epsilon": 0.1, "delta": 2e-6}}
    assert_problem(api.reserve(api.budget(LIMIT)["id"], [event]), 409, "budget_exceeded")
    held = api.hold(api.budget({**LIMIT, "reserve_share": 0.3})["id"], [event])
    assert held["state"] == "pending"
    assert held["cost"]["failure_delta"] >= 2e-6


@on_one_engine
def test_an_approximate_target_shows_its_cost_in_the_budget(api: Api) -> None:
    budget = api.budget(LIMIT)
    target = {"kind": "approximate_dp", "epsilon": 1.0, "delta": DELTA}
    cost = calibrate(api, budget, target=target, budget_id=budget["id"])["cost_in_budget"]
    price = cost["price"]
    assert cost["fits"] is True
    assert 0.999 < price["tight"]["upper"] <= 1.0 < price["charged"] < 1.055
    assert price["adds"] == pytest.approx(price["charged"], abs=1e-9)
