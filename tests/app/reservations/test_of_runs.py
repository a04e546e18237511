"""Reservations inside another resource's transaction: a run makes, starts and commits its own."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from app.auth.principal import LOOPBACK
from app.context import Context
from app.idempotency.once import Keyed, run_once
from app.idempotency.records import Answer
from app.ledger.commands import Commit, Start, Void
from app.ledger.executor import Exceeded
from app.problems import Problem
from app.reservations import quotes, service
from app.reservations.commands import Asked, make_room, reserve
from tests.app.budgets.conftest import Api, Clock, made, zcdp
from tests.app.ledger.audit import audit
from tests.app.problem_assertions import assert_problem

EVENTS = (Event(ZcDp(0.3), count=2),)


def asked(budget_id: str, events: tuple[Event, ...] = EVENTS, **terms: Any) -> Asked:
    return Asked(budget_id, events, "run", timedelta(minutes=1), run_id="run_1", **terms)


def hold(session: Session, context: Context, what: Asked) -> str:
    return reserve(session, context, "loopback", what, what.quote(context))


def hold_of_a_run(context: Context, budget_id: str, **terms: Any) -> str:
    with context.database.write() as session:
        return hold(session, context, asked(budget_id, **terms))


def test_a_runs_reservation_refuses_the_http_calls_and_obeys_the_run(api: Api, context: Context) -> None:
    budget = api.budget()
    held = hold_of_a_run(context, budget["id"], plan_hash="5" * 64)
    assert api.rho(budget["id"]) == (0, 0.6, 0.4)
    for command in ("start", "extend", "commit", "void"):
        assert_problem(api.resolve({"id": held}, command), 409, "owned_by_run")
    with context.database.write() as session:
        assert service.resolve(session, context, held, Start(by_run=True)).events == EVENTS
    with context.database.write() as session:
        committed = service.resolve(session, context, held, Commit(by_run=True))
    assert committed.charged == (600_000_000,)
    body = api.get(f"/v1/reservations/{held}").json()
    assert (body["run_id"], body["plan_hash"], body["charged"]) == ("run_1", "5" * 64, {"rho": 0.6})
    principals = [(entry["kind"], entry["principal_id"]) for entry in api.entries(budget["id"])]
    assert principals[1:] == [("reserve", "loopback"), ("start", "service"), ("commit", "service")]
    with context.database.read() as session:
        assert service.get_reservation(session, held).plan_hash == "5" * 64
        # The entries hold it, so that it can be rebuilt and is under the hash.
        assert audit(session, budget["id"]).reservations[held].plan_hash == "5" * 64


def test_a_run_gives_back_what_it_did_not_start(api: Api, context: Context) -> None:
    budget = api.budget()
    held = hold_of_a_run(context, budget["id"])
    with context.database.write() as session:
        service.resolve(session, context, held, Void(by_run=True), principal_id="loopback")
    assert (api.entries(budget["id"])[-1]["principal_id"], api.rho(budget["id"])) == ("loopback", (0, 0, 1))
    with pytest.raises(Problem) as caught, context.database.write() as session:
        service.resolve(session, context, held, Start(by_run=True))
    assert (caught.value.status, caught.value.code) == (409, "already_resolved")
    assert caught.value.members == {"state": "voided"}


def test_the_owner_may_correct_what_a_run_was_charged(api: Api, context: Context) -> None:
    budget = api.budget()
    held = hold_of_a_run(context, budget["id"])
    with context.database.write() as session:
        service.resolve(session, context, held, Commit(by_run=True))
    made(api.correct(budget["id"], reservation_id=held, events=[zcdp(0.3, 3)]))
    assert api.rho(budget["id"]) == (0.9, 0, 0.1)


def test_a_released_hold_has_cost_nothing(api: Api, clock: Clock, context: Context) -> None:
    budget = api.budget({"kind": "renyi_dp", "epsilon": 4, "delta": 1e-5, "orders": [8, 16]})
    names = ("pending", "started", "committed", "voided", "expired")
    held = {name: api.hold(budget["id"], [zcdp(0.01)], expires_in=60) for name in names}
    for name, command in (("started", "start"), ("committed", "commit"), ("voided", "void")):
        made(api.resolve(held[name], command))
    api.resolve(held["pending"], "extend")
    clock.advance(60)
    assert service.release_due_holds(context) == 1
    with context.database.read() as session:
        cost = {name: service.charge(session, held[name]["id"])[0]["epsilons"] for name in names}
    paid, nothing = [0.08, 0.16], [0, 0]
    assert cost == {"pending": paid, "started": paid, "committed": paid, "voided": nothing, "expired": nothing}


def test_events_priced_under_another_relation_are_refused(api: Api, context: Context) -> None:
    budget = api.budget()
    with pytest.raises(Problem) as caught:
        quotes.quote(context, budget["id"], EVENTS, relation=NeighboringRelation.REPLACE_ONE)
    assert (caught.value.status, caught.value.code) == (422, "relation_mismatch")
    assert caught.value.errors[0].pointer == "/neighboring_relation"
    assert api.kinds(budget["id"]) == ["create"]


def test_a_denial_inside_a_larger_transaction_leaves_no_trace(api: Api, context: Context) -> None:
    budget = api.budget()
    with context.database.write() as session:
        with pytest.raises(Exceeded, match="does not admit"):
            hold(session, context, asked(budget["id"], (Event(ZcDp(2.0)),)))
        hold(session, context, asked(budget["id"], (Event(ZcDp(0.5)),)))
    assert api.kinds(budget["id"]) == ["create", "reserve"]


def test_what_a_larger_transaction_did_goes_with_it(api: Api, context: Context) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.25)])
    with suppress(RuntimeError), context.database.write() as session:
        hold(session, context, asked(budget["id"], (Event(ZcDp(0.5)),)))
        raise RuntimeError
    assert api.rho(budget["id"]) == (0, 0.25, 0.75)
    made(api.resolve(held, "commit"))
    assert api.kinds(budget["id"]) == ["create", "reserve", "commit"]


def test_an_unknown_reservation_or_budget_is_404(context: Context) -> None:
    for command in (Start, Commit, Void):
        with pytest.raises(Problem) as caught, context.database.write() as session:
            service.resolve(session, context, "res_nope", command(by_run=True))
        assert (caught.value.status, caught.value.code) == (404, "not_found")
    with pytest.raises(Problem) as caught:
        hold_of_a_run(context, "bud_nope")
    assert caught.value.status == 404


def test_room_is_made_at_every_level_for_a_run(api: Api, clock: Clock, context: Context) -> None:
    root = api.budget({"kind": "zcdp", "rho": "1.2"})
    child, sibling = (api.child(root, {"kind": "zcdp", "rho": rho}) for rho in (0.65, 1))
    for budget, rho in ((child, 0.3), (sibling, 0.8)):
        api.hold(budget["id"], [zcdp(rho)], expires_in=60)

    def run(key: str, events: tuple[Event, ...]) -> Answer:
        keyed = Keyed.of(context, LOOPBACK.id, key, b"run")

        def command(session: Session) -> Answer:
            return Answer(202, {"id": hold(session, context, asked(child["id"], events))})

        return make_room(context, LOOPBACK, keyed, lambda: run_once(context, keyed, command))

    with pytest.raises(Problem, match="does not admit"):
        run("early", EVENTS)
    assert api.rho(root["id"]) == (0, 1.1, 0.1), "nothing is due"
    clock.advance(60)
    run("small", (Event(ZcDp(0.1)),))
    assert api.rho(root["id"]) == (0, 1.2, 0), "it fits as it is"
    # First the child is in the way, then the root, because of the sibling's hold.
    run("large", (Event(ZcDp(0.55)),))
    assert api.rho(root["id"]) == (0, 0.65, 0.55)
    with pytest.raises(Problem) as denied:
        run("early", EVENTS)
    assert denied.value.members["decided_at"] == "2026-05-01T00:00:00Z", "the first denial stands"
