"""A wall clock that is ten years off, either way: it moves what has a date, and nothing that takes time.

Leases of runs, which go by monotonic clocks: `tests/app/runs/test_leases.py`. Holds: `tests/app/reservations`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from app.auth import service as keys
from app.auth.principal import Scope
from app.context import Context
from app.main import create_app
from tests.app.problem_assertions import assert_problem
from tests.local_access import local_client

TEN_YEARS = timedelta(days=3650)
BUDGET = {"name": "a", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
EVENTS = [{"mechanism": {"kind": "zcdp", "rho": 0.25}}]


class WallClock:
    """Shows what it is told."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.mark.parametrize("jump", [TEN_YEARS, -TEN_YEARS])
@pytest.mark.one_in(1000)
def test_a_server_whose_clock_jumps_answers_and_dates_alone_move(context: Context, jump: timedelta) -> None:
    clock = WallClock()
    context = replace(context, clock=clock)
    lasting = keys.create_key(context, "lasting", [Scope.ADMIN])
    brief = keys.create_key(context, "brief", [Scope.ADMIN], expires_at=clock.now + timedelta(days=1))
    assert lasting is not None
    assert brief is not None
    with local_client(create_app(context)) as client:

        def ask(method: str, path: str, token: str, body: Any = None, key: str = "") -> httpx2.Response:
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key or path}
            return client.request(method, path, json=body, headers=headers)

        budget_id = ask("POST", "/v1/budgets", lasting.token, BUDGET).json()["id"]
        reservations = f"/v1/budgets/{budget_id}/reservations"
        held = ask("POST", reservations, lasting.token, {"events": EVENTS, "purpose": "a"}).json()["id"]
        assert ask("POST", f"/v1/reservations/{held}/start", lasting.token, {}).status_code == 200
        assert ask("GET", "/v1/budgets", brief.token).status_code == 200
        for moved in (jump, -jump):
            clock.now += moved
            account = {"events": EVENTS, "neighboring_relation": "add_or_remove_one", "delta": 1e-5}
            assert ask("POST", "/v1/account", lasting.token, account).status_code == 200
            # What is asked again within a second, or waits for a lock, goes by clocks that nobody sets.
            assert [ask("GET", "/v1/budgets", lasting.token).status_code for _ in range(5)] == [200] * 5
            assert client.get("/health/live").status_code == 200
            assert ask("GET", f"/v1/reservations/{held}", lasting.token).json()["state"] == "started"
            answer = ask("GET", "/v1/budgets", brief.token)
            if moved == TEN_YEARS and jump == TEN_YEARS:
                assert_problem(answer, 401, "invalid_key")
            else:
                assert answer.status_code == 200
        replayed = ask("POST", reservations, lasting.token, {"events": EVENTS, "purpose": "a"})
        assert replayed.headers["idempotency-replayed"] == "true"
        assert ask("POST", f"/v1/reservations/{held}/commit", lasting.token, {}).json()["charged"] == {"rho": 0.25}
        assert ask("POST", "/v1/ledger/verify", lasting.token, {}).json()["valid"]
