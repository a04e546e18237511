"""Spending by time, purpose, principal and mechanism: exactly what a sum over all charges says."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import make_url, select, text
from starlette.testclient import TestClient

from accounting import ENGINE_VERSION
from accounting.events import Event, Gaussian, Laplace, Poisson, ZcDp
from accounting.units import SATURATED
from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.kit.ids import new_id
from app.kit.timestamps import format_moment
from app.ledger.amounts import amounts_in_words
from app.ledger.commands import Charge, Commit, Quote, Reserve, Start
from app.ledger.journal import Instruction, carry_out
from app.ledger.verification import verify
from app.tables.ledger import Budget, Reservation
from app.tables.states import Amounts
from tests.app.budgets.conftest import Api, ApiOf, Clock, zcdp
from tests.app.problem_assertions import assert_problem

#: Just before and after the turn of a day, a month and a year.
MOMENTS = [
    datetime(2026, 5, 31, 23, 59, 59, tzinfo=UTC),
    datetime(2026, 6, 1, tzinfo=UTC),
    datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(2027, 1, 1, tzinfo=UTC),
    *(datetime(2027, 3, day, 12, tzinfo=UTC) for day in range(1, 8)),
]
PURPOSES = ["mean", "Mean", "é", "a, b", "z"]
MECHANISMS = [(Event(ZcDp(0.1)),), (Event(Gaussian(2.0), Poisson(0.1)), Event(ZcDp(0.1))), (Event(Laplace(3.0)),)]
FILTERS = [{"kind": "zcdp", "rho": "1000000"}, {"kind": "renyi_dp", "epsilon": 1e6, "delta": 1e-6}]


def spend_at_random(context: Context, clock: Clock, ids: list[str], seed: int) -> None:
    """Charges of all sizes, holds that are not charges, and amounts that are known to be beyond every limit."""
    rng = random.Random(seed)
    with context.database.read() as session:
        orders = len(session.get_one(Budget, ids[0]).spent)
    for _ in range(120):
        clock.now = rng.choice(MOMENTS)
        amounts: Amounts = tuple(rng.choice([0, 1, rng.randrange(10**9)]) for _ in range(orders))
        if rng.random() < 0.2:
            amounts = tuple(rng.choice([SATURATED, amount]) for amount in amounts)
        quote, events = Quote(amounts, ENGINE_VERSION), rng.choice(MECHANISMS)
        principal, budget_id, reservation_id = rng.choice(["loopback", "service"]), rng.choice(ids), new_id("res")
        commands: list[Any] = [Charge(reservation_id, events, quote, rng.choice(PURPOSES))]
        if max(amounts) < SATURATED and rng.random() < 0.7:
            purpose, expires_at = rng.choice(PURPOSES), clock.now + timedelta(hours=1)
            reserve = Reserve(reservation_id, events, quote, expires_at, purpose=purpose)
            commands = [reserve, Start(), Commit()][: rng.choice([1, 2, 3, 3, 3])]
        for command in commands:
            target = budget_id if command is commands[0] else reservation_id
            with context.database.write() as session:
                carry_out(session, context.database, [Instruction(command, principal, target)], clock.now)


KEYS: dict[str, Callable[[Reservation], str]] = {
    "day": lambda row: f"{row.resolved_at:%Y-%m-%d}",
    "month": lambda row: f"{row.resolved_at:%Y-%m}",
    "purpose": lambda row: row.purpose,
    "principal": lambda row: row.principal_id,
    "mechanism": lambda row: row.mechanisms.strip(","),
}


def added_up(context: Context, budget_id: str, group_by: str, keep: Callable[[Reservation], bool]) -> list[Any]:
    """What the endpoint must answer: one charge after the other, added up by Python."""
    with context.database.read() as session:
        budgets = [budget for budget in session.scalars(select(Budget)) if budget_id in budget.path.split("/")]
        statement = select(Reservation).where(Reservation.budget_id.in_([budget.id for budget in budgets]))
        charges = [row for row in session.scalars(statement) if row.state == "committed" and keep(row)]
    budget_filter = budgets[0].filter
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(budget_filter.caps))
    counts: dict[str, int] = defaultdict(int)
    moments: dict[str, datetime] = {}
    for row in charges:
        key = KEYS[group_by](row)
        assert row.charged is not None
        sums[key] = [a + b for a, b in zip(sums[key], row.charged, strict=True)]
        counts[key] += 1
        assert row.resolved_at is not None
        moments[key] = min(moments.get(key, row.resolved_at), row.resolved_at)
    rows, total = [], [0] * len(budget_filter.caps)
    for key in sorted(sums):
        total = [a + b for a, b in zip(total, sums[key], strict=True)]
        cumulative = amounts_in_words(budget_filter, tuple(total)) if group_by in ("day", "month") else None
        amount = amounts_in_words(budget_filter, tuple(sums[key]))
        name = {"loopback": "this machine", "service": "the service"}[key] if group_by == "principal" else None
        known = {"key": key, "name": name, "amount": amount, "charges": counts[key], "cumulative": cumulative}
        rows.append(known | {"first_at": format_moment(moments[key])})
    return rows


def pages(api: Api, budget_id: str, limit: int, **params: Any) -> list[Any]:
    rows, cursor = [], None
    while True:
        given = {**params, "limit": limit, **({} if cursor is None else {"cursor": cursor})}
        answer = api.get(f"/v1/budgets/{budget_id}/spending", **given)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert len(body["items"]) <= limit
        rows += body["items"]
        cursor = body["next_cursor"]
        if cursor is None:
            return rows


@pytest.mark.parametrize("budget_filter", FILTERS, ids=["zcdp", "renyi_dp"])
@pytest.mark.one_in(4)
def test_spending_is_what_a_plain_sum_says(
    client: TestClient, context: Context, clock: Clock, budget_filter: dict[str, Any]
) -> None:
    api = Api(client)
    root = api.budget(budget_filter)
    child, other = api.child(root, budget_filter), api.budget(budget_filter)
    grandchild = api.child(child, budget_filter)
    if not context.database.is_sqlite:
        in_another_time_zone(context.database)
    spend_at_random(context, clock, [root["id"], child["id"], grandchild["id"], other["id"]], seed=3)
    after, before = MOMENTS[1], MOMENTS[6]
    periods: list[tuple[dict[str, str], Callable[[Reservation], bool]]] = [
        ({}, lambda row: True),
        ({"after": "2026-06-01T00:00:00Z"}, lambda row: row.resolved_at is not None and row.resolved_at >= after),
        (
            {"after": "2026-06-01T02:00:00+02:00", "before": "2027-03-03T12:00:00Z"},
            lambda row: row.resolved_at is not None and after <= row.resolved_at < before,
        ),
    ]
    for budget_id in (root["id"], child["id"]):
        for group_by in KEYS:
            for params, keep in periods:
                expected = added_up(context, budget_id, group_by, keep)
                assert len(expected) > 1
                assert pages(api, budget_id, 200, group_by=group_by, **params) == expected
                assert pages(api, budget_id, 2, group_by=group_by, **params) == expected
    assert pages(api, root["id"], 5)[-1]["cumulative"] == api.read(root["id"])["amounts"]["spent"]
    with context.database.read() as session:
        assert verify(session).valid


def in_another_time_zone(database: Database) -> None:
    """Let the database's own days begin at another hour than those of UTC."""
    with database.engine.connect() as connection:
        connection.execute(text(f"ALTER DATABASE \"{make_url(database.url).database}\" SET timezone = 'Asia/Tokyo'"))
        connection.commit()
    database.engine.dispose()


