"""Ledgers in which everything has happened that can happen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from accounting import ENGINE_VERSION
from accounting.events import Event, Gaussian, Poisson, ZcDp
from accounting.filters import PrivacyFilter, RenyiFilter, ZcdpFilter
from app.context import Context
from app.kit.ids import new_id
from app.ledger.commands import (
    BudgetCommand,
    ChangeLimit,
    Charge,
    Commit,
    Correct,
    Expire,
    Extend,
    Quote,
    Reserve,
    Resolution,
    Start,
    Void,
)
from app.ledger.journal import Instruction, carry_out, open_budget
from app.ledger.rows import reservation_state
from app.reservations.repository import find
from app.tables.ledger import Budget
from app.tables.states import Amounts
from tests.app.budgets.conftest import Api, Clock, gaussian, made, zcdp


def lived_in(api: Api, clock: Clock) -> dict[str, Any]:
    """A tree of three budgets with a reservation of every fate, corrections and a changed limit; its root."""
    root: dict[str, Any] = api.budget({"kind": "zcdp", "rho": "5"}, labels={"a": "b"}, report_delta=1e-6)
    left, right = api.child(root, {"kind": "zcdp", "rho": "2"}), api.child(root, {"kind": "zcdp", "rho": "4"})
    events = [zcdp(0.1, count=3), gaussian(10.0, count=2, sampling_probability=0.1)]
    api.spend(left["id"], events, purpose="spent")
    part = api.hold(right["id"], events, purpose="part")
    made(api.resolve(part, "commit", {"events": [{**events[0], "count": 2}]}))
    made(api.resolve(api.hold(root["id"], events, purpose="voided"), "void"))
    made(api.resolve(api.hold(left["id"], events, purpose="started", expires_in=60), "start"))
    released = api.hold(right["id"], events, purpose="released", expires_in=60)
    corrected = api.spend(right["id"], events, purpose="corrected")
    clock.advance(3600)
    made(api.resolve(api.hold(left["id"], [zcdp(0.2)], purpose="extended"), "extend", {"expires_in": 7200}))
    made(api.correct(right["id"], reservation_id=corrected["id"], events=[zcdp(0.4)]))
    made(api.correct(root["id"], events=[zcdp(0.05)]))
    made(api.change_limit(left["id"], {"kind": "zcdp", "rho": "3"}))
    for decision in ("refuse", "withdraw", None):
        body = {"filter": {"kind": "zcdp", "rho": "4.5"}, "reason": f"to {decision}"}
        asked = made(api.post(f"/v1/budgets/{right['id']}/limit-requests", body))
        if decision is not None:
            reason = {"reason": "no"} if decision == "refuse" else None
            made(api.post(f"/v1/limit-requests/{asked['id']}/{decision}", reason))
    # Releases what is due, to make room.
    api.hold(right["id"], [zcdp(3.1)], purpose="large")
    assert api.state(released) == "expired"
    return root


def at_random(context: Context, clock: Clock, seed: int, commands: int) -> list[str]:
    """Trees of budgets to which random commands have happened, many of them denied; the ids of all budgets."""
    rng = random.Random(seed)
    ids = [
        budget_id
        for budget_filter in (ZcdpFilter(1.0), RenyiFilter(3.0, 1e-6))
        for budget_id in _open_tree(context, budget_filter, rng)
    ]
    filters = dict(_filters(context, ids))
    reservations: list[str] = []
    for _ in range(commands):
        clock.advance(rng.randrange(40))
        target, command = _command(rng, context, ids, filters, reservations)
        with context.database.write() as session:
            carry_out(
                session, context.database, [Instruction(command, rng.choice(["loopback", "service"]), target)], clock()
            )
    return ids


def _open_tree(context: Context, budget_filter: PrivacyFilter, rng: random.Random) -> list[str]:
    paths: list[str] = []
    for number in range(5):
        budget_id = new_id("bud")
        parent = None if number == 0 else rng.choice(paths)
        paths.append(budget_id if parent is None else f"{parent}/{budget_id}")
        budget = Budget(
            id=budget_id,
            name=f"budget {number}",
            neighboring_relation="add_or_remove_one",
            privacy_unit="record",
            filter=budget_filter,
            report_delta=None,
            labels={},
            principal_id="loopback",
            created_at=context.clock(),
            parent_id=None if parent is None else parent.rpartition("/")[2],
            path=paths[-1],
        )
        with context.database.write() as session:
            open_budget(session, budget)
    return [path.rpartition("/")[2] for path in paths]


def _filters(context: Context, ids: Sequence[str]) -> list[tuple[str, PrivacyFilter]]:
    with context.database.read() as session:
        return [(budget_id, session.get_one(Budget, budget_id).filter) for budget_id in ids]


def _command(
    rng: random.Random, context: Context, ids: Sequence[str], filters: dict[str, PrivacyFilter], known: list[str]
) -> tuple[str, BudgetCommand | Resolution]:
    now, budget_id = context.clock(), rng.choice(ids)
    events, quote = _priced(rng, filters[budget_id])
    if rng.random() < 0.4 or not known:
        known.append(new_id("res"))
        expires_at = now + timedelta(seconds=rng.randrange(1, 200))
        return budget_id, Reserve(known[-1], events, quote, expires_at, purpose=rng.choice("xyz"))
    if rng.random() < 0.05:
        return budget_id, Charge(new_id("res"), events, quote, "told late")
    if rng.random() < 0.05:
        limit = filters[budget_id].with_limit(
            {"epsilon": 4.0} if filters[budget_id].kind == "renyi_dp" else {"rho": 2.0}
        )
        return budget_id, ChangeLimit(limit, "more")
    target = rng.choice(known[-12:])
    with context.database.read() as session:
        row = find(session, target)
        budget_id = budget_id if row is None else row.budget_id
        priced = () if row is None else reservation_state(row).priced_events
    events, quote = _priced(rng, filters[budget_id])
    return target, rng.choice(
        [
            Start(),
            Start(),
            Commit(),
            Commit(),
            Void(),
            Expire(),
            Extend(now + timedelta(seconds=300)),
            Correct(quote, "dearer", priced=priced),
            Correct(quote, "something else", events, may_lower=True),
        ]
    )


def _priced(rng: random.Random, budget_filter: PrivacyFilter) -> tuple[tuple[Event, ...], Quote]:
    """Events, and amounts that are as good as their price: the books add up whatever the numerics say."""
    if budget_filter.kind == "zcdp":
        events: tuple[Event, ...] = (Event(ZcDp(0.001), count=rng.randrange(1, 60)),)
    else:
        events = (Event(Gaussian(rng.choice([2.0, 3.0])), Poisson(0.1), rng.randrange(1, 5)), Event(Gaussian(20.0)))
    amounts: Amounts = tuple(rng.randrange(10**8) for _ in budget_filter.caps)
    return events, Quote(amounts, ENGINE_VERSION)
