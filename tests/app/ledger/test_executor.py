"""Requests that come at once share a transaction, and each is answered as if it had come alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from sqlalchemy import event, func, select, text
from sqlalchemy.exc import OperationalError

from app.auth.principal import LOOPBACK
from app.context import Context
from app.db.database import Database
from app.fence.watching import fence_of
from app.idempotency.once import Keyed
from app.idempotency.records import Answer, insert_all, values
from app.kit.group_commit import GroupCommit
from app.ledger import statements
from app.ledger.commands import Start
from app.ledger.executor import execute
from app.ledger.journal import Instruction
from app.ledger.transitions import Transition
from app.tables.idempotency import IdempotencyRecord
from app.tables.ledger import Entry
from tests.app.kit.waiting_line import PATIENCE_S, held_up, start, wait_for
from tests.app.ledger.audit import audit
from tests.app.ledger.client import Client, open_tree
from tests.app.ledger.model import Command, Outcome

#: PostgreSQL's connections to this database that wait for another's lock.
WAITING = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def client(context: Context) -> Iterator[Client]:
    """Two trees: budget 0 with a child 1, and budget 2. All have room for 20."""
    with start_blocking_portal() as loop:
        yield Client(context, loop, open_tree(context, [None, 0, None], [20, 20, 20]))


@pytest.fixture
def other(context: Context) -> Iterator[Database]:
    """The database as another process sees it."""
    database = Database(context.database.url)
    yield database
    database.dispose()


def send_together(client: Client, commands: dict[str, Command]) -> dict[str, Future[Outcome]]:
    """Send commands that are decided in one transaction, in this order."""
    with held_up(client.context.ledger_commits) as line:
        return {name: line.join(client.send, name, command) for name, command in commands.items()}


def outcomes(sent: dict[str, Future[Outcome]]) -> list[Outcome]:
    return [each.result(PATIENCE_S) for each in sent.values()]


def written(context: Context) -> tuple[int, list[str]]:
    """How many entries there are beside those that opened the budgets, and the keys that are remembered."""
    with context.database.read() as session:
        entries = session.scalar(select(func.count()).select_from(Entry).where(Entry.kind != "create"))
        return entries or 0, sorted(session.scalars(select(IdempotencyRecord.key)))


def audit_all(client: Client) -> None:
    with client.context.database.read() as session:
        for budget_id in client.budgets:
            audit(session, budget_id)


def reserve(budget: int, units: int) -> Command:
    return Command("reserve", budget, units, 3600)


@dataclass
class Holder:
    """Another process in the middle of a transaction, until `end`."""

    thread: Future[Any]
    released: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        self.released.set()
        self.thread.result(PATIENCE_S)


@contextmanager
def transaction_elsewhere(other: Database, begin: Callable[[Any], object]) -> Iterator[Holder]:
    """Another process has done ``begin`` in a transaction, and ends it when it is told to."""
    begun, released = threading.Event(), threading.Event()

    def hold() -> None:
        with other.write() as session:
            begin(session)
            begun.set()
            assert released.wait(PATIENCE_S)

    holder = Holder(start(hold), released)
    assert begun.wait(PATIENCE_S)
    try:
        yield holder
    finally:
        holder.end()


def take_key(context: Context, other: Database, key: str) -> AbstractContextManager[Holder]:
    """Another process has answered another request with this key, and not committed yet."""
    keyed = Keyed.of(context, LOOPBACK.id, key, b"something else")
    record = values(keyed.key, keyed.fingerprint, Answer(201, {}), context.clock())
    return transaction_elsewhere(other, lambda session: insert_all(session.connection(), [record]))


def waiting_transactions(database: Database) -> set[datetime]:
    """When the transactions began that wait for another's lock now."""
    with database.read() as session:
        return set(session.scalars(text(f"SELECT xact_start {WAITING}")))


