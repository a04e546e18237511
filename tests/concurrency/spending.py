"""Races for budgets: many connections reserve at once, and what was admitted must be exactly what fits."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.orm import Session

from accounting.events import Event, ZcDp
from accounting.filters import PrivacyFilter
from accounting.relations import NeighboringRelation
from app.auth.principal import LOOPBACK
from app.context import Context
from app.idempotency.once import Keyed
from app.ledger import rows
from app.ledger.commands import Commit, Start
from app.ledger.executor import Exceeded
from app.ledger.journal import Instruction, carry_out, path_of
from app.ledger.pricing import price
from app.ledger.states import plus
from app.ledger.transitions import Transition
from app.problems import Problem
from app.reservations.commands import Asked, reserve, to_reserve, to_resolve
from app.reservations.endpoints import answered
from app.tables.ledger import Budget
from app.tables.states import Amounts
from tests.app.ledger.audit import audit
from tests.concurrency.processes import Host, deadlocks, in_threads, open_connections, run_in_processes

Events = tuple[Event, ...]
#: What a racer does: reserve ``events`` in a budget, and say whether they were admitted. The key is new each time.
Spend = Callable[[Host, str, str, Events], bool]

HOUR = timedelta(hours=1)


def units(count: int) -> Events:
    """Events that cost so many hundredths of rho in a zcdp budget."""
    return (Event(ZcDp(0.01), count=count),)


def spend_in_groups(host: Host, budget_id: str, key: str, events: Events) -> bool:
    """As requests come over HTTP: those of one process share transactions, with a thread or without one."""

    about = (host.context, LOOPBACK)

    def keyed(step: str) -> Keyed:
        return Keyed.of(host.context, LOOPBACK.id, f"{key} {step}", step.encode())

    try:
        asked = Asked(budget_id, events, key, HOUR)
        response = host.loop.call(answered, to_reserve(*about, keyed("reserve"), asked))
    except Problem as problem:
        return _was_denied(problem)
    reservation_id = json.loads(bytes(response.body))["id"]
    if _goes_on(events):
        host.loop.call(answered, to_resolve(*about, keyed("start"), reservation_id, Start()))
        to_resolve(*about, keyed("commit"), reservation_id, Commit()).carry_out()
    return True


def spend_alone(host: Host, budget_id: str, key: str, events: Events) -> bool:
    """As a run does it: each step in a transaction of its own, and nothing between the threads but the database."""
    context = host.context

    def resolve(command: Start | Commit, reservation_id: str) -> None:
        with context.database.write() as session:
            instruction = Instruction(command, "loopback", reservation_id)
            (outcome,) = carry_out(session, context.database, [instruction], context.clock())
            assert isinstance(outcome, Transition)

    asked = Asked(budget_id, events, key, HOUR)
    quote = asked.quote(context)
    try:
        with context.database.write() as session:
            held = reserve(session, context, "loopback", asked, quote)
    except Exceeded:
        return False
    if _goes_on(events):
        resolve(Start(), held)
        resolve(Commit(), held)
    return True


def spend_either_way(host: Host, budget_id: str, key: str, events: Events) -> bool:
    """Half of the threads share transactions, and half do not."""
    is_alone = int(key.split("-")[1]) % 2
    return (spend_alone if is_alone else spend_in_groups)(host, budget_id, key, events)


def read_check_write(host: Host, budget_id: str, key: str, events: Events) -> bool:
    """The control: read what is used, decide as the ledger does, write; in the table that `naive_table` makes."""
    database = host.context.database
    with database.read() as session:
        used = int(session.execute(text("SELECT used FROM naive")).scalar_one())
        path = path_of(session, budget_id)
    assert path is not None
    after = plus((used,), path[0].filter.cost(events, path[0].relation).amounts)
    if not path[0].filter.admits(after):
        return False
    with database.write() as session:
        session.execute(text("UPDATE naive SET used = :used"), {"used": after[0]})
    return True


def make_naive_table(session: Session) -> None:
    """What `read_check_write` keeps its one number in."""
    session.execute(text("CREATE TABLE naive (used bigint)"))
    session.execute(text("INSERT INTO naive VALUES (0)"))


def _was_denied(problem: Problem) -> bool:
    if problem.code != "budget_exceeded":
        raise problem
    return False


def _goes_on(events: Events) -> bool:
    """Whether a racer starts and commits what it holds; the rest stays pending."""
    return sum(event.count for event in events) % 2 == 1


@dataclass(frozen=True)
class Attempt:
    budget_id: str
    events: Events
    was_admitted: bool


@dataclass(frozen=True)
class Race:
    """What one process does: each of its connections makes attempts at random budgets, with random events."""

    spend: Spend
    budget_ids: Sequence[str]
    menu: Sequence[Events]
    connections: int
    attempts: int
    seed: int = 0


def fill(context: Context, race: Race, processes: int) -> list[Attempt]:
    """Race for budgets with nothing spent, that form whole trees: exactly what fits is admitted, without conflicts."""
    with context.database.read() as session:
        limits = limits_of(session, race.budget_ids)
    attempts = run_race(context, race, processes)
    assert_books_agree(context, assert_exactly_what_fits(limits, attempts), attempts)
    assert deadlocks(context.database) == 0
    return attempts


def run_race(context: Context, race: Race, processes: int) -> list[Attempt]:
    """Every attempt of every process."""
    arguments = [
        Race(race.spend, race.budget_ids, race.menu, race.connections, race.attempts, race.seed + place)
        for place in range(processes)
    ]
    found = run_in_processes(_race, context, arguments)
    attempts = [attempt for process in found for attempt in process]
    assert len(attempts) == processes * race.connections * race.attempts
    return attempts


def _race(host: Host, race: Race) -> list[Attempt]:
    open_connections(host.context.database, race.connections)
    host.barrier.wait()

    def connection(number: int) -> list[Attempt]:
        choice = random.Random(1000 * race.seed + number)
        attempts = []
        for turn in range(race.attempts):
            budget_id, events = choice.choice(race.budget_ids), choice.choice(race.menu)
            key = f"{race.seed}-{number}-{turn}"
            attempts.append(Attempt(budget_id, events, race.spend(host, budget_id, key, events)))
        return attempts

    return [attempt for attempts in in_threads(race.connections, connection) for attempt in attempts]


@dataclass(frozen=True)
class Limit:
    """A budget, before the race: its filter, and the ids from it to its root."""

    filter: PrivacyFilter
    relation: NeighboringRelation
    path: tuple[str, ...]


def limits_of(session: Session, budget_ids: Sequence[str]) -> dict[str, Limit]:
    """The limits of budgets that form whole trees."""
    found = {}
    for budget_id in budget_ids:
        path = path_of(session, budget_id)
        assert path is not None
        found[budget_id] = Limit(path[0].filter, path[0].relation, tuple(level.id for level in path))
    return found


def assert_exactly_what_fits(limits: Mapping[str, Limit], attempts: Sequence[Attempt]) -> dict[str, Amounts]:
    """No limit is passed, and nothing was denied that the room left at the end would have held.

    Returns:
        What was admitted in each budget and below it.
    """

    def cost(attempt: Attempt) -> Amounts:
        limit = limits[attempt.budget_id]
        return price(limit.filter, attempt.events, limit.relation).amounts

    used = {budget_id: limit.filter.zero for budget_id, limit in limits.items()}
    for attempt in attempts:
        if attempt.was_admitted:
            for level in limits[attempt.budget_id].path:
                used[level] = plus(used[level], cost(attempt))
    for budget_id, limit in limits.items():
        assert limit.filter.admits(used[budget_id]), f"{budget_id} is overspent"
    denied = [attempt for attempt in attempts if not attempt.was_admitted]
    assert denied, "there was room for everyone: no race"
    for attempt in denied:
        levels = limits[attempt.budget_id].path
        assert not all(limits[level].filter.admits(plus(used[level], cost(attempt))) for level in levels), attempt
    return used


def assert_books_agree(context: Context, used: Mapping[str, Amounts], attempts: Sequence[Attempt]) -> None:
    """The tables hold what was admitted, each once, and the entries explain the tables."""
    with context.database.read() as session:
        histories = [audit(session, budget_id) for budget_id in used]
        states = {budget_id: rows.budget_state(session.get_one(Budget, budget_id)) for budget_id in used}
    assert {budget_id: state.used for budget_id, state in states.items()} == used
    assert sum(len(history.reservations) for history in histories) == sum(each.was_admitted for each in attempts)