def test_what_a_correction_changed_counts_where_the_charge_was_made(api: Api, clock: Clock) -> None:
    budget = api.budget()
    spent = api.spend(budget["id"], [zcdp(0.1)])
    clock.advance(3 * 24 * 3600)
    api.correct(budget["id"], reservation_id=spent["id"], events=[zcdp(0.3)])
    api.hold(budget["id"], [zcdp(0.1)])
    assert api.get(f"/v1/budgets/{budget['id']}/spending").json() == {
        "items": [
            {
                "key": "2026-05-01",
                "name": None,
                "amount": {"rho": 0.3},
                "charges": 1,
                "first_at": "2026-05-01T00:00:00Z",
                "cumulative": {"rho": 0.3},
            }
        ],
        "next_cursor": None,
    }


def test_nothing_spent_is_an_empty_list(api: Api) -> None:
    budget = api.budget()
    assert api.get(f"/v1/budgets/{budget['id']}/spending").json() == {"items": [], "next_cursor": None}


def test_mistaken_questions_are_refused(api: Api) -> None:
    path = f"/v1/budgets/{api.budget()['id']}/spending"
    assert_problem(api.get("/v1/budgets/bud_x/spending"), 404, "not_found")
    assert_problem(api.get(path, group_by="year"), 422, "invalid_request", "/query/group_by")
    assert_problem(api.get(path, after="2026-05-01"), 422, "invalid_request", "/query/after")
    assert_problem(api.get(path, limit=201), 422, "invalid_request", "/query/limit")
    assert_problem(api.get(path, cursor="nonsense"), 422, "invalid_cursor", "/query/cursor")
    assert_problem(api.get(path, purpose="mean"), 422, "invalid_request", "/query/purpose")


def test_everyone_who_may_read_a_budget_may_read_its_spending(api: Api, api_of: ApiOf) -> None:
    path = f"/v1/budgets/{api.budget()['id']}/spending"
    for scope in (Scope.OWNER, Scope.ANALYST, Scope.AUDITOR):
        assert api_of(scope).get(path).status_code == 200
    assert_problem(api_of(Scope.LIMITS).get(path), 403, "forbidden")