def test_requests_that_wait_together_share_one_transaction(client: Client) -> None:
    commits: list[object] = []
    event.listen(client.context.database.engine, "commit", commits.append)
    sent = send_together(client, {f"k{number}": reserve(number % 3, number) for number in range(1, 6)})
    # Budgets 0 and 1 fill one tree: 1, 3, 4; budget 2 another: 2, 5.
    assert outcomes(sent) == [("pending", 19), ("pending", 18), ("pending", 16), ("pending", 12), ("pending", 13)]
    assert len(commits) == 1
    assert written(client.context) == (5, ["k1", "k2", "k3", "k4", "k5"])
    audit_all(client)


def test_a_request_that_is_refused_does_no_harm_to_the_others_of_its_group(client: Client) -> None:
    client.send("held", reserve(0, 5))
    client.send("spent", Command("charge", 0, 5))
    client.ids["nothing"] = "res_nothing"
    sent = send_together(
        client,
        {
            "404": Command("start", "nothing"),
            "first": reserve(0, 2),
            "422": Command("commit", "held", 6),
            "409 a": reserve(1, 9),
            "403": Command("correct", "spent", 4, may_lower=False),
            "second": Command("start", "held"),
            "409 b": Command("void", "held"),
            "third": reserve(2, 1),
        },
    )
    assert outcomes(sent) == [
        ("not_found", None),
        ("pending", 8),
        ("not_a_prefix", None),
        ("budget_exceeded", 8),
        ("correction_lowers", None),
        ("started", 8),
        ("already_started", None),
        ("pending", 19),
    ]
    assert written(client.context) == (5, ["409 a", "409 b", "first", "held", "second", "spent", "third"])
    audit_all(client)


def test_a_twin_is_told_so_at_once_and_gets_the_same_answer_later(client: Client) -> None:
    with held_up(client.context.ledger_commits) as line:
        first = line.join(client.reply, "k", reserve(0, 5))
        twins = [client.reply("k", reserve(0, 5)) for _ in range(2)]
    assert [(twin.status, twin.body["code"]) for twin in twins] == [(409, "request_in_progress")] * 2
    decided = first.result(PATIENCE_S)
    again = client.reply("k", reserve(0, 5))
    assert (decided.is_replayed, again.is_replayed) == (False, True)
    assert (decided.status, decided.body) == (again.status, again.body)
    assert written(client.context) == (1, ["k"])


def test_a_key_that_another_process_takes_meanwhile_does_no_harm_to_the_others(client: Client, other: Database) -> None:
    context = client.context
    with take_key(context, other, "k1"):
        sent = send_together(client, {"k1": reserve(0, 1), "k2": reserve(0, 2), "k3": reserve(2, 3)})
        if not context.database.is_sqlite:  # there, one writer waits for the other before it looks for keys
            wait_for(lambda: bool(waiting_transactions(other)))
    assert outcomes(sent) == [("idempotency_key_reused", None), ("pending", 18), ("pending", 17)]
    assert written(context) == (2, ["k1", "k2", "k3"])
    audit_all(client)


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_key_that_is_taken_while_its_command_goes_on_alone_is_answered_too(client: Client, other: Database) -> None:
    with take_key(client.context, other, "k1"):
        sent = start(client.send, "k1", reserve(0, 1))
        wait_for(lambda: bool(waiting_transactions(other)))
        (group,) = waiting_transactions(other)
        # The group gives up; then the command waits for the key alone.
        wait_for(lambda: bool(waiting_transactions(other) - {group}))
    assert sent.result(PATIENCE_S) == ("idempotency_key_reused", None)
    assert written(client.context) == (0, ["k1"])


@contextmanager
def with_patience(client: Client, lock_timeout_s: int, at_once: int = 8) -> Iterator[Client]:
    """The client of a server of which so many commands at once, when they are alone, wait so long for a lock."""
    database, patience = Database(client.context.database.url, lock_timeout_s), threading.BoundedSemaphore(at_once)
    context = replace(client.context, database=database, ledger_commits=GroupCommit(), patience=patience)
    fence_of(context)
    try:
        yield Client(context, client.loop, client.budgets)
    finally:
        database.dispose()


