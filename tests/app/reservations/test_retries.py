"""Retries are safe: however often each command is sent, in whatever order and whether its answer arrives, it has one
effect; and a denied key stays denied.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.context import Context
from app.idempotency.records import find_one
from app.idempotency.requests import request_fingerprint
from app.reservations import service
from app.reservations.schemas import CommitRequest
from tests.app.budgets.conftest import Api, Clock, made, zcdp
from tests.app.problem_assertions import assert_problem


@dataclass
class Unreliable:
    """A client whose requests are sent 1 to 5 times each, between others; of each it sees one answer, or none."""

    api: Api
    luck: random.Random
    answers: dict[str, list[Any]] = field(default_factory=dict)

    def send(self, commands: dict[str, Callable[[str], Any]]) -> None:
        """Send each command under the key of its name, repeatedly, shuffled; what came back is compared later."""
        sendings = [key for key in commands for _ in range(self.luck.randint(1, 5))]
        self.luck.shuffle(sendings)
        for key in sendings:
            answer = commands[key](key)
            self.answers.setdefault(key, []).append(answer)

    def seen(self, key: str) -> Any:
        """The answer that arrived, of those that were sent: all are the same."""
        answers = self.answers[key]
        bodies = [{**answer.json(), "request_id": ""} for answer in answers]
        assert all(body == bodies[0] for body in bodies), key
        assert len({answer.status_code for answer in answers}) == 1, key
        assert "idempotency-replayed" not in answers[0].headers
        assert all(answer.headers["idempotency-replayed"] == "true" for answer in answers[1:])
        return self.luck.choice(bodies)


def post(api: Api, path: str, body: Any = None) -> Callable[[str], Any]:
    return lambda key: api.post(path, body, key=key)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.one_in(3)
def test_every_command_sent_one_to_five_times_has_one_effect(api: Api, clock: Clock, seed: int) -> None:
    client = Unreliable(api, random.Random(seed))
    budget_body = {
        "name": "b",
        "neighboring_relation": "add_or_remove_one",
        "filter": {"kind": "zcdp", "rho": "1"},
    }
    client.send({"budget": post(api, "/v1/budgets", budget_body)})
    budget_id = client.seen("budget")["id"]
    path = f"/v1/budgets/{budget_id}"
    reservations = {
        f"hold {number}": post(api, f"{path}/reservations", {"events": [zcdp(0.05, 2)], "purpose": "p"})
        for number in range(6)
    }
    too_much = {"events": [zcdp(0.5, 3)], "purpose": "p"}
    client.send({**reservations, "too much": post(api, f"{path}/reservations", too_much)})
    held = [client.seen(key)["id"] for key in reservations]
    assert len(set(held)) == 6
    assert client.seen("too much")["code"] == "budget_exceeded"
    client.send(
        {
            "start 0": post(api, f"/v1/reservations/{held[0]}/start"),
            "start 1": post(api, f"/v1/reservations/{held[1]}/start"),
            "commit 2": post(api, f"/v1/reservations/{held[2]}/commit", {"events": [zcdp(0.05)]}),
            "void 3": post(api, f"/v1/reservations/{held[3]}/void"),
            "extend 4": post(api, f"/v1/reservations/{held[4]}/extend", {"expires_in": 7200}),
            "extend 5": post(api, f"/v1/reservations/{held[5]}/extend", {"expires_in": 1}),
        }
    )
    clock.advance(3600)
    unrecorded = {"events": [zcdp(0.03)], "reason": "r"}
    client.send(
        {
            "commit 0": post(api, f"/v1/reservations/{held[0]}/commit"),
            "void 1": post(api, f"/v1/reservations/{held[1]}/void"),
            "start 5": post(api, f"/v1/reservations/{held[5]}/start"),
            "charge": post(api, f"{path}/corrections", unrecorded),
            "limit": post(api, f"{path}/limit", {"filter": {"kind": "zcdp", "rho": "1.5"}, "reason": "r"}),
            "lower": post(
                api, f"{path}/corrections", {"reservation_id": held[2], "events": [zcdp(0.02)], "reason": "r"}
            ),
        }
    )
    assert client.seen("void 1")["code"] == "already_started"
    assert client.seen("start 5")["code"] == "expired"
    states = [client.seen(key)["state"] for key in ("start 0", "start 1", "commit 2", "void 3", "extend 4", "commit 0")]
    assert states == ["started", "started", "committed", "voided", "pending", "committed"]
    assert client.seen("charge")["charged"] == {"rho": 0.03}
    assert client.seen("limit")["amounts"]["limit"] == {"rho": 1.5}
    assert client.seen("lower")["charged"] == {"rho": 0.02}
    # Spent: 0 in full, 2 corrected, and the charge. Held: 1 and 4, and 5, which is due and not released.
    assert api.rho(budget_id) == (0.15, 0.3, 1.05)
    kinds = {"create": 1, "reserve": 6, "start": 2, "extend": 2, "commit": 2, "void": 1, "correct": 2, "limit": 1}
    assert Counter(api.kinds(budget_id)) == kinds


def test_an_answer_that_was_lost_is_given_again_whatever_has_happened_since(api: Api, clock: Clock) -> None:
    budget = api.budget()
    first = made(api.reserve(budget["id"], [zcdp(0.5)], key="lost", expires_in=60))
    made(api.resolve(first, "start"))
    made(api.resolve(first, "commit", key="lost too"))
    clock.advance(3600)
    again = api.reserve(budget["id"], [zcdp(0.5)], key="lost", expires_in=60)
    assert (again.status_code, again.json()) == (201, first)
    assert again.headers["location"] == f"/v1/reservations/{first['id']}"
    assert api.resolve(first, "commit", key="lost too").json()["state"] == "committed"
    assert api.kinds(budget["id"]) == ["create", "reserve", "start", "commit"]


def test_topping_up_and_sending_a_denied_key_again_is_still_denied(api: Api, clock: Clock) -> None:
    budget = api.budget()
    denied = assert_problem(api.reserve(budget["id"], [zcdp(1.5)], key="denied"), 409, "budget_exceeded")
    assert denied["decided_at"] == "2026-05-01T00:00:00Z"
    clock.advance(60)
    made(api.change_limit(budget["id"], {"kind": "zcdp", "rho": 2}))
    answer = api.reserve(budget["id"], [zcdp(1.5)], key="denied")
    again = assert_problem(answer, 409, "budget_exceeded")
    assert answer.headers["idempotency-replayed"] == "true"
    assert {**again, "request_id": ""} == {**denied, "request_id": ""}
    assert api.rho(budget["id"]) == (0, 0, 2)
    assert api.reserve(budget["id"], [zcdp(1.5)], key="another").status_code == 201


def test_every_denial_about_the_state_stays_when_the_state_is_another(api: Api, clock: Clock, context: Context) -> None:
    budget = api.budget()
    late, pending = api.hold(budget["id"], [zcdp(0.1)], expires_in=60), api.hold(budget["id"], [zcdp(0.1)])
    clock.advance(60)
    limit = {"filter": {"kind": "zcdp", "rho": "0.15"}, "reason": "r"}
    correction = {"reservation_id": pending["id"], "events": [zcdp(0.2)], "reason": "r"}
    commands: dict[str, Callable[[str], Any]] = {
        "expired": post(api, f"/v1/reservations/{late['id']}/start"),
        "limit_below_use": post(api, f"/v1/budgets/{budget['id']}/limit", limit),
        "not_committed": post(api, f"/v1/budgets/{budget['id']}/corrections", correction),
    }
    first = {code: assert_problem(send(code), 409, code) for code, send in commands.items()}
    # Now the clock is set right, the due hold is gone, and the reservation is committed.
    clock.advance(-60)
    assert api.resolve(late, "void").status_code == 200
    made(api.resolve(pending, "commit"))
    assert service.release_due_holds(context) == 0
    for code, send in commands.items():
        assert {**assert_problem(send(code), 409, code), "request_id": ""} == {**first[code], "request_id": ""}
    assert made(api.post(f"/v1/budgets/{budget['id']}/limit", limit))["amounts"]["limit"] == {"rho": 0.15}


def test_what_is_wrong_with_the_request_itself_does_not_use_up_its_key(api: Api, context: Context) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1, 2)])
    assert_problem(api.reserve("bud_nope", [zcdp(0.1)], key="k1"), 404, "not_found")
    assert_problem(
        api.reserve(budget["id"], [zcdp(0.1)], key="k1", charge={"delta": 1e-6}), 422, "unexpected_charge_delta"
    )
    assert_problem(api.resolve(held, "commit", {"events": [zcdp(0.2)]}, key="k2"), 422, "not_a_prefix")
    assert_problem(api.resolve({"id": "res_nope"}, "void", key="k2"), 404, "not_found")
    assert_problem(api.correct("bud_nope", events=[zcdp(0.1)]), 404, "not_found")
    assert find_one(context.database, ("loopback", "k1")) is None
    made(api.reserve(budget["id"], [zcdp(0.1)], key="k1"))
    made(api.resolve(held, "commit", {"events": [zcdp(0.1)]}, key="k2"))
    assert api.rho(budget["id"]) == (0.1, 0.1, 0.8)


def test_a_key_that_was_used_for_another_request_is_refused(api: Api) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1)], key="k")
    made(api.resolve(held, "extend", {"expires_in": 7200}, key="e"))
    limit = {"filter": {"kind": "zcdp", "rho": "2"}, "reason": "r"}
    correction = {"events": [zcdp(0.1)], "reason": "r"}
    made(api.post(f"/v1/budgets/{budget['id']}/limit", limit, key="l"))
    made(api.post(f"/v1/budgets/{budget['id']}/corrections", correction, key="c"))
    before = api.entries(budget["id"])
    for answer in (
        api.reserve(budget["id"], [zcdp(0.1)], key="k", purpose="another"),
        api.reserve(budget["id"], [zcdp(0.1)], key="k", expires_in=3601),
        api.reserve(budget["id"], [zcdp(0.1, 2)], key="k"),
        api.reserve(api.budget()["id"], [zcdp(0.1)], key="k"),
        # A price that cannot be found comes after the key.
        api.reserve(budget["id"], [zcdp(0.1)], key="k", charge={"delta": 1e-6}),
        api.resolve(held, "start", key="k"),
        api.resolve(held, "start", key="e"),
        api.resolve(held, "extend", key="e"),
        api.post(f"/v1/budgets/{budget['id']}/limit", {**limit, "reason": "s"}, key="l"),
        api.post(f"/v1/budgets/{budget['id']}/corrections", {**correction, "reservation_id": held["id"]}, key="c"),
        api.post(f"/v1/budgets/{budget['id']}/corrections", {**correction, "events": []}, key="c"),
    ):
        assert_problem(answer, 422, "idempotency_key_reused", "/header/Idempotency-Key")
    assert api.entries(budget["id"]) == before


@pytest.mark.parametrize(
    ("command", "bodies"),
    [
        ("start", [None, {}]),
        ("void", [{}, None]),
        ("extend", [None, {}, {"expires_in": 3600}, {"expires_in": 3600.0}]),
        ("commit", [None, {}, {"events": None}]),
    ],
)
def test_defaults_spelled_out_make_the_same_command(api: Api, command: str, bodies: list[Any]) -> None:
    held = api.hold(api.budget()["id"], [zcdp(0.1)])
    answers = [made(api.resolve(held, command, body, key="k")) for body in bodies]
    assert all(answer == answers[0] for answer in answers)


def test_a_commit_is_remembered_as_by_versions_that_gave_nothing_back() -> None:
    """A key that was used before an upgrade answers again after it, where the new field is not asked for."""

    def remembered(**given: Any) -> Any:
        return json.loads(request_fingerprint("commit", CommitRequest.model_validate({"events": None, **given})))

    assert remembered() == remembered(give_up_tail=False) == ["commit", {"events": None}]
    assert remembered(give_up_tail=True) == ["commit", {"events": None, "give_up_tail": True}]


def test_equal_amounts_make_the_same_request(api: Api) -> None:
    spellings = (1, 1.0, "1", "1.0", "1e0", "1.000", "0.1e1", "10e-1")
    budgets = {made(api.post("/v1/budgets", _named({"kind": "zcdp", "rho": rho}), key="b"))["id"] for rho in spellings}
    assert len(budgets) == 1
    (budget_id,) = budgets
    path = f"/v1/budgets/{budget_id}/limit"
    for rho in (100, "100", "1e2", 100.0):
        made(api.post(path, {"filter": {"kind": "zcdp", "rho": rho}, "reason": "r"}, key="l"))
    assert api.kinds(budget_id) == ["create", "limit"]
    for other in ("1.0000000000000000000000000000000001", 1.0000000001, "0.1"):
        answer = api.post("/v1/budgets", _named({"kind": "zcdp", "rho": other}), key="b")
        assert_problem(answer, 422, "idempotency_key_reused")


def _named(budget_filter: dict[str, Any]) -> dict[str, Any]:
    return {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": budget_filter}
