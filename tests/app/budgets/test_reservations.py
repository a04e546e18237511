"""Reservations over HTTP: admitted, started, resolved once, released late, and the answers to each."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select

from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from app.budgets import service
from app.kit.context import Context
from app.ledger.models import Entry
from app.problems import Problem
from tests.app.budgets.conftest import Api, Clock, gaussian, zcdp
from tests.app.ledger.audit import audit
from tests.app.problem_assertions import assert_problem

RELATIONS = {relation: relation.sensitivity for relation in NeighboringRelation}


def _amounts(api: Api, budget_id: str) -> tuple[float, float, float]:
    body = api.get(f"/v1/budgets/{budget_id}").json()
    return body["spent"]["rho"], body["reserved"]["rho"], body["remaining"]["rho"]


def test_a_reservation_holds_its_cost(api: Api) -> None:
    budget = api.budget()
    response = api.reserve(budget["id"], [zcdp(0.1, count=3)], expires_in=60)
    body = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/v1/reservations/{body['id']}"
    assert body["id"].startswith("res_")
    assert (body["state"], body["budget_id"]) == ("pending", budget["id"])
    assert (body["cost"], body["remaining"]) == ({"rho": 0.3}, {"rho": 0.7})
    assert body["expires_at"] == "2026-05-01T00:01:00Z"
    assert body["warnings"] == []
    assert (body["run_id"], body["plan_hash"]) == (None, None)
    assert api.get(f"/v1/reservations/{body['id']}").json() == body
    assert _amounts(api, budget["id"]) == (0, 0.3, 0.7)


def test_start_then_commit_spends_what_was_held(api: Api) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1, count=3)])
    started = api.post(f"/v1/reservations/{held['id']}/start")
    assert (started.status_code, started.json()["state"]) == (200, "started")
    assert _amounts(api, budget["id"]) == (0, 0.3, 0.7)
    committed = api.post(f"/v1/reservations/{held['id']}/commit")
    assert (committed.status_code, committed.json()["state"]) == (200, "committed")
    assert committed.json()["charged"] == {"rho": 0.3}
    assert committed.json()["resolved_at"] == "2026-05-01T00:00:00Z"
    assert _amounts(api, budget["id"]) == (0.3, 0, 0.7)


def test_a_pending_reservation_may_be_committed_at_once(api: Api) -> None:
    held = api.hold(api.budget()["id"], [zcdp(0.1)])
    assert api.post(f"/v1/reservations/{held['id']}/commit", {}).json()["state"] == "committed"


def test_commit_of_a_prefix_charges_the_prefix(api: Api) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1, count=3), zcdp(0.2, count=2)])
    body = api.post(f"/v1/reservations/{held['id']}/commit", {"events": [zcdp(0.1, count=2)]}).json()
    assert body["charged"] == {"rho": 0.2}
    assert body["charged_events"][0]["count"] == 2
    assert body["cost"] == {"rho": 0.7}
    assert _amounts(api, budget["id"]) == (0.2, 0, 0.8)


def test_commit_of_anything_else_is_refused(api: Api) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1, count=3)])
    for events in ([zcdp(0.1, count=4)], [zcdp(0.2)], [zcdp(0.1), zcdp(0.1)], [gaussian(1.0)]):
        response = api.post(f"/v1/reservations/{held['id']}/commit", {"events": events})
        assert_problem(response, 422, "not_a_prefix", "/events")
    assert _amounts(api, budget["id"]) == (0, 0.3, 0.7)


def test_void_releases_a_pending_hold_and_is_refused_once_started(api: Api) -> None:
    budget = api.budget()
    first, second = api.hold(budget["id"], [zcdp(0.1)]), api.hold(budget["id"], [zcdp(0.2)])
    assert api.post(f"/v1/reservations/{first['id']}/void").json()["state"] == "voided"
    assert _amounts(api, budget["id"]) == (0, 0.2, 0.8)
    api.post(f"/v1/reservations/{second['id']}/start")
    assert_problem(api.post(f"/v1/reservations/{second['id']}/void"), 409, "already_started")
    assert_problem(api.post(f"/v1/reservations/{second['id']}/start"), 409, "already_started")
    assert _amounts(api, budget["id"]) == (0, 0.2, 0.8)


def test_a_reservation_resolves_at_most_once(api: Api) -> None:
    budget = api.budget()
    for first, state in (("commit", "committed"), ("void", "voided")):
        held = api.hold(budget["id"], [zcdp(0.3)])
        assert api.post(f"/v1/reservations/{held['id']}/{first}").status_code == 200
        before = _amounts(api, budget["id"])
        for second in ("start", "commit", "void"):
            problem = assert_problem(api.post(f"/v1/reservations/{held['id']}/{second}"), 409, "already_resolved")
            assert problem["state"] == state
        assert _amounts(api, budget["id"]) == before


def test_an_unknown_reservation_is_404(api: Api) -> None:
    assert_problem(api.get("/v1/reservations/res_nope"), 404, "not_found")
    for command in ("start", "commit", "void"):
        assert_problem(api.post(f"/v1/reservations/res_nope/{command}"), 404, "not_found")


def test_what_the_budget_does_not_admit_is_denied_and_changes_nothing(api: Api) -> None:
    budget = api.budget()
    api.hold(budget["id"], [zcdp(0.75)])
    entries = api.get(f"/v1/budgets/{budget['id']}/entries").json()
    problem = assert_problem(api.reserve(budget["id"], [zcdp(0.1, count=5)]), 409, "budget_exceeded")
    assert problem["cost"] == {"rho": 0.5}
    assert problem["remaining"] == {"rho": 0.25}
    assert problem["largest_count_that_fits"] == 2
    assert problem["decided_at"] == "2026-05-01T00:00:00Z"
    assert _amounts(api, budget["id"]) == (0, 0.75, 0.25)
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


def test_an_event_without_a_cost_in_the_filter_names_the_filters_that_have_one(api: Api) -> None:
    budget = api.budget({"kind": "pure_dp", "epsilon": 1})
    response = api.reserve(budget["id"], [{"mechanism": {"kind": "laplace", "noise_multiplier": 9}}, gaussian(1.0)])
    problem = assert_problem(response, 422, "no_cost_in_filter")
    assert problem["errors"][0]["pointer"].startswith("/events")
    assert "renyi_dp" in problem["detail"]
    assert "zcdp" in problem["detail"]


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"events": []}, "/events"),
    ({"events": [zcdp(0.1)] * 1001}, "/events"),
    ({"events": [{"mechanism": {"kind": "cauchy"}}]}, "/events/0/mechanism/kind"),
    ({"events": [{"mechanism": {"kind": "zcdp", "rho": True}}]}, "/events/0/mechanism/rho"),
    ({"events": [zcdp(0.1), zcdp(0.1, count=10**8 + 1)]}, "/events/1/count"),
    ({"events": [zcdp(0.1, count=0)]}, "/events/0/count"),
    (
        {"events": [{**zcdp(0.1), "sampling": {"kind": "poisson", "sampling_probability": 0.1}}]},
        "/events/0/sampling/kind",
    ),
    ({"purpose": ""}, "/purpose"),
    ({"purpose": "a\u0000"}, "/purpose"),
    ({"expires_in": 0}, "/expires_in"),
    ({"expires_in": 30 * 24 * 3600 + 1}, "/expires_in"),
    ({"expires_in": "60"}, "/expires_in"),
    ({"run_id": "run_1"}, "/run_id"),
    ({"charge": {"delta": 1e-6}}, "/charge"),
]


def test_a_malformed_reservation_is_refused_where_it_is_wrong(api: Api) -> None:
    budget = api.budget()
    for fields, pointer in MALFORMED:
        body = {"events": [zcdp(0.1)], "purpose": "mean", **fields}
        response = api.post(f"/v1/budgets/{budget['id']}/reservations", body)
        assert response.status_code == 422, fields
        assert_problem(response, 422, response.json()["code"], pointer)
    assert api.get(f"/v1/budgets/{budget['id']}/reservations").json()["items"] == []


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
    assert _amounts(api, budget["id"]) == (0, 0, 1)
    with context.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Entry)) == 1
    wet = api.post(path, request).json()
    assert {**wet, "id": None} == dry.json()
    too_much = {**request, "events": [zcdp(0.5, count=5)]}
    denied = assert_problem(api.client.post(path, json=too_much, params={"dry_run": "true"}), 409, "budget_exceeded")
    assert denied["largest_count_that_fits"] == 1
    assert "decided_at" not in denied
    assert_problem(api.client.post(path, json=request), 400, "idempotency_key_missing", "/header/Idempotency-Key")
    assert_problem(
        api.client.post("/v1/budgets/bud_nope/reservations", json=request, params={"dry_run": "true"}),
        404,
        "not_found",
    )


def test_a_hold_that_is_not_started_in_time_is_expired(api: Api, clock: Clock) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.5)], expires_in=60)
    clock.advance(59)
    late = api.hold(budget["id"], [zcdp(0.3)], expires_in=60)
    clock.advance(1)
    # Not before somebody touches it: a clock alone changes nothing.
    assert api.get(f"/v1/reservations/{held['id']}").json()["state"] == "pending"
    assert _amounts(api, budget["id"]) == (0, 0.8, 0.2)
    assert_problem(api.post(f"/v1/reservations/{held['id']}/start"), 409, "expired")
    assert api.get(f"/v1/reservations/{held['id']}").json()["state"] == "expired"
    assert _amounts(api, budget["id"]) == (0, 0.3, 0.7)
    for command in ("start", "commit", "void"):
        assert_problem(api.post(f"/v1/reservations/{held['id']}/{command}"), 409, "expired")
    assert api.post(f"/v1/reservations/{late['id']}/start").status_code == 200


def test_holds_past_their_time_make_room_when_it_is_needed(api: Api, clock: Clock) -> None:
    budget = api.budget()
    stale = [api.hold(budget["id"], [zcdp(0.25)], expires_in=60 + i) for i in range(4)]
    assert_problem(api.reserve(budget["id"], [zcdp(0.5)]), 409, "budget_exceeded")
    clock.advance(3600)
    denied = assert_problem(api.reserve(budget["id"], [zcdp(1.1)]), 409, "budget_exceeded")
    assert denied["remaining"] == {"rho": 1.0}
    assert _amounts(api, budget["id"]) == (0, 1, 0)
    api.hold(budget["id"], [zcdp(0.5)])
    states = [api.get(f"/v1/reservations/{hold['id']}").json()["state"] for hold in stale]
    assert states == ["expired", "expired", "pending", "pending"]
    kinds = [entry["kind"] for entry in api.get(f"/v1/budgets/{budget['id']}/entries").json()["items"]]
    assert kinds == ["create", *["reserve"] * 4, "expire", "expire", "reserve"]


def test_a_started_reservation_never_resolves_by_time(api: Api, clock: Clock) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.6)], expires_in=60)
    api.post(f"/v1/reservations/{held['id']}/start")
    clock.advance(10 * 365 * 24 * 3600)
    assert_problem(api.reserve(budget["id"], [zcdp(0.5)]), 409, "budget_exceeded")
    assert _amounts(api, budget["id"]) == (0, 0.6, 0.4)
    assert api.post(f"/v1/reservations/{held['id']}/commit").json()["charged"] == {"rho": 0.6}


def test_a_clock_that_was_wrong_costs_an_unstarted_hold_and_nothing_else(api: Api, clock: Clock) -> None:
    budget = api.budget()
    started, pending = api.hold(budget["id"], [zcdp(0.5)]), api.hold(budget["id"], [zcdp(0.25)])
    api.post(f"/v1/reservations/{started['id']}/start")
    clock.advance(10 * 365 * 24 * 3600)
    api.hold(budget["id"], [zcdp(0.5)])
    clock.advance(-20 * 365 * 24 * 3600)
    assert _amounts(api, budget["id"]) == (0, 1, 0)
    assert_problem(api.reserve(budget["id"], [zcdp(0.001)]), 409, "budget_exceeded")
    assert_problem(api.post(f"/v1/reservations/{pending['id']}/start"), 409, "expired")
    assert api.post(f"/v1/reservations/{started['id']}/commit").status_code == 200


def test_reservations_are_listed_newest_first_in_pages(api: Api) -> None:
    budget = api.budget()
    made = [api.hold(budget["id"], [zcdp(0.01)])["id"] for _ in range(5)]
    api.hold(api.budget()["id"], [zcdp(0.01)])
    path = f"/v1/budgets/{budget['id']}/reservations"
    first = api.get(path, limit=3).json()
    second = api.get(path, limit=3, cursor=first["next_cursor"]).json()
    assert [item["id"] for item in [*first["items"], *second["items"]]] == made[::-1]
    assert second["next_cursor"] is None


def test_a_runs_reservation_refuses_the_http_calls_and_obeys_the_run(api: Api, context: Context) -> None:
    budget = api.budget()
    with context.database.write() as session:
        held = service.reserve(
            session,
            context,
            budget_id=budget["id"],
            events=[Event(ZcDp(0.3), count=2)],
            purpose="run",
            principal_id="loopback",
            expires_in=60,
            run_id="run_1",
            plan_hash="5" * 64,
            relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        )
        assert service.reservation_cost(session, held.id) == {"rho": 0.6}
    for command in ("start", "commit", "void"):
        assert_problem(api.post(f"/v1/reservations/{held.id}/{command}"), 409, "owned_by_run")
    with context.database.write() as session:
        assert service.start(session, context, held.id).events == (Event(ZcDp(0.3), count=2),)
    with context.database.write() as session:
        committed = service.commit(session, context, held.id, [Event(ZcDp(0.3))])
        assert committed.charged == (300_000_000,)
        assert service.reservation_cost(session, held.id) == {"rho": 0.3}
    body = api.get(f"/v1/reservations/{held.id}").json()
    assert (body["run_id"], body["plan_hash"]) == ("run_1", "5" * 64)
    with context.database.read() as session:
        assert service.get_reservation(session, held.id).plan_hash == "5" * 64
        # The entries hold it, so that it can be rebuilt and is under the hash.
        assert audit(session, budget["id"]).reservations[held.id].plan_hash == "5" * 64


def test_a_released_hold_has_cost_nothing(api: Api, clock: Clock, context: Context) -> None:
    budget = api.budget({"kind": "renyi_dp", "epsilon": 4, "delta": 1e-5, "orders": [8, 16]})
    names = ("pending", "started", "committed", "voided", "expired")
    held = {name: api.hold(budget["id"], [zcdp(0.01)], expires_in=60)["id"] for name in names}
    for name, command in (("started", "start"), ("committed", "commit"), ("voided", "void")):
        assert api.post(f"/v1/reservations/{held[name]}/{command}").status_code == 200
    clock.advance(60)
    assert_problem(api.post(f"/v1/reservations/{held['expired']}/start"), 409, "expired")
    with context.database.read() as session:
        cost = {name: service.reservation_cost(session, held[name])["epsilons"] for name in names}
    paid, nothing = [0.08, 0.16], [0, 0]
    assert cost == {"pending": paid, "started": paid, "committed": paid, "voided": nothing, "expired": nothing}


def test_events_priced_under_another_relation_are_refused(api: Api, context: Context) -> None:
    budget = api.budget()
    with pytest.raises(Problem) as caught, context.database.write() as session:
        service.reserve(
            session,
            context,
            budget_id=budget["id"],
            events=[Event(ZcDp(0.3))],
            purpose="run",
            principal_id="loopback",
            expires_in=60,
            relation=NeighboringRelation.REPLACE_ONE,
        )
    assert (caught.value.status, caught.value.code) == (422, "relation_mismatch")
    assert caught.value.errors[0].pointer == "/neighboring_relation"


def test_a_denial_inside_a_larger_transaction_leaves_no_trace(api: Api, context: Context) -> None:
    budget = api.budget()
    with context.database.write() as session:
        reserve = {"budget_id": budget["id"], "purpose": "p", "principal_id": "loopback", "expires_in": 60}
        with pytest.raises(Problem):
            service.reserve(session, context, events=[Event(ZcDp(2.0))], **reserve)
        service.reserve(session, context, events=[Event(ZcDp(0.5))], **reserve)
    entries = api.get(f"/v1/budgets/{budget['id']}/entries").json()["items"]
    assert [(entry["sequence"], entry["kind"]) for entry in entries] == [(1, "create"), (2, "reserve")]