def lock_elsewhere(other: Database, budget_ids: Sequence[str]) -> AbstractContextManager[Holder]:
    return transaction_elsewhere(other, lambda session: statements.lock_budgets(session.connection(), budget_ids))


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_budget_that_is_locked_for_long_delays_the_commands_about_it_alone(client: Client, other: Database) -> None:
    with with_patience(client, 600) as patient, lock_elsewhere(other, [client.budgets[1]]) as holder:
        sent = send_together(patient, {"late": reserve(1, 1), "soon": reserve(2, 2), "too": reserve(2, 2)})
        in_time = [sent[name].result(PATIENCE_S) for name in ("soon", "too")]
        assert sorted(in_time) == [("pending", 16), ("pending", 18)]
        assert not sent["late"].done()
        holder.end()
        assert sent["late"].result(PATIENCE_S) == ("pending", 19)
    audit_all(client)


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_few_wait_for_a_budget_that_is_locked_for_long_and_the_others_are_told(client: Client, other: Database) -> None:
    with with_patience(client, 600, at_once=1) as patient, lock_elsewhere(other, [client.budgets[0]]) as holder:
        sent = send_together(patient, {name: reserve(0, 1) for name in ("k1", "k2", "k3")})
        for told in islice(as_completed(sent.values(), PATIENCE_S), 2):
            assert told.result() == ("database_busy", None)
        assert patient.send("soon", reserve(2, 1)) == ("pending", 19)
        holder.end()
        assert sorted(outcomes(sent)) == [("database_busy", None)] * 2 + [("pending", 19)]
    audit_all(client)


def test_a_lock_that_is_not_given_in_time_is_a_503_and_nothing_is_written(client: Client, other: Database) -> None:
    with with_patience(client, 1) as hasty:
        with lock_elsewhere(other, client.budgets):
            with held_up(hasty.context.ledger_commits) as line:
                sent = [line.join(hasty.reply, "k1", reserve(0, 1)), line.join(hasty.reply, "k2", reserve(2, 2))]
            replies = [each.result(PATIENCE_S) for each in sent]
        assert [(reply.status, reply.body["code"]) for reply in replies] == [(503, "database_busy")] * 2
        assert written(client.context) == (0, [])
        again = [hasty.send("k1", reserve(0, 1)), hasty.send("k2", reserve(2, 2))]
        assert again == [("pending", 19), ("pending", 18)]


def test_a_fault_of_ours_in_one_request_is_its_own_and_leaves_nothing(client: Client) -> None:
    client.send("held", reserve(0, 5))
    context = client.context

    def faulty() -> Any:
        def answer(_: Transition) -> Answer:
            raise ValueError("no such answer")

        keyed = Keyed.of(context, LOOPBACK.id, "faulty", b"")
        return execute(context, keyed, lambda: Instruction(Start(), LOOPBACK.id, client.ids["held"]), answer)

    with held_up(context.ledger_commits) as line:
        fault = line.join(faulty)
        sound = line.join(client.send, "sound", reserve(0, 2))
    with pytest.raises(ValueError, match="no such answer"):
        fault.result(PATIENCE_S)
    assert sound.result(PATIENCE_S) == ("pending", 13)
    assert written(context) == (2, ["held", "sound"])
    assert client.send("again", Command("start", "held")) == ("started", 13)
    audit_all(client)


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_connection_that_is_lost_fails_its_group_and_leaves_nothing(client: Client, other: Database) -> None:
    with lock_elsewhere(other, [client.budgets[0]]):
        sent = send_together(client, {"k1": reserve(0, 1), "k2": reserve(2, 2)})
        wait_for(lambda: bool(waiting_transactions(other)))
        with other.write() as session:
            session.execute(text(f"SELECT pg_terminate_backend(pid) {WAITING}"))
        for each in sent.values():
            with pytest.raises(OperationalError, match="terminating connection"):
                each.result(PATIENCE_S)
    assert written(client.context) == (0, [])
    assert [client.send("k1", reserve(0, 1)), client.send("k2", reserve(2, 2))] == [("pending", 19), ("pending", 18)]
    audit_all(client)
