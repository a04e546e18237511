"""Reservations over HTTP: held, started, committed or voided, listed, and what each answer says."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select

from accounting.relations import NeighboringRelation
from app.context import Context
from app.tables.ledger import Entry
from tests.app.budgets.conftest import Api, Clock, gaussian, made, zcdp
from tests.app.problem_assertions import assert_problem

RELATIONS = {relation: relation.sensitivity for relation in NeighboringRelation}


def test_a_reservation_holds_its_cost(api: Api) -> None:
    budget = api.budget()
    response = api.reserve(budget["id"], [zcdp(0.1, count=3)], expires_in=60)
    body = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/v1/reservations/{body['id']}"
    assert body["id"].startswith("res_")
    assert (body["state"], body["budget_id"], body["purpose"]) == ("pending", budget["id"], "mean")
    assert (body["cost"], body["remaining"]) == ({"rho": 0.3}, {"rho": 0.7})
    assert (body["charged"], body["charged_events"], body["resolved_at"]) == (None, None, None)
    assert (body["created_at"], body["expires_at"]) == ("2026-05-01T00:00:00Z", "2026-05-01T00:01:00Z")
    assert (body["overdue"], body["corrected"], body["warnings"]) == (False, False, [])
    assert (body["run_id"], body["plan_hash"], body["charge_delta"]) == (None, None, None)
    assert api.get(f"/v1/reservations/{body['id']}").json() == body
    assert api.rho(budget["id"]) == (0, 0.3, 0.7)


def test_start_then_commit_spends_what_was_held(api: Api) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1, count=3)])
    assert api.read(budget["id"])["amounts"]["started"] == {"rho": 0}
    started = api.resolve(held, "start")
    assert (started.status_code, started.json()["state"]) == (200, "started")
    assert api.rho(budget["id"]) == (0, 0.3, 0.7)
    assert api.read(budget["id"])["amounts"]["started"] == {"rho": 0.3}
    committed = api.resolve(held, "commit")
    assert (committed.status_code, committed.json()["state"]) == (200, "committed")
    assert committed.json()["charged"] == {"rho": 0.3}
    assert committed.json()["resolved_at"] == "2026-05-01T00:00:00Z"
    assert api.rho(budget["id"]) == (0.3, 0, 0.7)
    assert api.read(budget["id"])["amounts"]["started"] == {"rho": 0}


@pytest.mark.parametrize("body", [None, {}, {"events": None}, {"events": [zcdp(0.1)]}])
def test_a_pending_reservation_may_be_committed_at_once(api: Api, body: Any) -> None:
    budget = api.budget()
    committed = made(api.resolve(api.hold(budget["id"], [zcdp(0.1)]), "commit", body))
    assert (committed["state"], committed["charged"]) == ("committed", {"rho": 0.1})
    assert api.rho(budget["id"]) == (0.1, 0, 0.9)


def test_commit_of_a_part_charges_the_part(api: Api) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1, count=3), zcdp(0.2, count=2)])
    body = made(api.resolve(held, "commit", {"events": [zcdp(0.1, count=2)]}))
    assert body["charged"] == {"rho": 0.2}
    assert [event["count"] for event in body["charged_events"]] == [2]
    assert [event["count"] for event in body["events"]] == [3, 2]
    assert (body["cost"], body["corrected"]) == ({"rho": 0.7}, False)
    assert api.rho(budget["id"]) == (0.2, 0, 0.8)


def test_void_releases_what_is_held(api: Api) -> None:
    budget = api.budget()
    first, second = api.hold(budget["id"], [zcdp(0.1)]), api.hold(budget["id"], [zcdp(0.2)])
    voided = made(api.resolve(first, "void"))
    assert (voided["state"], voided["charged"], voided["resolved_at"]) == ("voided", None, "2026-05-01T00:00:00Z")
    assert api.rho(budget["id"]) == (0, 0.2, 0.8)
    made(api.resolve(second, "void", {}))
    assert api.rho(budget["id"]) == (0, 0, 1)


def test_extend_gives_more_time_from_now_and_never_less(api: Api, clock: Clock) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1)], expires_in=600)
    clock.advance(60)
    for body, expires_at in (
        ({"expires_in": 540}, "2026-05-01T00:10:00Z"),
        ({"expires_in": 1}, "2026-05-01T00:10:00Z"),
        ({"expires_in": 541.0}, "2026-05-01T00:10:01Z"),
        (None, "2026-05-01T01:01:00Z"),
        ({}, "2026-05-01T01:01:00Z"),
    ):
        extended = made(api.resolve(held, "extend", body))
        assert (extended["expires_at"], extended["state"]) == (expires_at, "pending")
    assert api.rho(budget["id"]) == (0, 0.1, 0.9)
    clock.advance(3599)
    assert api.resolve(held, "start").status_code == 200


def test_what_the_budget_does_not_admit_is_denied_and_changes_nothing(api: Api) -> None:
    budget = api.budget()
    api.hold(budget["id"], [zcdp(0.75)])
    entries = api.get(f"/v1/budgets/{budget['id']}/entries").json()
    problem = assert_problem(api.reserve(budget["id"], [zcdp(0.1, count=5)]), 409, "budget_exceeded")
    assert problem["cost"] == {"rho": 0.5}
    assert problem["remaining"] == {"rho": 0.25}
    assert problem["largest_count_that_fits"] == 2
    assert problem["decided_at"] == "2026-05-01T00:00:00Z"
    assert api.rho(budget["id"]) == (0, 0.75, 0.25)
    assert api.get(f"/v1/budgets/{budget['id']}/entries").json() == entries
    assert api.hold(budget["id"], [zcdp(0.1, count=2)])["remaining"] == {"rho": 0.05}


def test_a_renyi_budget_denies_the_second_run_of_the_same_size(api: Api) -> None:
    budget = api.budget({"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5})
    run = [gaussian(10.0, count=100, sampling_probability=0.2)]
    api.hold(budget["id"], run)
    problem = assert_problem(api.reserve(budget["id"], [{**run[0], "count": 10_000}]), 409, "budget_exceeded")
    fits = problem["largest_count_that_fits"]
    assert 0 < fits < 10_000
    assert problem["cost"]["epsilon"] > problem["remaining"]["epsilon"]
    assert_problem(api.reserve(budget["id"], [{**run[0], "count": fits + 1}]), 409, "budget_exceeded")
    assert api.hold(budget["id"], [{**run[0], "count": fits}])["state"] == "pending"


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_zcdp_budget_charges_poisson_batches_unamplified_and_warns(api: Api, relation: str) -> None:
    budget = api.budget(neighboring_relation=relation)
    event = gaussian(10.0, count=20, sampling_probability=0.01)
    held = api.hold(budget["id"], [event])
    rho = RELATIONS[NeighboringRelation(relation)] ** 2 * 20 / (2 * 10.0**2)
    assert held["cost"]["rho"] == pytest.approx(rho, rel=1e-8)
    assert held["cost"]["rho"] >= rho
    assert [warning["code"] for warning in held["warnings"]] == ["no_amplification"]
    problem = assert_problem(api.reserve(budget["id"], [{**event, "count": 10**6}]), 409, "budget_exceeded")
    assert [warning["code"] for warning in problem["warnings"]] == ["no_amplification"]


def test_an_integral_float_is_a_count(api: Api) -> None:
    held = api.hold(api.budget()["id"], [{**zcdp(0.1), "count": 3.0}], expires_in=60.0)
    assert held["cost"] == {"rho": 0.3}


def test_a_dry_run_answers_the_same_and_writes_nothing(api: Api, context: Context) -> None:
    budget = api.budget()
    path = f"/v1/budgets/{budget['id']}/reservations"
    request = {"events": [gaussian(10.0, count=20, sampling_probability=0.1)], "purpose": "mean"}
    dry = api.client.post(path, json=request, params={"dry_run": "true"})
    assert dry.status_code == 201
    assert dry.json()["id"] is None
    assert api.rho(budget["id"]) == (0, 0, 1)
    with context.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Entry)) == 1
    wet = api.post(path, request).json()
    assert {**wet, "id": None} == dry.json()
    too_much = {**request, "events": [zcdp(0.5, count=5)]}
    denied = assert_problem(api.client.post(path, json=too_much, params={"dry_run": "true"}), 409, "budget_exceeded")
    assert denied["largest_count_that_fits"] == 1
    assert "decided_at" not in denied
    assert made(api.client.post(path, json={**request, "expires_in": 60}, params={"dry_run": "true"}))["id"] is None
    assert_problem(api.client.post(path, json=request), 400, "idempotency_key_missing", "/header/Idempotency-Key")
    assert_problem(
        api.client.post("/v1/budgets/bud_nope/reservations", json=request, params={"dry_run": "true"}),
        404,
        "not_found",
    )


def test_reservations_are_listed_newest_first_in_pages(api: Api) -> None:
    budget = api.budget()
    made = [api.hold(budget["id"], [zcdp(0.01)])["id"] for _ in range(5)]
    api.hold(api.budget()["id"], [zcdp(0.01)])
    path = f"/v1/budgets/{budget['id']}/reservations"
    first = api.get(path, limit=3).json()
    second = api.get(path, limit=3, cursor=first["next_cursor"]).json()
    assert [item["id"] for item in [*first["items"], *second["items"]]] == made[::-1]
    assert second["next_cursor"] is None


def test_reservations_are_listed_by_state_and_purpose(api: Api) -> None:
    budget = api.budget()
    for number, command in enumerate(("start", "commit", "void", None)):
        held = api.hold(budget["id"], [zcdp(0.01)], purpose=f"q{number % 2}")
        if command is not None:
            made(api.resolve(held, command))
    path = f"/v1/budgets/{budget['id']}/reservations"

    def listed(**parameters: Any) -> list[tuple[str, str]]:
        return [(item["state"], item["purpose"]) for item in api.get(path, **parameters).json()["items"]]

    assert listed() == [("pending", "q1"), ("voided", "q0"), ("committed", "q1"), ("started", "q0")]
    for state, purpose in listed():
        assert listed(state=state) == listed(state=state, purpose=purpose) == [(state, purpose)]
    assert listed(state="expired") == listed(purpose="q") == listed(state="pending", purpose="q0") == []
    assert listed(purpose="q0") == [("voided", "q0"), ("started", "q0")]
    assert_problem(api.get(path, state="open"), 422, "invalid_request", "/query/state")
    assert_problem(api.get(path, purpose="a\u0000"), 400, "malformed_url")
