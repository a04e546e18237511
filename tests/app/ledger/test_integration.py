"""Integration: every committed entry gets one place, places stay, and nobody waits; on both engines."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from accounting import ENGINE_VERSION
from accounting.events import Event, ZcDp
from app.context import Context
from app.db.database import Database
from app.kit.ids import new_id
from app.ledger import integration, tree_repository
from app.ledger.commands import Quote, Reserve
from app.ledger.integration import integrate
from app.ledger.journal import Instruction, carry_out
from app.ledger.merkle import Frontier, leaf_hash
from app.ledger.merkle import root as root_of
from app.ledger.verification import verify
from app.runs import supervisor as supervision
from tests.app.budgets.conftest import Clock
from tests.app.ledger import attacks
from tests.app.ledger.client import open_tree
from tests.app.runs.test_supervisor import until
from tests.databases import on_one_engine, on_postgresql

EVENTS = (Event(ZcDp(1e-9)),)


def reserve(session: Session, context: Context, budget_id: str) -> None:
    command = Reserve(new_id("res"), EVENTS, Quote((1,), ENGINE_VERSION), context.clock() + timedelta(hours=1))
    carry_out(session, context.database, [Instruction(command, "loopback", budget_id)], context.clock())


def write(context: Context, budget_id: str, entries: int = 1) -> None:
    for _ in range(entries):
        with context.database.write() as session:
            reserve(session, context, budget_id)


def tree(database: Database) -> Any:
    with database.read() as session:
        return tree_repository.find(session)


def places(database: Database) -> list[int]:
    """The leaf indices in the order of the tree."""
    with database.read() as session:
        rows = [row for batch in tree_repository.leaves(session) for row in batch]
    assert [row.tree_index for row in rows] == list(range(len(rows)))
    return [row.leaf_index for row in rows]


def integrate_and_write(context: Context, budget_id: str) -> None:
    for _ in range(3):
        integrate(context.database)
        write(context, budget_id)


def check_all_have_places(database: Database) -> None:
    """After one more look every entry is in the tree, which is what the entries make."""
    integrate(database)
    assert sorted(places(database)) == [row["leaf_index"] for row in attacks.entries(database)]
    check(database)


def check(database: Database) -> None:
    """The stored nodes and the row of the tree are what the entries make."""
    with database.read() as session:
        verdict = verify(session)
        assert verdict.valid, verdict.in_words()
        row = tree_repository.find(session)
        assert row is not None
        assert root_of(tree_repository.tiles(session), row.size) == Frontier(row.size, bytes(row.frontier)).root()
        hashes = {entry["leaf_index"]: entry["hash"] for entry in attacks.entries(database)}
    again = Frontier()
    again.extend(leaf_hash(bytes.fromhex(hashes[leaf_index])) for leaf_index in places(database))
    assert again.hashes() == bytes(row.frontier)


def test_entries_get_their_places_in_the_order_in_which_they_were_written(context: Context) -> None:
    (budget,) = open_tree(context, [None], [10**6])
    integrate(context.database)
    assert places(context.database) == [1]
    write(context, budget, 5)
    assert tree(context.database).size == 1
    integrate(context.database)
    assert places(context.database) == [row["leaf_index"] for row in attacks.entries(context.database)]
    integrate(context.database)
    assert tree(context.database).size == 6
    check(context.database)


def test_nothing_is_written_where_nothing_is_new(context: Context) -> None:
    open_tree(context, [None], [100])
    for _ in range(3):
        integrate(context.database)
    before = attacks.rows(context.database, "SELECT * FROM merkle_trees")
    integrate(context.database)
    assert attacks.rows(context.database, "SELECT * FROM merkle_trees") == before


def test_a_long_history_is_taken_in_batches(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "BATCH", 16)
    (budget,) = open_tree(context, [None], [10**6])
    with context.database.write() as session:
        for _ in range(80):
            reserve(session, context, budget)
    integrate(context.database, batches=2)
    assert tree(context.database).size == 32
    integrate(context.database)
    assert tree(context.database).size == 81
    check(context.database)


def test_nodes_of_complete_subtrees_are_kept(context: Context, clock: Clock) -> None:
    (budget,) = open_tree(context, [None], [10**6])
    for entries in (254, 1, 1, 256):
        instructions = [
            Instruction(
                Reserve(new_id("res"), (Event(ZcDp(1e-9)),), Quote((1,), ENGINE_VERSION), clock.now), "loopback", budget
            )
            for _ in range(entries)
        ]
        with context.database.write() as session:
            carry_out(session, context.database, instructions, clock.now - timedelta(hours=1))
        integrate(context.database)
    rows = attacks.rows(context.database, "SELECT level, node_index FROM merkle_nodes ORDER BY 1, 2")
    assert [tuple(row.values()) for row in rows] == [(1, 0), (1, 1)]
    check(context.database)


@on_postgresql
def test_an_entry_that_is_committed_late_gets_a_later_place(context: Context) -> None:
    """Others with larger leaf indices have their places already; no gap is passed before it is sure to stay one."""
    database = context.database
    first, second = (open_tree(context, [None], [10**6])[0] for _ in range(2))
    for _ in range(3):
        integrate(database)
        write(context, second)
    with database.write() as slow:
        reserve(slow, context, first)
        for _ in range(4):
            write(context, second)
            integrate(database)
        last = max(row["leaf_index"] for row in attacks.entries(database))
        late = (set(range(1, last + 1)) - set(places(database))).pop()
        assert tree(database).settled_leaf_index < late < last
    with database.read() as session:
        assert verify(session).valid
    integrate(database)
    assert places(database)[-1] == late
    for _ in range(3):
        write(context, second)
        integrate(database)
    assert tree(database).settled_leaf_index > late
    check(database)


@on_postgresql
def test_what_is_committed_while_integration_looks_is_not_passed(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which transactions are over is asked before the entries are read: those of the last one are among them."""
    database, oldest = context.database, tree_repository.oldest_transaction
    first, second = (open_tree(context, [None], [10**6])[0] for _ in range(2))
    with ExitStack() as stack:
        reserve(stack.enter_context(database.write()), context, first)
        for _ in range(2):
            write(context, second)
            integrate(database)
        write(context, second)

        def committed_meanwhile(session: Session) -> int | None:
            stack.close()
            return oldest(session)

        monkeypatch.setattr(tree_repository, "oldest_transaction", committed_meanwhile)
        integrate_and_write(context, second)
    check_all_have_places(database)


