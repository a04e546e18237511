"""Changing a limit by hand: kind, orders and what is used stay."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.filters.renyi_dp import MIRONOV, RenyiFilter
from app.context import Context
from app.kit.ids import new_id
from app.ledger.journal import open_budget
from app.ledger.verification import verify
from app.tables.ledger import Budget
from tests.app.budgets.conftest import Api, gaussian, made, zcdp
from tests.app.problem_assertions import assert_problem


def rho(value: Any) -> dict[str, Any]:
    return {"kind": "zcdp", "rho": value}


def test_a_limit_is_raised_and_lowered_to_what_is_used(api: Api) -> None:
    budget = api.budget()
    api.spend(budget["id"], [zcdp(0.25)])
    started, pending = api.hold(budget["id"], [zcdp(0.25)]), api.hold(budget["id"], [zcdp(0.25)])
    made(api.resolve(started, "start"))
    for limit, remaining in (("2", 1.25), (0.75, 0), ("1.5", 0.75)):
        answer = api.change_limit(budget["id"], rho(limit))
        assert answer.status_code == 200
        body = answer.json()
        assert (body["amounts"]["limit"], body["amounts"]["remaining"]) == ({"rho": float(limit)}, {"rho": remaining})
        assert (body["amounts"]["spent"], body["amounts"]["reserved"]) == ({"rho": 0.25}, {"rho": 0.5})
        assert body == {name: value for name, value in api.read(budget["id"]).items() if name in body} | {
            "report": None
        }
    denied = assert_problem(api.change_limit(budget["id"], rho("0.749999999")), 409, "limit_below_use")
    assert denied["decided_at"] == "2026-05-01T00:00:00Z"
    # A hold that is given back lowers what is used.
    made(api.resolve(pending, "void"))
    assert made(api.change_limit(budget["id"], rho(0.5)))["amounts"]["remaining"] == {"rho": 0}


def test_an_entry_says_the_new_limit_and_why(api: Api) -> None:
    budget = api.budget()
    made(api.change_limit(budget["id"], rho("2.0000000009")))
    create, limit = api.entries(budget["id"])
    assert (create["kind"], create["amount"], create["reason"]) == ("create", {"rho": 1}, None)
    assert (limit["kind"], limit["amount"], limit["reason"]) == ("limit", {"rho": 2}, "approved")
    assert (limit["events"], limit["reservation_id"], limit["purpose"]) == ([], None, None)
    assert limit["previous_hash"] == create["hash"]


def test_a_new_limit_changes_what_is_left_in_the_report_and_not_what_was_charged(api: Api) -> None:
    budget = api.budget({"kind": "pure_dp", "epsilon": 1}, report_delta=1e-5)
    api.spend(budget["id"], [{"mechanism": {"kind": "pure_dp", "epsilon": 0.25}}])
    before = api.read(budget["id"])
    made(api.change_limit(budget["id"], {"kind": "pure_dp", "epsilon": 3}))
    after = api.read(budget["id"])
    assert (before["report"]["left"], after["report"]["left"]) == (0.75, 2.75)
    assert after["report"] == before["report"] | {"left": 2.75}


def test_the_limit_of_a_parent_binds_its_children_at_once(api: Api) -> None:
    root = api.budget()
    child = api.child(root, rho(5))
    api.spend(child["id"], [zcdp(0.5)])
    made(api.change_limit(root["id"], rho(0.75)))
    assert api.read(child["id"])["amounts"]["remaining"] == {"rho": 0.25}
    assert_problem(api.reserve(child["id"], [zcdp(0.3)]), 409, "budget_exceeded")
    assert_problem(api.change_limit(root["id"], rho(0.4)), 409, "limit_below_use")
    made(api.change_limit(root["id"], rho(2)))
    # A child's own limit may be above its parent's, or below.
    made(api.change_limit(child["id"], rho(0.6)))
    assert_problem(api.reserve(child["id"], [zcdp(0.2)]), 409, "budget_exceeded")
    assert api.kinds(child["id"]) == ["create", "reserve", "start", "commit", "limit"]


def test_a_renyi_limit_keeps_its_orders(api: Api) -> None:
    budget = api.budget({"epsilon": 2, "delta": 1e-5, "orders": [16, 64]})
    api.spend(budget["id"], [gaussian(10.0, 4)])
    changed = made(api.change_limit(budget["id"], {"kind": "renyi_dp", "epsilon": 3, "delta": 1e-6}))
    limit = {"kind": "renyi_dp", "epsilon": 3, "delta": 1e-6, "orders": [16, 64]}
    assert changed["filter"] == limit | {"conversion": "canonne_2020"}
    same = {"epsilon": 4, "delta": 1e-6, "orders": [16.0, 64]}
    assert made(api.change_limit(budget["id"], same))["amounts"]["limit"]["epsilon"] == 4
    # Some order must still be within its cap. At 0.7 both are closed to what is spent.
    assert_problem(api.change_limit(budget["id"], {"epsilon": 0.7, "delta": 1e-5}), 409, "limit_below_use")


REFUSED = """
limit                    answer
no such budget           404 not_found
another kind             422 invalid_value    /filter/kind
the default kind         422 invalid_value    /filter/kind
other orders             422 invalid_value    /filter/orders
no open order            422 invalid_value    /filter/epsilon
below what is used       409 limit_below_use
no limit                 422 invalid_request  /filter/rho
no reason                422 invalid_request  /reason
"""


def test_every_refused_limit(api: Api) -> None:
    zcdp_budget = api.budget()["id"]
    renyi = api.budget({"epsilon": 3, "delta": 1e-5, "orders": [8, 16]})["id"]
    api.spend(zcdp_budget, [zcdp(0.5)])
    asked: dict[str, tuple[str, Any]] = {
        "no such budget": ("bud_nope", rho(1)),
        "another kind": (zcdp_budget, {"kind": "pure_dp", "epsilon": 1}),
        "the default kind": (zcdp_budget, {"epsilon": 1, "delta": 1e-5}),
        "other orders": (renyi, {"epsilon": 3, "delta": 1e-5, "orders": [8]}),
        "no open order": (renyi, {"epsilon": 0.1, "delta": 1e-5}),
        "below what is used": (zcdp_budget, rho(0.4)),
        "no limit": (zcdp_budget, {"kind": "zcdp"}),
        "no reason": (zcdp_budget, None),
    }
    lines = REFUSED.strip().splitlines()[1:]
    assert [line[:25].strip() for line in lines] == list(asked)
    for line in lines:
        budget_id, budget_filter = asked[line[:25].strip()]
        status, code, pointer = (*line[25:].split(), None)[:3]
        body = {"filter": rho(1)} if budget_filter is None else {"filter": budget_filter, "reason": "r"}
        answer = api.post(f"/v1/budgets/{budget_id}/limit", body)
        assert_problem(answer, int(str(status)), str(code), pointer)
    assert "limit" not in api.kinds(zcdp_budget) + api.kinds(renyi)


def test_a_limit_that_is_too_low_is_told_how_low_it_may_be(api: Api) -> None:
    budget = api.budget()
    api.spend(budget["id"], [zcdp(0.1)])
    api.hold(budget["id"], [zcdp(0.2)])
    problem = assert_problem(api.change_limit(budget["id"], {"kind": "zcdp", "rho": 0.29}), 409, "limit_below_use")
    assert problem["used"] == {"rho": 0.3}
    assert api.change_limit(budget["id"], {"kind": "zcdp", "rho": 0.3}).status_code == 200


@pytest.mark.parametrize("moment", ["yesterday", "2026-01-01T00:00:00"])
def test_a_moment_that_is_none_is_told_what_one_looks_like(api: Api, moment: str) -> None:
    answer = api.get(f"/v1/budgets/{api.budget()['id']}/entries", after=moment)
    problem = assert_problem(answer, 422, "invalid_request", "/query/after")
    assert "2026-01-31T00:00:00Z" in problem["detail"]


def test_an_old_renyi_budget_gets_the_larger_caps_by_a_recorded_change(api: Api, context: Context) -> None:
    """A new one has them at once; the plan is between the caps of both."""
    limit = {"kind": "renyi_dp", "epsilon": 2, "delta": 1e-5, "orders": [16, 64]}
    new, old = api.budget(limit), RenyiFilter(2.0, 1e-5, (16.0, 64.0), MIRONOV)
    row = Budget(
        id=new_id("bud"),
        name="old",
        neighboring_relation="add_or_remove_one",
        privacy_unit="record",
        filter=old,
        report_delta=None,
        labels={},
        principal_id="loopback",
        created_at=context.clock(),
        parent_id=None,
    )
    row.path = budget_id = row.id
    with context.database.write() as session:
        open_budget(session, row)
    plan = [gaussian(10.0, 16)]
    assert all(a < b for a, b in zip(old.caps, RenyiFilter(2.0, 1e-5, (16.0, 64.0)).caps, strict=True))
    api.hold(new["id"], plan)
    before = api.read(budget_id)
    assert "conversion" not in before["filter"]
    assert_problem(api.reserve(budget_id, plan), 409, "budget_exceeded")
    api.hold(budget_id, [gaussian(10.0, 4)])
    changed = made(api.change_limit(budget_id, limit))
    assert changed["filter"]["conversion"] == "canonne_2020"
    assert changed["amounts"]["limit"] == new["amounts"]["limit"]
    assert changed["epsilon"]["left"] > api.read(new["id"])["epsilon"]["left"]
    api.hold(budget_id, [gaussian(10.0, 12)])
    assert api.kinds(budget_id) == ["create", "reserve", "limit", "reserve"]
    with context.database.read() as session:
        verdict = verify(session)
    assert verdict.valid, verdict.in_words()
