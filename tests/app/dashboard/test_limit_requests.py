"""The pages on which another limit is asked for and decided."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.budgets.doubts import right_guesses
from app.context import Context
from tests.app.auth.test_sessions import BASE_URL, ORIGIN, sign_in
from tests.app.conftest import ConnectAs
from tests.app.dashboard.documents import Document
from tests.app.dashboard.test_budgets import FILTERS
from tests.app.dashboard.test_new_budget import EVIL, HERE, key_of, marked
from tests.app.runs.conftest import Service, quick
from tests.databases import on_one_engine

__all__ = ["quick"]

#: More of each kind.
MORE: dict[str, dict[str, str]] = {
    "approximate_gaussian_dp": {"epsilon": "4.5", "delta": "1e-6"},
    "renyi_dp": {"epsilon": "9.5", "delta": "1e-6"},
    "zcdp": {"rho": "1.5"},
    "pure_dp": {"epsilon": "3.5"},
    "approximate_dp": {"epsilon": "4.5", "delta": "1e-6"},
    "gaussian_dp": {"mu": "2.5"},
}


def part(quick: Service, budget_id: str) -> str:
    return str(quick.client.get(f"/dashboard/budgets/{budget_id}/limit-requests").text)


def ask(quick: Service, budget_id: str, **form: str) -> Any:
    data = {"key": key_of(part(quick, budget_id)), "reason": "more people"} | form
    path = f"/dashboard/budgets/{budget_id}/limit-requests"
    return quick.client.post(path, data=data, headers=HERE, follow_redirects=False)


@pytest.mark.parametrize("kind", FILTERS)
def test_what_is_typed_on_the_page_of_a_budget_is_asked_for(quick: Service, kind: str) -> None:
    budget = quick.budget(filter=FILTERS[kind])
    shown = part(quick, budget["id"])
    typed = dict(re.findall(r'<input id="field-\w+" name="(\w+)" value="([^"]*)"', shown))
    assert {name: float(value) for name, value in typed.items() if name != "reason"} == {
        name: value for name, value in FILTERS[kind].items() if name != "kind"
    }
    answer = ask(quick, budget["id"], **MORE[kind])
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        f"/dashboard/budgets/{budget['id']}#limit-requests",
    )
    (asked,) = quick.get(f"/v1/budgets/{budget['id']}/limit-requests")["items"]
    assert asked["reason"] == "more people"
    assert {name: asked["wanted"][name] for name in MORE[kind] if name in asked["wanted"]} == {
        name: float(value) for name, value in MORE[kind].items() if name in asked["wanted"]
    }
    again = part(quick, budget["id"])
    assert asked["id"] in again
    # Nobody decides a request of their own; it is withdrawn.
    assert f"/dashboard/limit-requests/{asked['id']}/withdraw" in again
    assert f"/dashboard/limit-requests/{asked['id']}/approve" not in again


@pytest.mark.parametrize("kind", FILTERS)
def test_an_owner_reads_what_a_limit_means_before_the_decision(quick: Service, kind: str) -> None:
    budget = quick.budget(filter=FILTERS[kind])
    wanted = {**FILTERS[kind], **{name: float(value) for name, value in MORE[kind].items()}}
    path = f"/v1/budgets/{budget['id']}/limit-requests"
    quick.post(path, {"filter": wanted, "reason": "more people"})
    words = " ".join(part(quick, budget["id"]).split())
    assert f"guesses right in at most {right_guesses(wanted)} of cases" in words
    assert f"under the present limit, in at most {right_guesses(FILTERS[kind])}." in words
    assert "The limit has changed" not in words
    changed = quick.post(f"/v1/budgets/{budget['id']}/limit", {"filter": wanted, "reason": "more people"})
    assert changed.status_code < 300, changed.text
    assert "The limit has changed since this request was made" in part(quick, budget["id"])


def test_what_is_wrong_is_shown_at_its_field(quick: Service) -> None:
    budget = quick.budget(filter=FILTERS["zcdp"])
    answer = ask(quick, budget["id"], rho="much", reason="")
    assert answer.status_code == 422
    assert set(marked(answer.text)) == {"rho", "reason"}
    assert marked(answer.text)["reason"] == "Say why: owners and later readers of the ledger see it."
    evil = ask(quick, budget["id"], rho=EVIL, reason=EVIL)
    assert "<script>alert" not in evil.text
    assert Document(evil.text).faults == []


@on_one_engine
def test_owners_decide_on_the_list(connect: ConnectAs, context: Context) -> None:
    def person(*scopes: Scope) -> tuple[TestClient, TestClient]:
        """A browser that is signed in, and a program with the same key."""
        created = create_key(context, "test", scopes)
        assert created is not None
        browser = connect(base_url=BASE_URL, peer=("10.0.0.1", 1), headers=ORIGIN)
        sign_in(browser, created.token)
        return browser, connect(base_url=BASE_URL, headers={"Authorization": f"Bearer {created.token}"})

    (owner, owner_api), (analyst, analyst_api) = person(Scope.OWNER), person(Scope.ANALYST)
    request = {"name": "<b>visits</b>", "neighboring_relation": "replace_one", "filter": FILTERS["zcdp"]}
    budget = owner_api.post("/v1/budgets", json=request, headers={"Idempotency-Key": "b"}).json()
    path = f"/v1/budgets/{budget['id']}/limit-requests"

    def asked(rho: str) -> str:
        body = {"filter": {"kind": "zcdp", "rho": rho}, "reason": EVIL}
        return str(analyst_api.post(path, json=body, headers={"Idempotency-Key": rho}).json()["id"])

    first, second, third = asked("2"), asked("3"), asked("4")
    shown = owner.get("/dashboard/limit-requests")
    assert Document(shown.text).faults == []
    assert "<script>alert" not in shown.text
    assert all(f"/dashboard/limit-requests/{each}/approve" in shown.text for each in (first, second, third))
    mine = analyst.get("/dashboard/limit-requests").text
    assert f"/dashboard/limit-requests/{first}/withdraw" in mine
    assert f"/dashboard/limit-requests/{first}/approve" not in mine
    assert "It waits for another key with the scope owner." in mine
    for other in (person(Scope.ANALYST)[0], person(Scope.AUDITOR)[0]):
        theirs = other.get("/dashboard/limit-requests").text
        assert ("An owner decides." in theirs, '<form method="post" action="/dashboard/limit' in theirs) == (
            True,
            False,
        )
    asks = [
        'id="ask-for-limit"' in browser.get(f"/dashboard/budgets/{budget['id']}/limit-requests").text
        for browser in (owner, analyst, person(Scope.AUDITOR)[0])
    ]
    assert asks == [True, True, False]
    webhooks = ["Webhooks" in who.get(f"/dashboard/budgets/{budget['id']}").text for who in (owner, analyst)]
    assert webhooks == [True, False]

    def decided(who: TestClient, request_id: str, decision: str, key: str) -> Any:
        form = {"key": key, "reason": "because", "from": "list"}
        address = f"/dashboard/limit-requests/{request_id}/{decision}"
        return who.post(address, data=form, follow_redirects=False)

    assert decided(analyst, first, "approve", "page-1").status_code == 403
    for who, request_id, decision in (
        (owner, first, "refuse"),
        (analyst, second, "withdraw"),
        (owner, third, "approve"),
    ):
        answer = decided(who, request_id, decision, f"page-{decision}")
        told = f"/dashboard/limit-requests?decided={request_id}"
        assert (answer.status_code, answer.headers["location"]) == (303, told)
        done = {"refuse": "refused", "withdraw": "withdrawn", "approve": "approved"}[decision]
        shown = Document(who.get(told).text)
        assert shown.faults == []
        assert f" is {done}: the limit of " in shown.all("main")[0].text
    assert owner_api.get(f"/v1/budgets/{budget['id']}").json()["amounts"]["limit"] == {"rho": 4.0}
    assert "No request is open" in owner.get("/dashboard/limit-requests").text
    approved = Document(owner.get("/dashboard/limit-requests", params={"state": "approved"}).text)
    assert approved.faults == []
    assert "because" in approved.all("main")[0].text
    low = asked("0.5")
    spent = {"purpose": "x", "events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 0.8}}]}
    held = f"/v1/budgets/{budget['id']}/reservations"
    assert owner_api.post(held, json=spent, headers={"Idempotency-Key": "r"}).status_code == 201
    refused = decided(owner, low, "approve", "page-low")
    assert refused.status_code == 409
    shown = Document(refused.text)
    assert "more is spent or held than the wanted limit admits" in shown.all("main")[0].text
    assert 'name="reason" value="because"' in refused.text
    late = decided(owner, first, "approve", "page-late")
    assert late.status_code == 409
    assert "approved, refused or withdrawn already" in Document(late.text).all("main")[0].text
