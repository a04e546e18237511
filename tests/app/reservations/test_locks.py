"""No numerics while a lock is held: what an answer needs is found before the transaction, or after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy.orm import Session

from accounting.filters import RenyiFilter
from app.db.database import Database
from app.ledger import pricing
from tests.app.budgets.conftest import Api, gaussian
from tests.app.problem_assertions import assert_problem

FILTER = {"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5}
STEPS = [gaussian(10.0, 100, 0.2), gaussian(11.0, 50, 0.2), gaussian(60.0, 20)]


@dataclass
class Numerics:
    """How often the filter was asked for a cost, with a session open and without one."""

    inside: int = 0
    outside: int = 0
    sessions: threading.local = field(default_factory=threading.local)

    def count(self) -> None:
        if getattr(self.sessions, "open", 0):
            self.inside += 1
        else:
            self.outside += 1


@pytest.fixture
def numerics(monkeypatch: pytest.MonkeyPatch) -> Numerics:
    counted = Numerics()
    monkeypatch.setattr(pricing, "_PRICES", {})
    cost = RenyiFilter.cost

    def counted_cost(*arguments: Any) -> Any:
        counted.count()
        return cost(*arguments)

    def watched(opened: Callable[[Database], Any]) -> Any:
        @contextmanager
        def session_of(database: Database) -> Iterator[Session]:
            with opened(database) as session:
                counted.sessions.open = getattr(counted.sessions, "open", 0) + 1
                try:
                    yield session
                finally:
                    counted.sessions.open -= 1

        return session_of

    monkeypatch.setattr(RenyiFilter, "cost", counted_cost)
    monkeypatch.setattr(Database, "write", watched(Database.write))
    monkeypatch.setattr(Database, "read", watched(Database.read))
    return counted


def test_a_reservation_is_priced_before_the_lock(api: Api, numerics: Numerics) -> None:
    budget = api.budget(FILTER)
    api.hold(budget["id"], STEPS)
    assert numerics.outside > 0
    assert numerics.inside == 0


def test_what_would_have_fitted_is_found_after_the_lock(api: Api, numerics: Numerics) -> None:
    budget = api.budget(FILTER)
    api.hold(budget["id"], STEPS)
    too_much = [{**STEPS[0], "count": 20}, {**STEPS[1], "count": 10**5}, STEPS[2]]
    path, request = f"/v1/budgets/{budget['id']}/reservations", {"events": too_much, "purpose": "mean"}
    denied = assert_problem(api.post(path, request, key="d"), 409, "budget_exceeded")
    dry = assert_problem(api.post(path, request, dry_run="true"), 409, "budget_exceeded")
    fits = denied["largest_count_that_fits"]
    assert dry["largest_count_that_fits"] == fits
    assert 20 < fits < 10**5
    assert numerics.inside == 0
    before = numerics.outside
    again = assert_problem(api.post(path, request, key="d"), 409, "budget_exceeded")
    assert (again["largest_count_that_fits"], numerics.outside) == (fits, before)
    one_more = [too_much[0], {**STEPS[1], "count": fits - 19}]
    assert_problem(api.reserve(budget["id"], one_more), 409, "budget_exceeded")
    api.hold(budget["id"], [too_much[0], {**STEPS[1], "count": fits - 20}])


def test_a_prefix_is_priced_before_the_lock(api: Api, numerics: Numerics) -> None:
    held = api.hold(api.budget(FILTER)["id"], STEPS)
    before = numerics.outside
    part = [STEPS[0], {**STEPS[1], "count": 7}]
    answer = api.post(f"/v1/reservations/{held['id']}/commit", {"events": part})
    assert answer.json()["state"] == "committed"
    assert answer.json()["charged"]["epsilon"] < held["cost"]["epsilon"]
    assert numerics.outside > before
    assert numerics.inside == 0


def test_what_a_commit_refuses_or_charges_in_full_is_not_priced(api: Api, numerics: Numerics) -> None:
    held = api.hold(api.budget(FILTER)["id"], STEPS)
    before = numerics.outside
    path = f"/v1/reservations/{held['id']}/commit"
    assert_problem(api.post(path, {"events": [gaussian(9.0)]}), 422, "not_a_prefix")
    assert_problem(api.post("/v1/reservations/res_nope/commit", {"events": STEPS[:1]}), 404, "not_found")
    assert api.post(path, {"events": STEPS}).json()["charged"] == held["cost"]
    assert_problem(api.post(path, {"events": STEPS[:1]}), 409, "already_resolved")
    assert (numerics.outside, numerics.inside) == (before, 0)


def test_events_that_take_too_long_to_price_are_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = api.budget(FILTER)
    held = api.hold(budget["id"], STEPS)
    monkeypatch.setattr(pricing, "PRICE_SECONDS", -1.0)
    monkeypatch.setattr(pricing, "_PRICES", {})
    assert_problem(api.reserve(budget["id"], STEPS), 422, "unsupported", "/events")
    answer = api.post(f"/v1/reservations/{held['id']}/commit", {"events": STEPS[:2]})
    assert_problem(answer, 422, "unsupported", "/events")
    assert api.get(f"/v1/reservations/{held['id']}").json()["state"] == "pending"
    assert api.post(f"/v1/reservations/{held['id']}/commit").status_code == 200
