"""Expiry fails closed: a hold that was not started in time is released, a started one is held until it is committed."""

from __future__ import annotations

import pytest

from app.context import Context
from app.reservations import service
from tests.app.budgets.conftest import Api, Clock, made, zcdp
from tests.app.problem_assertions import assert_problem

TEN_YEARS = 10 * 365 * 24 * 3600


def test_a_hold_that_is_not_started_in_time_cannot_be_started(api: Api, clock: Clock) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.5)], expires_in=60)
    clock.advance(59)
    later = api.hold(budget["id"], [zcdp(0.3)], expires_in=60)
    clock.advance(1)
    for command in ("start", "extend", "commit"):
        assert_problem(api.resolve(held, command), 409, "expired")
    # A clock alone, and those who ask too late, change nothing: it is held until room is needed or the sweeper comes.
    assert api.state(held) == "pending"
    assert api.rho(budget["id"]) == (0, 0.8, 0.2)
    assert api.kinds(budget["id"]) == ["create", "reserve", "reserve"]
    assert api.resolve(later, "start").status_code == 200


def test_the_sweeper_releases_what_is_due_and_nothing_else(api: Api, clock: Clock, context: Context) -> None:
    budget, other = api.budget(), api.budget()
    due = [api.hold(budget["id"], [zcdp(0.1)], expires_in=60) for _ in range(2)]
    due += [api.hold(other["id"], [zcdp(0.1)], expires_in=60)]
    started = api.hold(budget["id"], [zcdp(0.1)], expires_in=60)
    made(api.resolve(started, "start"))
    waiting = api.hold(budget["id"], [zcdp(0.1)], expires_in=61)
    assert service.release_due_holds(context) == 0
    clock.advance(60)
    assert service.release_due_holds(context) == 3
    assert service.release_due_holds(context) == 0
    assert [api.state(held) for held in (*due, started, waiting)] == [*["expired"] * 3, "started", "pending"]
    assert api.rho(budget["id"]) == (0, 0.2, 0.8)
    entry = api.entries(budget["id"])[-1]
    assert (entry["kind"], entry["principal_id"], entry["amount"]) == ("expire", "service", {"rho": 0.1})
    assert (entry["recorded_at"], entry["purpose"]) == ("2026-05-01T00:01:00Z", "mean")
    released = api.get(f"/v1/reservations/{due[0]['id']}").json()
    assert (released["resolved_at"], released["charged"]) == ("2026-05-01T00:01:00Z", None)
    assert_problem(api.resolve(due[0], "void"), 409, "expired")


def test_many_due_holds_are_released_some_at_a_time(
    api: Api, clock: Clock, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_RELEASED_AT_ONCE", 2)
    budget = api.budget()
    for _ in range(5):
        api.hold(budget["id"], [zcdp(0.1)], expires_in=60)
    clock.advance(60)
    assert service.release_due_holds(context) == 5
    assert api.rho(budget["id"]) == (0, 0, 1)


def test_a_hold_past_its_time_may_still_be_given_back(api: Api, clock: Clock) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.5)], expires_in=60)
    clock.advance(3600)
    assert made(api.resolve(held, "void"))["state"] == "voided"
    assert api.rho(budget["id"]) == (0, 0, 1)


def test_holds_past_their_time_make_room_when_it_is_needed(api: Api, clock: Clock) -> None:
    budget = api.budget()
    stale = [api.hold(budget["id"], [zcdp(0.25)], expires_in=60) for _ in range(3)]
    fresh = api.hold(budget["id"], [zcdp(0.25)])
    assert_problem(api.reserve(budget["id"], [zcdp(0.5)]), 409, "budget_exceeded")
    clock.advance(60)
    path = f"/v1/budgets/{budget['id']}/reservations"
    request = {"events": [zcdp(0.75)], "purpose": "p"}
    assert api.post(path, request, dry_run="true").json()["remaining"] == {"rho": 0}
    assert [api.state(hold) for hold in stale] == ["pending"] * 3, "a dry run writes nothing"
    api.hold(budget["id"], [zcdp(0.75)])
    assert [api.state(hold) for hold in (*stale, fresh)] == [*["expired"] * 3, "pending"]
    assert api.kinds(budget["id"]) == ["create", *["reserve"] * 4, *["expire"] * 3, "reserve"]


