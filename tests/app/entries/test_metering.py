"""Quotas of keys: what begins is refused beyond them, what tells of something begun never, and nothing counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context, default_gate
from app.db.database import Database
from app.entries.metering import Meter
from app.fence.watching import fence_of, fenced_context
from app.kit.group_commit import GroupCommit
from app.kit.process_pool import ProcessPool
from app.ledger.commands import Extend
from app.ledger.journal import Instruction, carry_out
from app.ledger.transitions import Transition
from app.main import create_app
from app.problems import Problem
from app.settings import Settings
from app.tables.ledger import Entry, LedgerUse
from tests.app.budgets.conftest import Clock, audit_all
from tests.concurrency.processes import in_threads
from tests.local_access import BASE_URL, LOOPBACK_PEER

ENTRIES, OPEN, EXTENSIONS = 12, 5, 3
GAUSSIAN = [{"mechanism": {"kind": "gaussian", "noise_multiplier": 1000.0}}]


class Caller:
    """One key's client of one server process."""

    def __init__(self, http: TestClient) -> None:
        self.http = http
        self.sent = 0

    def post(self, path: str, body: Any = None, key: str | None = None) -> Any:
        self.sent += 1
        return self.http.post(path, json=body, headers={"Idempotency-Key": key or f"{id(self)}-{self.sent}"})

    def budget(self) -> Any:
        body = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
        return self.post("/v1/budgets", body)

    def reserve(self, budget_id: str, key: str | None = None, events: Any = GAUSSIAN) -> Any:
        return self.post(f"/v1/budgets/{budget_id}/reservations", {"events": events, "purpose": "p"}, key)

    def act(self, reservation: str, action: str) -> Any:
        return self.post(f"/v1/reservations/{reservation}/{action}", {"expires_in": 60} if action == "extend" else None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas() -> dict[str, int]:
    return {
        "entries_per_day": ENTRIES,
        "open_reservations_per_key": OPEN,
        "extensions_per_reservation": EXTENSIONS,
    }


@pytest.fixture
def context(
    database: Database, settings: Settings, pools: dict[str, ProcessPool], clock: Clock, quotas: dict[str, int]
) -> Context:
    return fenced_context(settings.model_copy(update=quotas), database, clock, **pools)


@pytest.fixture
def callers(context: Context) -> Iterator[list[Caller]]:
    """One key, which asks two server processes that share nothing but the database and the data folder."""
    created = create_key(context, "tester", [Scope.OWNER, Scope.LIMITS])
    assert created is not None
    headers = {"Authorization": f"Bearer {created.token}"}
    access: dict[str, Any] = {"base_url": BASE_URL, "client": LOOPBACK_PEER, "headers": headers}
    with ExitStack() as stack:
        made = []
        for _ in range(2):
            database = Database(context.database.url)
            stack.callback(database.dispose)
            process = replace(context, database=database, numerics=default_gate(), ledger_commits=GroupCommit())
            fence_of(process)
            made.append(Caller(stack.enter_context(TestClient(create_app(process), **access))))
        yield made


@pytest.fixture
def caller(callers: list[Caller]) -> Caller:
    return callers[0]


def assert_counted(context: Context) -> None:
    """What is counted of keys is what they have written, and the books are valid."""
    with context.database.read() as session:
        size = func.sum(func.length(Entry.canonical))
        written = session.execute(
            select(Entry.principal_id, func.count(), size)
            .where(Entry.principal_id.like("key_%"))
            .group_by(Entry.principal_id)
        ).all()
        sums = select(LedgerUse.principal_id, func.sum(LedgerUse.entries), func.sum(LedgerUse.bytes))
        counted = session.execute(sums.group_by(LedgerUse.principal_id)).all()
    assert sorted(map(tuple, counted)) == sorted(map(tuple, written))
    audit_all(context)


def refused(answer: Any, quota: str) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body.get("code"), body.get("quota")) == (429, "quota_exceeded", quota), body
    return body


def test_what_begins_is_refused_and_what_has_begun_is_told(caller: Caller, context: Context, clock: Clock) -> None:
    budget = caller.budget().json()["id"]
    held = [caller.reserve(budget).json()["id"] for _ in range(4)]
    for turn in range(ENTRIES - 5):
        limit = {"filter": {"kind": "zcdp", "rho": 1 + turn}, "reason": "more"}
        assert caller.post(f"/v1/budgets/{budget}/limit", limit).status_code == 200
    answer = caller.reserve(budget, "daily")
    body = refused(answer, "entries")
    assert (body["used"], body["limit"]) == (ENTRIES, ENTRIES)
    assert answer.headers["Retry-After"] == str(
        int((timedelta(days=1) - (clock.now - clock.now.replace(hour=0, minute=0, second=0))).total_seconds())
    )
    for beginning in (caller.budget(), caller.act(held[0], "extend")):
        refused(beginning, "entries")
    # What is held is started, charged and given up all the same.
    assert caller.act(held[0], "start").status_code == 200
    assert caller.act(held[0], "commit").status_code == 200
    assert caller.act(held[1], "void").status_code == 200
    assert_counted(context)
    clock.now += timedelta(days=1)
    # The same key is not remembered as refused.
    assert caller.reserve(budget, "daily").status_code == 201
    assert_counted(context)


