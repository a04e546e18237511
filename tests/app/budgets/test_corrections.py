"""Corrections: what was charged becomes what should have been, and a truth past the limit is told all the same."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.filters import ApproximateDpFilter, Cost, ZcdpFilter
from app.auth.principal import Scope
from app.context import Context
from app.ledger import pricing
from app.reservations import quotes
from tests.app.budgets.conftest import Api, ApiOf, audit_all, gaussian, made, zcdp
from tests.app.ledger.audit import audit
from tests.app.problem_assertions import assert_problem

DELTA = 1e-5


@pytest.fixture
def later_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that finds every cost too low by a half."""

    def dearer(cost: Any) -> Any:
        def half_more(budget_filter: Any, *arguments: Any) -> Any:
            found = cost(budget_filter, *arguments)
            first, *rest = found.amounts
            return Cost((-(-3 * first // 2), *rest), found.warnings)

        return half_more

    monkeypatch.setattr(pricing, "ENGINE_VERSION", "later")
    for filter_class in (ZcdpFilter, ApproximateDpFilter):
        monkeypatch.setattr(filter_class, "cost", dearer(filter_class.cost))
    monkeypatch.setattr(pricing, "_PRICES", {})


def test_more_happened_than_was_reserved(api: Api) -> None:
    budget = api.budget(report_delta=DELTA)
    committed = api.spend(budget["id"], [zcdp(0.1, 3)])
    before = api.read(budget["id"])["report"]
    answer = api.correct(budget["id"], reservation_id=committed["id"], events=[zcdp(0.1, 5)])
    corrected = answer.json()
    assert answer.status_code == 201
    assert (corrected["state"], corrected["charged"], corrected["cost"]) == ("committed", {"rho": 0.5}, {"rho": 0.3})
    assert (corrected["corrected"], corrected["charged_events"][0]["count"]) == (True, 5)
    assert api.get(f"/v1/reservations/{committed['id']}").json() == corrected
    assert api.rho(budget["id"]) == (0.5, 0, 0.5)
    entry = api.entries(budget["id"])[-1]
    assert (entry["kind"], entry["amount"], entry["reason"]) == ("correct", {"rho": 0.5}, "told by mistake")
    assert (entry["reservation_id"], entry["events"][0]["count"]) == (committed["id"], 5)
    after = api.read(budget["id"])["report"]
    assert after["epsilon"]["lower"] > before["epsilon"]["upper"]


def test_something_else_happened_than_was_reserved(api: Api) -> None:
    budget = api.budget(report_delta=DELTA)
    committed = api.spend(budget["id"], [zcdp(0.1)])
    made(api.correct(budget["id"], reservation_id=committed["id"], events=[gaussian(2.0, 2)]))
    alike = api.budget(report_delta=DELTA)
    api.spend(alike["id"], [gaussian(2.0, 2)])
    assert api.read(budget["id"])["report"] == api.read(alike["id"])["report"]


def test_another_delta_of_a_correction_is_the_one_that_a_later_price_takes(api: Api, context: Context) -> None:
    budget = api.budget({"kind": "approximate_dp", "epsilon": 8, "delta": 1e-4})
    committed = api.spend(budget["id"], [gaussian(2.0)], charge={"delta": 1e-6})
    named = {"reservation_id": committed["id"]}
    corrected = made(api.correct(budget["id"], **named, events=[gaussian(2.0, 3)], charge={"delta": 1e-5}))
    assert (corrected["charge_delta"], corrected["charged"]["delta"]) == (1e-5, 1e-5)
    again = made(api.correct(budget["id"], **named))
    assert again["charged"] == corrected["charged"]
    with context.database.read() as session:
        assert audit(session, budget["id"]).reservations[committed["id"]].charge_delta == 1e-5


def test_less_happened_than_was_charged(api: Api) -> None:
    budget = api.budget(report_delta=DELTA)
    committed = api.spend(budget["id"], [zcdp(0.1, 3)])
    for events, rho in (([zcdp(0.1, 2)], 0.2), ([], 0.0), ([zcdp(0.1)], 0.1)):
        lowered = made(api.correct(budget["id"], reservation_id=committed["id"], events=events))
        assert (lowered["charged"], lowered["charged_events"]) == (
            {"rho": rho},
            lowered["charged_events"][: len(events)],
        )
        assert api.rho(budget["id"]) == (rho, 0, 1 - rho)
        report = api.read(budget["id"])["report"]
        assert (report["method"] == "nothing_charged") == (not events)


def test_lowering_takes_the_scope_corrections(api_of: ApiOf, context: Context) -> None:
    owner, corrector = api_of(Scope.OWNER), api_of(Scope.CORRECTIONS)
    admin = api_of(Scope.ADMIN)
    budget = owner.budget()
    committed = owner.spend(budget["id"], [zcdp(0.1, 3)])
    lower = {"reservation_id": committed["id"], "events": [zcdp(0.1, 2)]}
    assert_problem(owner.correct(budget["id"], **lower), 403, "correction_lowers")
    assert owner.kinds(budget["id"]) == ["create", "reserve", "start", "commit"]
    made(owner.correct(budget["id"], reservation_id=committed["id"], events=[zcdp(0.1, 4)]))
    made(owner.correct(budget["id"], reservation_id=committed["id"], events=[zcdp(0.1, 4)]))
    assert made(corrector.correct(budget["id"], **lower))["charged"] == {"rho": 0.2}
    made(admin.correct(budget["id"], reservation_id=committed["id"], events=[]))
    principals = [entry["principal_id"] for entry in owner.entries(budget["id"]) if entry["kind"] == "correct"]
    assert len(set(principals)) == 3
    assert principals[0] == principals[1]


def test_a_later_engine_raises_what_it_finds_too_low(
    api: Api, context: Context, request: pytest.FixtureRequest
) -> None:
    budget = api.budget({"kind": "zcdp", "rho": 2}, report_delta=DELTA)
    held = {name: api.hold(budget["id"], [zcdp(0.1, 2)]) for name in ("pending", "started", "committed", "part")}
    made(api.resolve(held["started"], "start"))
    made(api.resolve(held["committed"], "commit"))
    made(api.resolve(held["part"], "commit", {"events": [zcdp(0.1)]}))
    for each in held.values():
        same = made(api.correct(budget["id"], reservation_id=each["id"]))
        assert same["corrected"] is False
    assert api.rho(budget["id"]) == (0.3, 0.4, 1.3)
    report = api.read(budget["id"])["report"]
    request.getfixturevalue("later_engine")
    for name, field in (("pending", "cost"), ("started", "cost"), ("committed", "charged"), ("part", "charged")):
        repriced = made(api.correct(budget["id"], reservation_id=held[name]["id"]))
        assert repriced[field] == {"rho": 0.15 if name == "part" else 0.3}
        assert (repriced["state"], repriced["corrected"]) == ("committed" if name == "part" else name, False)
    assert api.rho(budget["id"]) == (0.45, 0.6, 0.95)
    assert api.read(budget["id"])["amounts"]["started"] == {"rho": 0.3}
    # The events are what they were.
    assert api.read(budget["id"])["report"]["epsilon"] == report["epsilon"]
    assert api.read(budget["id"])["report"]["filter_epsilon"] > report["filter_epsilon"]
    assert {entry["engine_version"] for entry in api.entries(budget["id"])[-4:]} == {"later"}
    with context.database.read() as session:
        assert audit(session, budget["id"]).reservations[held["pending"]["id"]].engine_version == "later"
    made(api.resolve(held["started"], "commit"))
    made(api.resolve(held["pending"], "void"))
    assert api.rho(budget["id"]) == (0.75, 0, 1.25)


def test_a_price_alone_is_never_lowered(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = api.budget()
    committed = api.spend(budget["id"], [zcdp(0.1, 3)])
    monkeypatch.setattr(pricing, "_PRICES", {})
    monkeypatch.setattr(ZcdpFilter, "cost", lambda *_: Cost((1,)))
    assert made(api.correct(budget["id"], reservation_id=committed["id"]))["charged"] == {"rho": 0.3}
    assert api.rho(budget["id"]) == (0.3, 0, 0.7)


def test_a_part_that_was_charged_in_full_is_repriced_in_full(api: Api, request: pytest.FixtureRequest) -> None:
    budget = api.budget({"kind": "approximate_dp", "epsilon": 9, "delta": 1e-4})
    held = api.hold(budget["id"], [gaussian(10.0, 9)], charge={"delta": 1e-6})
    made(api.resolve(held, "commit", {"events": [gaussian(10.0)]}))
    request.getfixturevalue("later_engine")
    for _ in range(2):
        repriced = made(api.correct(budget["id"], reservation_id=held["id"]))
        assert repriced["charged"]["epsilon"] == pytest.approx(1.5 * held["cost"]["epsilon"], abs=2e-9)
        assert repriced["charged"]["delta"] == 1e-6


def test_a_part_that_is_committed_while_the_whole_is_priced_again_is_charged_as_a_part(
    api: Api, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = api.budget()
    held = api.hold(budget["id"], [zcdp(0.1, 5)])
    made(api.resolve(held, "start"))
    quote, is_committed = quotes.quote, False

    def overtaken(*arguments: Any, **options: Any) -> Any:
        nonlocal is_committed
        found = quote(*arguments, **options)
        if not is_committed:
            is_committed = True
            made(api.resolve(held, "commit", {"events": [zcdp(0.1, 2)]}))
        return found

    monkeypatch.setattr(quotes, "quote", overtaken)
    corrected = made(api.correct(budget["id"], reservation_id=held["id"]))
    assert is_committed
    assert corrected["charged"] == {"rho": 0.2}
    assert api.rho(budget["id"]) == (0.2, 0, 0.8)
    audit_all(context)


def test_what_no_reservation_held_is_charged(api: Api) -> None:
    root = api.budget(report_delta=DELTA)
    child = api.child(root)
    charged = made(api.correct(child["id"], events=[zcdp(0.1, 2)], reason="a mean, published by hand"))
    assert (charged["state"], charged["charged"], charged["cost"]) == ("committed", {"rho": 0.2}, {"rho": 0.2})
    assert (charged["corrected"], charged["purpose"]) == (True, "a mean, published by hand")
    assert charged["created_at"] == charged["resolved_at"] == charged["expires_at"] == "2026-05-01T00:00:00Z"
    assert api.rho(child["id"]) == (0.2, 0, 0.8)
    assert api.rho(root["id"]) == (0.2, 0, 0.8)
    (entry,) = api.entries(child["id"])[1:]
    assert (entry["kind"], entry["amount"], entry["reason"]) == ("correct", {"rho": 0.2}, "a mean, published by hand")
    assert entry["reservation_id"] == charged["id"]
    assert api.read(root["id"])["report"]["epsilon"]["upper"] > 0
    listed = api.get(f"/v1/budgets/{child['id']}/reservations", state="committed").json()["items"]
    assert listed == [charged]
    assert_problem(api.resolve(charged, "commit"), 409, "already_resolved")
    # It can be corrected in its turn.
    made(api.correct(child["id"], reservation_id=charged["id"], events=[zcdp(0.1)]))
    assert api.rho(root["id"]) == (0.1, 0, 0.9)


def test_a_truth_past_the_limit_overdraws_and_nothing_is_admitted_until_there_is_room(api: Api) -> None:
    root = api.budget({"kind": "zcdp", "rho": "1"})
    child, sibling = api.child(root, {"kind": "zcdp", "rho": 5}), api.child(root)
    held = api.hold(child["id"], [zcdp(0.5)])
    made(api.correct(child["id"], events=[zcdp(0.75)]))
    assert [api.read(budget["id"])["overdrawn"] for budget in (root, child, sibling)] == [True, False, False]
    assert api.rho(root["id"]) == (0.75, 0.5, 0)
    nothing = zcdp(0.0)
    for budget in (root, child, sibling):
        denied = assert_problem(api.reserve(budget["id"], [nothing]), 409, "budget_exceeded")
        assert (denied["budget_id"], denied["largest_count_that_fits"]) == (root["id"], 0)
        assert denied["remaining"] == {"rho": 0}
    # What is held is not taken back, and more truths are told.
    made(api.resolve(held, "start"))
    made(api.correct(sibling["id"], events=[zcdp(0.25)]))
    assert api.rho(root["id"]) == (1, 0.5, 0)
    assert_problem(api.change_limit(root["id"], {"kind": "zcdp", "rho": "1.499999999"}), 409, "limit_below_use")
    raised = made(api.change_limit(root["id"], {"kind": "zcdp", "rho": "1.5"}))
    assert (raised["overdrawn"], raised["amounts"]["remaining"]) == (False, {"rho": 0})
    made(api.reserve(child["id"], [nothing]))
    made(api.resolve(held, "commit"))
    assert api.rho(root["id"]) == (1.5, 0, 0)


def test_a_correction_that_lowers_makes_room_again(api: Api) -> None:
    budget = api.budget()
    charged = made(api.correct(budget["id"], events=[zcdp(0.5, 3)]))
    assert api.read(budget["id"])["overdrawn"] is True
    made(api.correct(budget["id"], reservation_id=charged["id"], events=[zcdp(0.5)]))
    assert (api.read(budget["id"])["overdrawn"], api.rho(budget["id"])) == (False, (0.5, 0, 0.5))
    made(api.reserve(budget["id"], [zcdp(0.5)]))


def _refused(api: Api) -> dict[str, tuple[str, dict[str, Any]]]:
    """Corrections that are refused: of which budget, and what is asked."""
    budget = api.budget()["id"]
    pure = api.budget({"kind": "pure_dp", "epsilon": 1})["id"]
    approximate = api.budget({"kind": "approximate_dp", "epsilon": 9, "delta": 1e-5})["id"]
    pending, started, committed, voided = (api.hold(budget, [zcdp(0.1)])["id"] for _ in range(4))
    for held, command in ((started, "start"), (committed, "commit"), (voided, "void")):
        made(api.resolve({"id": held}, command))
    more = {"events": [zcdp(0.2)]}
    return {
        "no such budget": ("bud_nope", more),
        "no such budget, a reservation": ("bud_nope", {"reservation_id": committed, **more}),
        "no such reservation": (budget, {"reservation_id": "res_nope", **more}),
        "a budget's id": (budget, {"reservation_id": budget, **more}),
        "another budget's": (pure, {"reservation_id": committed, **more}),
        "neither": (budget, {}),
        "nothing happened, and none held it": (budget, {"events": []}),
        "pending": (budget, {"reservation_id": pending, **more}),
        "started": (budget, {"reservation_id": started, **more}),
        "voided": (budget, {"reservation_id": voided, **more}),
        "voided, reprice": (budget, {"reservation_id": voided}),
        "no cost in the filter": (pure, {"events": [gaussian(1.0)]}),
        "a delta is missing": (approximate, {"events": [gaussian(9.0)]}),
        "a delta too much": (budget, {**more, "charge": {"delta": 1e-6}}),
        "no reason": (budget, {**more, "reason": ""}),
    }


REFUSED = """
correction                           answer
no such budget                       404 not_found
no such budget, a reservation        404 not_found
no such reservation                  404 not_found
a budget's id                        404 not_found
another budget's                     422 other_budget             /reservation_id
neither                              422 missing                  /events
nothing happened, and none held it   422 missing                  /events
pending                              409 not_committed
started                              409 not_committed
voided                               409 not_committed
voided, reprice                      409 not_committed
no cost in the filter                422 no_cost_in_filter        /events/0/mechanism
a delta is missing                   422 missing_charge_delta     /charge/delta
a delta too much                     422 unexpected_charge_delta  /charge/delta
no reason                            422 invalid_request          /reason
"""


def test_every_refused_correction(api: Api) -> None:
    asked = _refused(api)
    lines = REFUSED.strip().splitlines()[1:]
    assert [line[:37].strip() for line in lines] == list(asked)
    for line in lines:
        budget_id, fields = asked[line[:37].strip()]
        status, code, pointer = (*line[37:].split(), None)[:3]
        assert_problem(api.correct(budget_id, **fields), int(str(status)), str(code), pointer)
    for item in api.get("/v1/budgets").json()["items"]:
        assert "correct" not in api.kinds(item["id"])