def test_a_denial_after_due_holds_are_released_says_what_is_left_then(api: Api, clock: Clock) -> None:
    budget = api.budget()
    api.hold(budget["id"], [zcdp(0.25)], expires_in=60)
    api.hold(budget["id"], [zcdp(0.5)])
    clock.advance(60)
    path = f"/v1/budgets/{budget['id']}/reservations"
    request = {"events": [zcdp(0.3, 2)], "purpose": "p"}
    dry = assert_problem(api.post(path, request, dry_run="true"), 409, "budget_exceeded")
    assert api.kinds(budget["id"]) == ["create", "reserve", "reserve"]
    denied = assert_problem(api.post(path, request), 409, "budget_exceeded")
    for members in (dry, denied):
        assert (members["cost"], members["remaining"]) == ({"rho": 0.6}, {"rho": 0.5})
        assert (members["largest_count_that_fits"], members["budget_id"]) == (1, budget["id"])
    assert denied["decided_at"] == "2026-05-01T00:01:00Z"
    assert api.kinds(budget["id"]) == ["create", "reserve", "reserve", "expire"]
    assert api.hold(budget["id"], [zcdp(0.3)])["remaining"] == {"rho": 0.2}


def test_a_started_reservation_past_its_time_is_overdue_and_held_in_full(
    api: Api, clock: Clock, context: Context
) -> None:
    budget = api.budget(report_delta=1e-5)
    held = api.hold(budget["id"], [zcdp(0.6)], expires_in=60)
    made(api.resolve(held, "start"))
    other = api.hold(budget["id"], [zcdp(0.1)], expires_in=60)
    path = f"/v1/budgets/{budget['id']}/reservations"
    clock.advance(59)
    assert api.get(f"/v1/reservations/{held['id']}").json()["overdue"] is False
    assert api.read(budget["id"])["overdue"] == 0
    assert api.get(path, overdue="true").json()["items"] == []
    clock.advance(TEN_YEARS)
    assert service.release_due_holds(context) == 1
    assert_problem(api.reserve(budget["id"], [zcdp(0.5)]), 409, "budget_exceeded")
    assert api.state(other) == "expired"
    shown = api.get(f"/v1/reservations/{held['id']}").json()
    assert (shown["state"], shown["overdue"], shown["resolved_at"]) == ("started", True, None)
    assert [item["id"] for item in api.get(path, overdue="true").json()["items"]] == [held["id"]]
    assert api.get(path, overdue="true", state="committed").json()["items"] == []
    body = api.read(budget["id"])
    assert (body["overdue"], body["amounts"]["started"], body["amounts"]["spent"]) == (1, {"rho": 0.6}, {"rho": 0})
    assert api.get("/v1/budgets").json()["items"][0]["overdue"] == 1
    # In the report it counts like what is spent.
    spent = api.budget(report_delta=1e-5)
    api.spend(spent["id"], [zcdp(0.6)])
    assert body["report"] == api.read(spent["id"])["report"]
    assert body["report"]["epsilon"]["upper"] > 1
    committed = made(api.resolve(held, "commit"))
    assert (committed["state"], committed["charged"], committed["overdue"]) == ("committed", {"rho": 0.6}, False)
    assert_problem(api.resolve(held, "commit"), 409, "already_resolved")
    assert api.read(budget["id"])["overdue"] == 0
    assert api.rho(budget["id"]) == (0.6, 0, 0.4)


def test_more_time_ends_being_overdue(api: Api, clock: Clock) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.6)], expires_in=60)
    made(api.resolve(held, "start"))
    clock.advance(TEN_YEARS)
    extended = made(api.resolve(held, "extend", {"expires_in": 60}))
    assert (extended["state"], extended["overdue"]) == ("started", False)
    assert api.read(budget["id"])["overdue"] == 0
    clock.advance(59)
    assert api.get(f"/v1/reservations/{held['id']}").json()["overdue"] is False
    clock.advance(1)
    assert api.get(f"/v1/reservations/{held['id']}").json()["overdue"] is True
    assert api.read(budget["id"])["overdue"] == 1
    assert made(api.resolve(held, "commit", {"events": [zcdp(0.6)]}))["charged"] == {"rho": 0.6}


def test_overdue_reservations_are_counted_in_their_own_budget(api: Api, clock: Clock) -> None:
    parent = api.budget()
    child = api.child(parent)
    for expires_in in (60, 60, 120):
        made(api.resolve(api.hold(child["id"], [zcdp(0.1)], expires_in=expires_in), "start"))
    clock.advance(60)
    assert (api.read(child["id"])["overdue"], api.read(parent["id"])["overdue"]) == (2, 0)
    assert api.read(parent["id"])["amounts"]["started"] == {"rho": 0.3}