@on_postgresql
def test_an_entry_that_is_written_while_integration_begins_is_awaited(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest entry is looked for first: who has drawn an index before it has a smaller number than integration."""
    database, last = context.database, tree_repository.last_leaf_index
    first, second = (open_tree(context, [None], [10**6])[0] for _ in range(2))
    with ExitStack() as stack:

        def written_meanwhile(session: Session) -> int:
            monkeypatch.setattr(tree_repository, "last_leaf_index", last)
            reserve(stack.enter_context(database.write()), context, first)
            write(context, second)
            return last(session)

        monkeypatch.setattr(tree_repository, "last_leaf_index", written_meanwhile)
        integrate_and_write(context, second)
    check_all_have_places(database)


def test_a_gap_that_a_failure_left_is_passed(context: Context) -> None:
    (budget,) = open_tree(context, [None], [10**6])
    for _ in range(4):
        with suppress(ZeroDivisionError), context.database.write() as session:
            reserve(session, context, budget)
            raise ZeroDivisionError
        write(context, budget)
        integrate(context.database)
    row, last = tree(context.database), attacks.entries(context.database)[-2]["leaf_index"]
    assert (row.size, row.settled_leaf_index >= last - 1) == (5, True)
    check(context.database)


@on_postgresql
def test_what_is_awaited_begins_anew_in_another_cluster(context: Context) -> None:
    """A dump that is restored elsewhere brings numbers of transactions that are far away there."""
    (budget,) = open_tree(context, [None], [10**6])
    far = 2**40
    attacks.run(context.database, f"UPDATE merkle_trees SET awaited_leaf_index = 1, awaited_transaction = {far}")
    for _ in range(4):
        write(context, budget)
        integrate(context.database)
    assert tree(context.database).awaited_transaction < far
    assert tree(context.database).settled_leaf_index >= 3
    check(context.database)


def test_many_may_integrate_at_once(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "BATCH", 8)
    budgets = [open_tree(context, [None], [10**6])[0] for _ in range(3)]
    failures: list[BaseException] = []

    def work(budget: str | None) -> None:
        try:
            for _ in range(12):
                if budget is None:
                    integrate(context.database)
                else:
                    write(context, budget)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(budget,)) for budget in (*budgets, None, None, None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    integrate(context.database)
    assert len(places(context.database)) == 3 + 3 * 12
    check(context.database)


def test_a_lock_that_somebody_holds_is_no_fault_of_what_is_stored(context: Context) -> None:
    open_tree(context, [None], [100])
    impatient = Database(context.database.url, lock_timeout_s=0 if context.database.is_sqlite else 1)
    with context.database.write() as session:
        tree_repository.lock(session)
        with pytest.raises(OperationalError):
            integrate(impatient)
    integrate(impatient)
    assert tree(impatient).size == 1
    impatient.dispose()


@on_one_engine
def test_the_supervisor_integrates_behind_the_commands(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "WATCH_INTERVAL_S", 0.02)
    supervisor = supervision.Supervisor(context, count=0, lease_s=0.3)
    supervisor.start()
    sweep, failures = supervisor._sweeper.sweep, [OSError(24, "Too many open files")]

    def fails_once() -> set[str]:
        if failures:
            raise failures.pop()
        return sweep()

    monkeypatch.setattr(supervisor._sweeper, "sweep", fails_once)
    try:
        open_tree(context, [None], [100])
        until(lambda: tree(context.database).size == 1)
        assert not failures, "it goes on after whatever has failed"
    finally:
        supervisor.stop()


CHANGES = [
    "UPDATE merkle_leaves SET leaf_index = 100",
    "DELETE FROM merkle_leaves",
    "UPDATE merkle_checkpoints SET tree_size = 100",
    "DELETE FROM merkle_checkpoints",
    "UPDATE merkle_nodes SET level = 3",
    "DELETE FROM merkle_nodes",
    "UPDATE merkle_trees SET size = 0",
    "UPDATE merkle_trees SET ledger_id = 'led_other'",
    "UPDATE merkle_trees SET checkpoints = -1",
    "DELETE FROM merkle_trees",
]
TABLES = ("merkle_leaves", "merkle_nodes", "merkle_checkpoints", "merkle_trees")
MOMENT = "'2026-05-01 00:00:00+00:00'"


def test_the_database_refuses_changes(context: Context) -> None:
    open_tree(context, [None], [100])
    integrate(context.database)
    is_sqlite = context.database.is_sqlite
    byte = "x'00'" if is_sqlite else "'\\x00'"
    with context.database.write() as session:
        session.execute(text(f"INSERT INTO merkle_nodes VALUES (1, 0, {byte})"))
        session.execute(text(f"INSERT INTO merkle_checkpoints VALUES (1, 1, {byte}, 'key', 'note', {MOMENT})"))
    of_engine = "INSERT OR REPLACE INTO {0} SELECT * FROM {0}" if is_sqlite else "TRUNCATE {0}"
    for change in [*CHANGES, *map(of_engine.format, TABLES)]:
        with pytest.raises(DBAPIError, match="append-only"), context.database.write() as session:
            session.execute(text(change))
