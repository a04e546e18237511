"""Every refusal of the endpoints about reservations, by tables: what is asked, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from accounting.events import Event, ZcDp
from app.context import Context
from app.ledger.commands import Commit, Start
from app.reservations import service
from app.reservations.commands import Asked, reserve
from app.tables.states import ReservationStatus
from tests.app.budgets.conftest import Api, Clock, gaussian, made, zcdp
from tests.app.problem_assertions import assert_problem

EVENTS = [zcdp(0.01, count=5)]
OTHER = {"events": [zcdp(0.02)]}
UNKNOWN = {"id": "res_nope"}


def hold_of_a_run(context: Context, budget_id: str) -> dict[str, Any]:
    asked = Asked(budget_id, (Event(ZcDp(0.01), count=5),), "run", timedelta(hours=1), run_id="run_1")
    quote = asked.quote(context)
    with context.database.write() as session:
        return {"id": reserve(session, context, "loopback", asked, quote)}


@pytest.fixture
def holds(api: Api, context: Context, clock: Clock) -> dict[str, dict[str, Any]]:
    """A reservation of every kind, in one budget."""
    budget_id = api.budget()["id"]
    expired = api.hold(budget_id, EVENTS, expires_in=60)
    clock.advance(60)
    assert service.release_due_holds(context, budget_id) == 1
    brief = {"expires_in": 60}
    found: dict[str, Any] = {
        "no": UNKNOWN,
        "a budget's": {"id": budget_id},
        "expired": expired,
        "late": api.hold(budget_id, EVENTS, **brief),
        "overdue": api.hold(budget_id, EVENTS, **brief),
        **{state: api.hold(budget_id, EVENTS) for state in ("pending", "started", "committed", "voided")},
        **{f"{state} of a run": hold_of_a_run(context, budget_id) for state in ("pending", "started", "committed")},
    }
    for name, command in (("started", "start"), ("overdue", "start"), ("committed", "commit"), ("voided", "void")):
        made(api.resolve(found[name], command))
    with context.database.write() as session:
        service.resolve(session, context, found["started of a run"]["id"], Start(by_run=True))
        service.resolve(session, context, found["committed of a run"]["id"], Commit(by_run=True))
    clock.advance(60)
    return found


# What is not in the table is carried out; `test_reservations.py` looks at that.
COMMANDS = """
reservation         command        answer
no                  start          404 not_found
no                  extend         404 not_found
no                  commit         404 not_found
no                  commit other   404 not_found
no                  void           404 not_found
a budget's          start          404 not_found
a budget's          extend         404 not_found
a budget's          commit         404 not_found
a budget's          commit other   404 not_found
a budget's          void           404 not_found
expired             start          409 expired
expired             extend         409 expired
expired             commit         409 expired
expired             commit other   409 expired
expired             void           409 expired
late                start          409 expired
late                extend         409 expired
late                commit         409 expired
late                commit other   409 expired
pending             commit other   422 not_a_prefix
started             start          409 already_started
started             commit other   422 not_a_prefix
started             void           409 already_started
overdue             start          409 already_started
overdue             commit other   422 not_a_prefix
overdue             void           409 already_started
committed           start          409 already_resolved
committed           extend         409 already_resolved
committed           commit         409 already_resolved
committed           commit other   409 already_resolved
committed           void           409 already_resolved
voided              start          409 already_resolved
voided              extend         409 already_resolved
voided              commit         409 already_resolved
voided              commit other   409 already_resolved
voided              void           409 already_resolved
pending of a run    start          409 owned_by_run
pending of a run    extend         409 owned_by_run
pending of a run    commit         409 owned_by_run
pending of a run    commit other   409 owned_by_run
pending of a run    void           409 owned_by_run
started of a run    start          409 owned_by_run
started of a run    extend         409 owned_by_run
started of a run    commit         409 owned_by_run
started of a run    commit other   409 owned_by_run
started of a run    void           409 owned_by_run
committed of a run  start          409 owned_by_run
committed of a run  extend         409 owned_by_run
committed of a run  commit         409 owned_by_run
committed of a run  commit other   409 owned_by_run
committed of a run  void           409 owned_by_run
"""


def test_every_refused_command(api: Api, holds: dict[str, dict[str, Any]]) -> None:
    budget_id = holds["a budget's"]["id"]
    before = (api.entries(budget_id), api.read(budget_id))
    for line in COMMANDS.strip().splitlines()[1:]:
        name, words, answer = line[:20].strip(), line[20:35].strip(), line[35:]
        command, _, other = words.partition(" ")
        status, code = answer.split()
        pointer = "/events" if code == "not_a_prefix" else None
        response = api.resolve(holds[name], command, OTHER if other else None)
        problem = assert_problem(response, int(status), code, pointer, pointer and code)
        if code == "not_found":
            continue
        # A denial says in which state the reservation is; a hold that is due is pending until it is released.
        state = {"late": "pending", "overdue": "started"}.get(name.split()[0], name.split()[0])
        assert problem["state"] == ReservationStatus(state)
        assert ("decided_at" in problem) == (status == "409"), line
    assert (api.entries(budget_id), api.read(budget_id)) == before


def _requests(api: Api) -> dict[str, Callable[[], Any]]:
    """Requests about a budget's reservations that are refused, by what is wrong with them."""
    zcdp_budget, pure_budget = api.budget()["id"], api.budget({"kind": "pure_dp", "epsilon": 1})["id"]
    approximate = api.budget({"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5})["id"]
    laplace = {"mechanism": {"kind": "laplace", "noise_multiplier": 9}}
    delta = {"delta": 1e-6}
    path = f"/v1/budgets/{zcdp_budget}/reservations"
    body = {"events": EVENTS, "purpose": "p"}
    return {
        "no such budget": lambda: api.reserve("bud_nope", EVENTS),
        "no such budget, dry": lambda: api.post("/v1/budgets/bud_nope/reservations", body, dry_run="true"),
        "no such budget, list": lambda: api.get("/v1/budgets/bud_nope/reservations"),
        "no such reservation": lambda: api.get("/v1/reservations/res_nope"),
        "no key": lambda: api.client.post(path, json=body),
        "no cost in the filter": lambda: api.reserve(pure_budget, [laplace, gaussian(1.0)]),
        "a delta is missing": lambda: api.reserve(approximate, [gaussian(9.0)]),
        "a delta too much": lambda: api.reserve(zcdp_budget, EVENTS, charge=delta),
        "a delta of its own alone too much": lambda: api.reserve(approximate, [gaussian(9.0)], charge={"delta": 1e-4}),
        "epsilon too much": lambda: api.reserve(approximate, [gaussian(0.1)], charge=delta),
        "too much": lambda: api.reserve(zcdp_budget, [zcdp(0.3, count=4)]),
        "too much, dry": lambda: api.post(path, {**body, "events": [zcdp(2.0)]}, dry_run="true"),
        "another cursor": lambda: api.get(path, cursor="x"),
        "an unknown parameter": lambda: api.get(path, status="pending"),
    }


REQUESTS = """
request                              answer
no such budget                       404 not_found
no such budget, dry                  404 not_found
no such budget, list                 404 not_found
no such reservation                  404 not_found
no key                               400 idempotency_key_missing   /header/Idempotency-Key
no cost in the filter                422 no_cost_in_filter         /events/1/mechanism
a delta is missing                   422 missing_charge_delta      /charge/delta
a delta too much                     422 unexpected_charge_delta   /charge/delta
a delta of its own alone too much    409 budget_exceeded
epsilon too much                     409 budget_exceeded
too much                             409 budget_exceeded
too much, dry                        409 budget_exceeded
another cursor                       422 invalid_cursor            /query/cursor
an unknown parameter                 422 invalid_request           /query/status
"""


def test_every_refused_request(api: Api) -> None:
    requests = _requests(api)
    lines = REQUESTS.strip().splitlines()[1:]
    assert [line[:37].strip() for line in lines] == list(requests)
    for line in lines:
        status, code, pointer = (*line[37:].split(), None)[:3]
        assert_problem(requests[line[:37].strip()](), int(str(status)), str(code), pointer)


def test_an_event_without_a_cost_in_the_filter_names_the_filters_that_have_one(api: Api) -> None:
    budget = api.budget({"kind": "pure_dp", "epsilon": 1})
    problem = assert_problem(api.reserve(budget["id"], [gaussian(1.0)]), 422, "no_cost_in_filter")
    assert all(kind in problem["detail"] for kind in ("renyi_dp", "zcdp", "gaussian_dp", "approximate_dp"))


def test_a_price_that_may_take_minutes_is_given_up_in_time(api: Api, context: Context) -> None:
    context.processes.seconds = 0.0
    allocation = {"kind": "random_allocation", "num_bins": 7, "participations": 1}
    kept = api.budget(filter={"kind": "renyi_dp", "epsilon": 3, "delta": 1e-5})["id"]
    problem = assert_problem(
        api.reserve(kept, [gaussian(2.0, count=7) | {"sampling": allocation}]), 422, "unsupported", "/events"
    )
    assert "longer than 0 s" in problem["detail"]
    assert api.reserve(kept, [gaussian(8.0)]).status_code == 201, "a closed form needs no process"


def test_a_denial_for_want_of_room_comes_after_what_is_wrong_with_the_request(api: Api) -> None:
    budget = api.budget({"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5})
    too_much = [gaussian(0.1)]
    assert_problem(api.reserve(budget["id"], too_much), 422, "missing_charge_delta")
    assert_problem(api.reserve(budget["id"], too_much, charge={"delta": 1e-6}), 409, "budget_exceeded")
    path = f"/v1/budgets/{budget['id']}/reservations"
    assert_problem(api.client.post(path, json={"events": too_much, "purpose": "p"}), 400, "idempotency_key_missing")


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
    ({"charge": {}}, "/charge/delta"),
    ({"charge": {"delta": 0}}, "/charge/delta"),
    ({"charge": {"delta": 0.6}}, "/charge/delta"),
    ({"charge": {"delta": "1e-6"}}, "/charge/delta"),
]


def test_a_malformed_reservation_is_refused_where_it_is_wrong(api: Api) -> None:
    budget = api.budget()
    for fields, pointer in MALFORMED:
        body = {"events": [zcdp(0.1)], "purpose": "mean", **fields}
        response = api.post(f"/v1/budgets/{budget['id']}/reservations", body)
        assert response.status_code == 422, fields
        assert_problem(response, 422, response.json()["code"], pointer)
    assert api.get(f"/v1/budgets/{budget['id']}/reservations").json()["items"] == []


def test_a_malformed_command_is_refused_where_it_is_wrong(api: Api) -> None:
    held = api.hold(api.budget()["id"], EVENTS)
    for command, body, pointer in (
        ("start", {"at": "once"}, "/at"),
        ("void", {"reason": "x"}, "/reason"),
        ("extend", {"expires_in": 0}, "/expires_in"),
        ("extend", {"expires_in": 30 * 24 * 3600 + 1}, "/expires_in"),
        ("extend", {"until": "2027-01-01T00:00:00Z"}, "/until"),
        ("commit", {"events": []}, "/events"),
        ("commit", {"charge": {"delta": 1e-6}}, "/charge"),
    ):
        response = api.resolve(held, command, body)
        assert_problem(response, 422, "invalid_request", pointer)
    assert api.kinds(held["budget_id"]) == ["create", "reserve"]
