"""Giving up the rest of a reservation over HTTP: who may say so, what comes back, and what the books say of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.auth.principal import Scope
from app.context import Context
from app.dashboard.wording import at_least
from app.ledger.price_search import PriceSearch
from app.ledger.price_verification import PriceClass, PriceReport, PriceVerification
from app.ledger.verification import verify
from app.reservations.repricing import reprice
from tests.app.budgets.conftest import Api, ApiOf, made
from tests.app.problem_assertions import assert_problem

LIMIT = {"kind": "approximate_gaussian_dp", "epsilon": 1.01, "delta": 1e-5}


def steps(count: int, noise: float = 4.69) -> dict[str, Any]:
    return {
        "mechanism": {"kind": "gaussian", "noise_multiplier": noise},
        "sampling": {"kind": "poisson", "sampling_probability": 0.05},
        "count": count,
    }


WHOLE = [steps(600)]
HALF = {"events": [steps(300)], "give_up_tail": True}


def prices(context: Context) -> PriceReport:
    charges = PriceVerification(PriceSearch(context.processes, at_once=2))
    with context.database.read() as session:
        verdict = verify(session, charges=charges)
    assert verdict.valid, verdict.in_words()
    report = verdict.with_prices(charges).prices
    assert report is not None
    return report


def test_the_rest_is_given_back_in_every_budget_above_and_verification_agrees(api: Api, context: Context) -> None:
    root = api.budget({**LIMIT, "epsilon": 1.02})["id"]
    child = api.budget(LIMIT, parent_id=root)["id"]
    held = api.hold(child, WHOLE)
    made(api.resolve(held, "start"))
    before = api.read(root)["amounts"]["remaining"]["mu_squared"]
    answer = made(api.resolve(held, "commit", HALF))
    cost, charged = answer["cost"], answer["charged"]
    back = cost["mu_squared"] - charged["mu_squared"]
    assert 0.45 < back / cost["mu_squared"] < 0.5
    spent = charged["failure_delta"] - cost["failure_delta"]
    assert spent == pytest.approx(5e-8)
    assert charged["pure_epsilon"] is None
    for budget in (root, child):
        assert api.read(budget)["amounts"]["spent"] == charged
    assert api.read(root)["amounts"]["remaining"]["mu_squared"] == pytest.approx(before + back)
    entry = next(each for each in api.entries(child) if each["kind"] == "commit")
    assert entry["given_back"]["mu_squared"] == pytest.approx(back)
    assert entry["given_back"]["failure_delta"] == pytest.approx(5e-8)
    assert (entry["events"], entry["amount"]) == (HALF["events"], charged)
    assert entry["principal_id"] == "loopback"
    assert answer["given_back"] == api.get(f"/v1/reservations/{held['id']}").json()["given_back"] == entry["given_back"]
    words = f"mu squared {at_least(back)} came back, for delta 5e-8"
    for page in (f"/dashboard/budgets/{child}/reservations", f"/dashboard/ledger/entries?budget_id={child}"):
        assert api.client.get(page).text.count(words) == 1, page
    report = prices(context)
    assert (report.entries[PriceClass.TOO_LOW], report.entries[PriceClass.RIGHT]) == (0, 2)
    assert list(reprice(context)) == []
    assert_problem(api.resolve(held, "commit", {"events": WHOLE}), 409, "already_resolved")


def test_a_key_needs_the_right_for_it(api_of: ApiOf) -> None:
    owner, loop = api_of(Scope.OWNER), api_of(Scope.ANALYST, Scope.REFUNDS)
    budget = owner.budget(LIMIT)["id"]
    held = loop.hold(budget, WHOLE)
    made(loop.resolve(held, "start"))
    assert "refunds" in assert_problem(owner.resolve(held, "commit", HALF), 403, "forbidden")["detail"]
    assert loop.state(held) == "started"
    made(loop.resolve(held, "commit", HALF))
    entry = next(each for each in owner.entries(budget) if each["kind"] == "commit")
    assert entry["given_back"]["mu_squared"] > 0.03
    assert entry["principal_id"].startswith("key_"), "the entry says who has stated it"


def test_what_is_not_given_back_is_said_before_anything_is_charged(api: Api) -> None:
    budget = api.budget(LIMIT)["id"]
    held = api.hold(budget, WHOLE)
    made(api.resolve(held, "start"))
    assert_problem(api.resolve(held, "commit", {"give_up_tail": True}), 422, "missing_events")
    assert_problem(api.resolve(held, "commit", {**HALF, "events": [steps(601)]}), 422, "not_a_prefix")
    assert api.state(held) == "started"
    answer = made(api.resolve(held, "commit", {**HALF, "events": WHOLE}))
    assert answer["charged"] == answer["cost"], "there is no rest"
    one_pass = {**steps(600), "sampling": {"kind": "disjoint_batches", "assignment": "independent"}}
    held = api.hold(api.budget(LIMIT)["id"], [one_pass])
    half = {"events": [{**one_pass, "count": 300}], "give_up_tail": True}
    assert_problem(api.resolve(held, "commit", half), 422, "nothing_given_back")
    other = api.budget({"kind": "zcdp", "rho": 100.0})["id"]
    held = api.hold(other, WHOLE)
    assert_problem(api.resolve(held, "commit", HALF), 422, "nothing_given_back")
    made(api.resolve(held, "commit", {"events": HALF["events"]}))


def test_without_room_for_the_failure_nothing_is_given_back(api: Api) -> None:
    budget = api.budget(LIMIT)["id"]
    held = api.hold(budget, WHOLE)
    made(api.resolve(held, "start"))
    left = api.read(budget)["amounts"]["remaining"]["failure_delta"]
    stated = {"kind": "approximate_dp", "epsilon": 0.0, "delta": left - 5e-9}
    other = api.hold(budget, [{"mechanism": stated, "sampling": {"kind": "full_batch"}, "count": 1}])
    assert_problem(api.resolve(held, "commit", HALF), 409, "tail_not_given_back")
    assert api.state(held) == "started"
    made(api.resolve(other, "void"))
    assert made(api.resolve(held, "commit", HALF))["charged"]["mu_squared"] < 0.04


def test_of_twenty_that_give_up_at_once_one_does(api: Api) -> None:
    budget = api.budget(LIMIT)["id"]
    held = api.hold(budget, WHOLE)
    made(api.resolve(held, "start"))
    asked = [("commit", {"events": [steps(count)], "give_up_tail": True}) for count in (300, 310)] * 5
    asked += [("commit", None), ("extend", None)] * 3
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: api.resolve(held, *each), asked))
    commits = [answer for answer, (action, _) in zip(answers, asked, strict=True) if action == "commit"]
    won = [answer for answer in commits if answer.is_success]
    assert len(won) == 1
    assert api.read(budget)["amounts"]["spent"] == won[0].json()["charged"]
    assert api.read(budget)["amounts"]["reserved"]["mu_squared"] == 0.0


def test_a_dry_run_says_the_net_charge_after_a_quarter(api: Api) -> None:
    budget = api.budget({**LIMIT, "epsilon": 1.03, "reserve_share": 0.1})["id"]
    answer = api.post(f"/v1/budgets/{budget}/reservations", {"events": WHOLE, "purpose": "p"}, dry_run=True)
    price = answer.json()["price"]
    assert 0.4 * price["charged"] < price["after_a_quarter"] < 0.65 * price["charged"]
    answer = api.post(f"/v1/budgets/{budget}/reservations", {"events": [steps(3)], "purpose": "p"}, dry_run=True)
    assert answer.json()["price"]["after_a_quarter"] is None
