"""Asking for another limit, and deciding it: who may, what it does, and what the books say of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.ledger.limit_requests import MOST_OPEN
from tests.app.budgets.conftest import audit_all, made, zcdp
from tests.app.ledger.verdicts import verdict_on
from tests.app.limit_requests.conftest import People, PersonOf
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

two_must_approve = pytest.mark.parametrize("approvals", [2])


@pytest.fixture(autouse=True)
def audited(people: People, context: Context) -> Iterator[None]:
    """Whatever a test did, the entries explain the tables."""
    yield
    audit_all(context)


def limit_of(people: People) -> float:
    return float(people.owner.read(people.budget["id"])["amounts"]["limit"]["rho"])


def test_an_owner_approves_what_an_analyst_asks(people: People, database: Database) -> None:
    budget_id = people.budget["id"]
    asked = people.analyst.ask(budget_id, "1.5")
    assert asked.headers["Location"] == f"/v1/limit-requests/{asked.json()['id']}"
    request = made(asked)
    assert request | {"id": "", "created_at": ""} == {
        "id": "",
        "budget_id": budget_id,
        "state": "open",
        "wanted": {"rho": 1.5},
        "before": {"rho": 1.0},
        "reason": "more people",
        "principal_id": people.analyst.id,
        "approvals_needed": 1,
        "approvals": [],
        "decided_by": None,
        "decision_reason": None,
        "created_at": "",
        "decided_at": None,
        "names": {people.analyst.id: "test"},
    }
    assert limit_of(people) == 1.0
    approved = made(people.owner.approve(request))
    assert (approved["state"], approved["decided_by"], approved["decision_reason"]) == (
        "approved",
        people.owner.id,
        "agreed",
    )
    assert [each["principal_id"] for each in approved["approvals"]] == [people.owner.id]
    assert people.analyst.request(request) == approved
    assert limit_of(people) == 1.5
    create, ask, limit = people.analyst.entries(budget_id)
    assert (ask["kind"], ask["amount"], ask["reason"], ask["principal_id"]) == (
        "ask",
        {"rho": 1.5},
        "more people",
        people.analyst.id,
    )
    assert (limit["kind"], limit["amount"], limit["reason"], limit["principal_id"]) == (
        "limit",
        {"rho": 1.5},
        "agreed",
        people.owner.id,
    )
    assert [entry["limit_request_id"] for entry in (create, ask, limit)] == [None, request["id"], request["id"]]
    assert verdict_on(database).valid


def test_what_is_refused_or_withdrawn_changes_nothing(people: People, database: Database) -> None:
    budget_id = people.budget["id"]
    first, second = (made(people.analyst.ask(budget_id, 2)) for _ in range(2))
    assert made(people.owner.refuse(first))["state"] == "refused"
    withdrawn = made(people.analyst.withdraw(second))
    assert (withdrawn["state"], withdrawn["decided_by"], withdrawn["decision_reason"]) == (
        "withdrawn",
        people.analyst.id,
        None,
    )
    assert limit_of(people) == 1.0
    assert people.owner.kinds(budget_id) == ["create", "ask", "ask", "refuse", "withdraw"]
    for request, state in ((first, "refused"), (second, "withdrawn")):
        for decide in (people.owner.approve, people.owner.refuse):
            assert assert_problem(decide(request), 409, "request_decided")["state"] == state
        assert_problem(people.analyst.withdraw(request), 409, "request_decided")
    assert verdict_on(database).valid


def test_nobody_approves_a_request_of_their_own(people: People) -> None:
    request = made(people.owner.ask(people.budget["id"], 2))
    assert_problem(people.owner.approve(request), 403, "own_request")
    assert_problem(people.other.withdraw(request), 403, "not_your_request")
    assert limit_of(people) == 1.0
    made(people.other.approve(request))
    assert limit_of(people) == 2.0


@two_must_approve
def test_two_owners_must_approve_where_the_setting_says_so(
    people: People, person: PersonOf, database: Database
) -> None:
    request = made(people.owner.ask(people.budget["id"], 2))
    assert request["approvals_needed"] == 2
    first = made(people.other.approve(request))
    assert (first["state"], len(first["approvals"]), first["decided_at"]) == ("open", 1, None)
    assert limit_of(people) == 1.0
    assert_problem(people.other.approve(request), 409, "approved_by_you")
    assert_problem(people.owner.approve(request), 403, "own_request")
    assert limit_of(people) == 1.0
    third = person(Scope.OWNER)
    assert made(third.approve(request))["state"] == "approved"
    assert limit_of(people) == 2.0
    assert people.owner.kinds(people.budget["id"]) == ["create", "ask", "approve", "limit"]
    assert verdict_on(database).valid


@two_must_approve
def test_an_owner_refuses_what_another_has_approved(people: People) -> None:
    request = made(people.analyst.ask(people.budget["id"], 2))
    made(people.owner.approve(request))
    assert made(people.other.refuse(request))["state"] == "refused"
    assert limit_of(people) == 1.0


@on_one_engine
def test_a_request_needs_as_many_approvals_as_the_setting_says_by_now(people: People, context: Context) -> None:
    request = made(people.analyst.ask(people.budget["id"], 2))
    grown = context.settings.model_copy(update={"approvals": 2})
    object.__setattr__(context, "settings", grown)
    assert made(people.owner.approve(request))["state"] == "open"
    assert made(people.other.approve(request))["state"] == "approved"


def test_an_approval_is_refused_where_the_limit_has_changed_meanwhile(people: People, person: PersonOf) -> None:
    budget_id = people.budget["id"]
    first, second = (made(people.analyst.ask(budget_id, rho)) for rho in (2, 3))
    made(people.owner.approve(first))
    assert_problem(people.owner.approve(second), 409, "limit_changed")
    assert limit_of(people) == 2.0
    assert made(people.owner.refuse(second))["state"] == "refused"
    again = made(people.analyst.ask(budget_id, 3))
    made(people.owner.approve(again))
    assert limit_of(people) == 3.0


def test_an_approval_is_refused_where_more_is_used_than_was_asked_for(people: People) -> None:
    budget_id = people.budget["id"]
    request = made(people.analyst.ask(budget_id, "0.5"))
    made(people.analyst.reserve(budget_id, [zcdp(0.6)]))
    denied = assert_problem(people.owner.approve(request), 409, "limit_below_use")
    assert denied["used"] == {"rho": 0.6}
    assert people.owner.request(request)["state"] == "open"


def test_an_approval_is_refused_where_a_budget_above_could_never_admit_the_limit(people: People) -> None:
    child = people.owner.child(people.budget, {"kind": "zcdp", "rho": "0.5"})
    request = made(people.owner.ask(child["id"], "1.000000001"))
    assert_problem(people.other.approve(request), 409, "limit_above_parent")
    fits = made(people.owner.ask(child["id"], 1))
    made(people.other.approve(fits))
    assert people.owner.read(child["id"])["amounts"]["limit"] == {"rho": 1}


def test_only_so_many_requests_of_one_key_are_open(people: People) -> None:
    budget_id = people.budget["id"]
    requests = [made(people.analyst.ask(budget_id, 2)) for _ in range(MOST_OPEN)]
    assert_problem(people.analyst.ask(budget_id, 2), 409, "too_many_open_requests")
    made(people.owner.ask(budget_id, 2))
    elsewhere = people.owner.child(people.budget)
    made(people.analyst.ask(elsewhere["id"], 2))
    made(people.analyst.withdraw(requests[0]))
    made(people.analyst.ask(budget_id, 2))


def test_a_command_that_is_sent_again_has_one_effect(people: People) -> None:
    budget_id = people.budget["id"]
    first, again = (people.analyst.ask(budget_id, 2, key="ask") for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    request = first.json()
    approved, repeated = (people.owner.approve(request, key="approve") for _ in range(2))
    assert approved.json() == repeated.json()
    assert_problem(people.owner.refuse(request, key="approve"), 422, "idempotency_key_reused")
    assert people.owner.kinds(budget_id) == ["create", "ask", "limit"]


def test_of_two_decisions_at_once_one_is_made(people: People, database: Database) -> None:
    request = made(people.analyst.ask(people.budget["id"], 2))
    with ThreadPoolExecutor(4) as threads:
        answers = list(
            threads.map(
                lambda decide: decide(request).status_code,
                [people.owner.approve, people.other.approve, people.owner.refuse, people.analyst.withdraw],
            )
        )
    assert sorted(answers) == [200, 409, 409, 409]
    assert len(people.owner.entries(people.budget["id"])) == 3
    assert verdict_on(database).valid


def test_requests_are_listed_for_whoever_reaches_their_budget(people: People, person: PersonOf) -> None:
    elsewhere = people.owner.budget()
    stranger = person(Scope.OWNER, Scope.ANALYST, budgets=[elsewhere["id"]])
    requests = [made(people.analyst.ask(people.budget["id"], rho)) for rho in (2, 3, 4)]
    theirs = made(stranger.ask(elsewhere["id"], 5))
    made(people.owner.refuse(requests[0]))
    requests[0] = people.owner.request(requests[0])

    def listed(path: str, who: Any, **query: Any) -> set[str]:
        return {each["id"] for each in made(who.get(path, **query))["items"]}

    of_budget, everywhere = f"/v1/budgets/{people.budget['id']}/limit-requests", "/v1/limit-requests"
    ids = {each["id"] for each in requests}
    assert listed(everywhere, people.owner) == {*ids, theirs["id"]}
    assert listed(everywhere, people.analyst) == listed(of_budget, people.analyst) == ids
    assert listed(everywhere, stranger) == {theirs["id"]}
    assert listed(everywhere, people.analyst, state="open") == ids - {requests[0]["id"]}
    assert listed(of_budget, people.owner, state="refused") == {requests[0]["id"]}
    first = made(people.owner.get(everywhere, limit=3))
    rest = made(people.owner.get(everywhere, limit=3, cursor=first["next_cursor"]))
    assert {each["id"] for each in first["items"] + rest["items"]} == {*ids, theirs["id"]}
    assert_problem(stranger.get(of_budget), 404, "not_found")
    assert_problem(stranger.approve(requests[1]), 404, "not_found")
    assert_problem(stranger.ask(people.budget["id"], 9), 404, "not_found")
    assert_problem(people.owner.approve({"id": "lim_nope"}), 404, "not_found")
    assert_problem(people.owner.ask("bud_nope", 2), 404, "not_found")


@on_one_engine
def test_each_call_takes_its_scopes(people: People, person: PersonOf) -> None:
    request = made(people.analyst.ask(people.budget["id"], 2))
    assert_problem(people.analyst.approve(request), 403, "forbidden")
    assert_problem(people.analyst.refuse(request), 403, "forbidden")
    auditor, limits = person(Scope.AUDITOR), person(Scope.LIMITS)
    assert auditor.request(request)["state"] == "open"
    for who in (auditor, limits):
        assert_problem(who.ask(people.budget["id"], 2), 403, "forbidden")
        assert_problem(who.approve(request), 403, "forbidden")
        assert_problem(who.withdraw(request), 403, "forbidden")
    assert_problem(limits.get("/v1/limit-requests"), 403, "forbidden")


@on_one_engine
def test_another_kind_of_limit_is_refused_when_it_is_asked_for(people: People) -> None:
    path = f"/v1/budgets/{people.budget['id']}/limit-requests"
    body = {"filter": {"kind": "pure_dp", "epsilon": 1}, "reason": "r"}
    assert_problem(people.analyst.post(path, body), 422, "invalid_value")
    assert_problem(people.analyst.post(path, {"filter": {"kind": "zcdp", "rho": 2}}), 422, "invalid_request")
    assert_problem(people.analyst.ask(people.budget["id"], 2, reason=""), 422, "invalid_request")


@on_one_engine
def test_a_renyi_limit_is_asked_for_and_set(people: People) -> None:
    budget = people.owner.budget({"kind": "renyi_dp", "epsilon": 2, "delta": 1e-6})
    wanted = {"kind": "renyi_dp", "epsilon": 3, "delta": 1e-6}
    body = {"filter": wanted, "reason": "r"}
    request = made(people.owner.post(f"/v1/budgets/{budget['id']}/limit-requests", body))
    assert request["wanted"]["epsilon"] == 3
    made(people.other.approve(request))
    assert people.owner.read(budget["id"])["amounts"]["limit"]["epsilon"] == 3
