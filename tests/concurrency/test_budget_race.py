"""Many connections in several processes race for one budget: exactly what fits is admitted, and nothing in the
application holds a lock. The same race with a read-check-write in place of the ledger overspends, so the race is one.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from accounting.events import Event, ZcDp
from app.budgets import service
from app.budgets.schemas import BudgetRequest
from app.db.database import Database
from app.kit.context import Context
from app.kit.idempotency import Answer, run_once
from app.problems import Problem
from app.settings import Settings
from tests.app.ledger.audit import audit

PROCESSES = 4
CONNECTIONS = 4
ATTEMPTS = 12  # per connection; the budget admits about a third of them
UNITS = 200
UNIT = 10**7  # rho 0.01

# What a racer does: spend `units` in the budget, and say whether it was admitted.
Spend = Callable[[Context, str, str, int], bool]
Attempt = tuple[int, bool]


def reserve_and_resolve(context: Context, budget_id: str, key: str, units: int) -> bool:
    """Through the ledger: reserve, then start and commit, or leave it pending."""

    def command(session: Any) -> Answer:
        state = service.reserve(
            session,
            context,
            budget_id=budget_id,
            events=[Event(ZcDp(0.01), count=units)],
            purpose="race",
            principal_id=key[:4],
            expires_in=3600,
        )
        return Answer(201, {"id": state.id})

    try:
        answer = run_once(context, "racer", key, b"", command)
    except Problem as problem:
        if problem.code != "budget_exceeded":
            raise
        return False
    if units % 2:
        with context.database.write() as session:
            service.start(session, context, answer.body["id"])
        with context.database.write() as session:
            service.commit(session, context, answer.body["id"])
    return True


def read_check_write(context: Context, budget_id: str, key: str, units: int) -> bool:
    """The control: read what is left, decide, write."""
    with context.database.read() as session:
        used = session.execute(text("SELECT used FROM naive")).scalar_one()
    if used + units > UNITS:
        return False
    with context.database.write() as session:
        session.execute(text("UPDATE naive SET used = :used"), {"used": used + units})
    return True


def race(spend: Spend, url: str, data_dir: Path, budget_id: str, seed: int, results: Any, gate: Any) -> None:
    """One process: its own engine, and as many threads as connections, each with random costs of its own."""
    database = Database(url)
    context = Context(Settings(data_dir=data_dir, database_url=url), database)

    def connection(number: int) -> list[Attempt]:
        costs = random.Random(1000 * seed + number)
        attempts = []
        for attempt in range(ATTEMPTS):
            units = costs.randint(1, 6)
            attempts.append((units, spend(context, budget_id, f"{seed}-{number}-{attempt}", units)))
        return attempts

    try:
        gate.wait(60)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            results.put([attempt for attempts in pool.map(connection, range(CONNECTIONS)) for attempt in attempts])
    except BaseException as error:
        results.put(error)
        raise
    finally:
        database.dispose()


def run_race(spend: Spend, context: Context, budget_id: str) -> list[Attempt]:
    """Start the processes at once; returns every attempt."""
    # Never a fork of this process, which has threads; the server that forks has imported this module once.
    start_method = multiprocessing.get_context("forkserver")
    start_method.set_forkserver_preload([__name__])
    results, gate = start_method.Queue(), start_method.Barrier(PROCESSES)
    assert context.settings.secret
    processes = [
        start_method.Process(
            target=race,
            args=(spend, context.database.url, context.settings.data_dir, budget_id, seed, results, gate),
        )
        for seed in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
        process.close()
    results.close()
    results.join_thread()
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [attempt for outcome in outcomes for attempt in outcome]


@pytest.fixture
def budget_id(context: Context) -> str:
    request = BudgetRequest.model_validate(
        {
            "name": "race",
            "neighboring_relation": "add_or_remove_one",
            "filter": {"kind": "zcdp", "rho": UNITS / 100},
        }
    )
    with context.database.write() as session:
        return service.create_budget(session, context, request, "owner").id


def test_exactly_what_fits_is_admitted(context: Context, budget_id: str) -> None:
    attempts = run_race(reserve_and_resolve, context, budget_id)
    admitted = [units for units, was_admitted in attempts if was_admitted]
    denied = [units for units, was_admitted in attempts if not was_admitted]
    assert len(attempts) == PROCESSES * CONNECTIONS * ATTEMPTS
    with context.database.read() as session:
        history = audit(session, budget_id)
    assert sum(admitted) * UNIT == sum(history.budget.used)
    assert len(admitted) == len(history.reservations)
    # Exactly: not one unit too much, and nothing denied that the room left at the end would have held.
    assert sum(admitted) <= UNITS
    assert min(denied) > UNITS - sum(admitted)
    odd = sum(units for units in admitted if units % 2)
    assert history.budget.spent == (odd * UNIT,)


def test_the_control_that_reads_checks_and_writes_overspends(context: Context, budget_id: str) -> None:
    with context.database.write() as session:
        session.execute(text("CREATE TABLE naive (used integer)"))
        session.execute(text("INSERT INTO naive VALUES (0)"))
    attempts = run_race(read_check_write, context, budget_id)
    assert sum(units for units, was_admitted in attempts if was_admitted) > UNITS


def resolve_at_once(context: Context, reservation_id: str, commands: list[Any]) -> list[str]:
    """Send every command in a thread of its own; returns what each was answered."""
    barrier = threading.Barrier(len(commands))

    def resolve(command: Any) -> str:
        barrier.wait(60)
        try:
            with context.database.write() as session:
                return str(command(session, context, reservation_id).status)
        except Problem as problem:
            return problem.code

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(resolve, commands))


def test_one_reservation_that_many_resolve_at_once_is_resolved_once(context: Context, budget_id: str) -> None:
    reserve = {"budget_id": budget_id, "purpose": "race", "principal_id": "owner", "expires_in": 3600}
    for _ in range(5):
        with context.database.write() as session:
            held = service.reserve(session, context, events=[Event(ZcDp(0.01))], **reserve)
        outcomes = resolve_at_once(context, held.id, [service.commit, service.void] * 3)
        assert outcomes.count("already_resolved") == 5, outcomes
    with context.database.read() as session:
        audit(session, budget_id)


def test_a_budget_that_was_read_before_the_lock_is_read_again_under_it(context: Context, budget_id: str) -> None:
    most = {"events": [Event(ZcDp(0.01), count=UNITS - 1)], "expires_in": 3600}
    named = {"budget_id": budget_id, "purpose": "race", "principal_id": "owner"}
    with context.database.write() as session:
        before = service.get_budget(session, budget_id)
        assert before.reserved == [0]
        # Behind this session's back; SQLite has one writer, so there the same session does it.
        if context.database.is_sqlite:
            session.execute(text("UPDATE budgets SET reserved = :reserved"), {"reserved": f"[{(UNITS - 1) * UNIT}]"})
        else:
            with context.database.write() as other:
                service.reserve(other, context, **named, **most)
        with pytest.raises(Problem, match="does not admit"):
            service.reserve(session, context, **named, **most)
        assert before.reserved == [(UNITS - 1) * UNIT]