def test_open_reservations_and_extensions(caller: Caller, context: Context) -> None:
    budget = caller.budget().json()["id"]
    held = [caller.reserve(budget).json()["id"] for _ in range(OPEN)]
    assert refused(caller.reserve(budget), "open_reservations")["used"] == OPEN
    assert caller.act(held[0], "void").status_code == 200
    assert caller.reserve(budget).status_code == 201
    assert [caller.act(held[1], "extend").status_code for _ in range(EXTENSIONS)] == [200] * EXTENSIONS
    assert refused(caller.act(held[1], "extend"), "extensions")["used"] == EXTENSIONS
    shown = {each["quota"]: (each["used"], each["limit"]) for each in caller.http.get("/v1/keys/self").json()["quotas"]}
    assert shown["open_reservations"] == (OPEN, OPEN)
    assert shown["entries"][1] == ENTRIES
    assert_counted(context)


def test_an_extension_of_somebody_without_quotas_counts_in_its_own_transaction(
    caller: Caller, context: Context, clock: Clock
) -> None:
    """Commands that come at once share a transaction, whose entries are written at its end."""
    held = caller.reserve(caller.budget().json()["id"]).json()["id"]
    with context.database.read() as session:
        key = session.scalars(select(LedgerUse.principal_id)).first()
    assert key is not None
    extend = Extend(clock() + timedelta(hours=1))
    instructions = [Instruction(extend, who, held) for who in (*["loopback"] * EXTENSIONS, key, "loopback")]
    with context.database.write() as session:
        outcomes = carry_out(session, context.database, instructions, clock())
    assert [isinstance(outcome, Transition) for outcome in outcomes] == [True] * EXTENSIONS + [False, True]
    refusal = outcomes[EXTENSIONS]
    assert isinstance(refusal, Problem)
    assert (refusal.members["quota"], refusal.members["used"]) == ("extensions", EXTENSIONS)


def test_replays_and_denials_count_nothing(caller: Caller, context: Context) -> None:
    budget = caller.budget().json()["id"]
    for _ in range(2 * ENTRIES):
        assert caller.reserve(budget, "once").status_code == 201
    too_much = [{"mechanism": {"kind": "gaussian", "noise_multiplier": 0.1}}]
    for _ in range(ENTRIES):
        assert caller.reserve(budget, events=too_much).status_code == 409
    assert caller.reserve(budget).status_code == 201
    assert_counted(context)


@pytest.mark.parametrize("quotas", [{"entries_per_day": 0, "entry_bytes_per_day": 4000}])
def test_bytes(caller: Caller, context: Context) -> None:
    budget = caller.budget().json()["id"]
    while (answer := caller.reserve(budget)).status_code == 201:
        pass
    body = refused(answer, "bytes")
    assert 4000 <= body["used"] < 8000
    assert_counted(context)


@pytest.mark.parametrize(
    ("quotas", "quota", "admitted"),
    [
        ({"entries_per_day": 20, "open_reservations_per_key": 0}, "entries", 19),
        ({"entries_per_day": 0, "open_reservations_per_key": 20}, "open_reservations", 20),
    ],
    ids=["entries", "open_reservations"],
)
def test_exactly_the_quota_is_admitted_in_a_race(
    callers: list[Caller], context: Context, quota: str, admitted: int
) -> None:
    budgets = [callers[0].budget().json()["id"]]

    def race(number: int) -> list[int]:
        codes = []
        for turn in range(6):
            answer = callers[number % 2].reserve(budgets[0], f"{number}-{turn}")
            codes.append(answer.status_code)
            if answer.status_code != 201:
                refused(answer, quota)
        return codes

    codes = [code for codes in in_threads(8, race) for code in codes]
    assert codes.count(201) == admitted
    assert_counted(context)


@pytest.mark.parametrize("quotas", [{}], ids=["defaults"])
@pytest.mark.thorough
def test_a_flood_of_extensions_is_bounded(caller: Caller, context: Context) -> None:
    """Four hundred extensions of a reservation of a thousand events: a hundred are admitted, and repeat no events."""
    budget = caller.budget().json()["id"]
    thousand = [{"mechanism": {"kind": "gaussian", "noise_multiplier": 1000.0 + number}} for number in range(1000)]
    held = caller.reserve(budget, events=thousand).json()["id"]

    def written() -> int:
        with context.database.read() as session:
            return session.scalar(select(func.sum(func.length(Entry.canonical)))) or 0

    before = written()
    codes = [caller.act(held, "extend").status_code for _ in range(400)]
    assert (codes.count(200), codes.count(429)) == (100, 300)
    assert written() - before < 100 * 2000


def test_transactions_of_a_key_take_turns_over_midnight(context: Context, clock: Clock) -> None:
    """Each counts for its own day, and both count the same open reservations."""
    midnight = clock.now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    other = Database(context.database.url, lock_timeout_s=1)
    fenced_context(context.settings, other)
    with context.database.write() as first:
        Meter(first.connection(), midnight - timedelta(seconds=1)).lock(["key_a"])
        with pytest.raises(DBAPIError) as failed, other.write() as second:
            Meter(second.connection(), midnight).lock(["key_a"])
        assert other.is_lock_timeout(failed.value)
    with other.write() as second:
        Meter(second.connection(), midnight).lock(["key_a"])
    other.dispose()
