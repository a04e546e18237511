"""A parent's limit holds however its children split it; and who locks several budgets locks them in one order."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from accounting.filters import ZcdpFilter
from app.context import Context
from app.db.database import Database
from app.ledger import pricing
from app.ledger.commands import Charge, Command, Commit, Expire, Reserve, Start, Void
from app.ledger.journal import Instruction, carry_out, open_budget
from app.ledger.transitions import Transition
from app.tables.ledger import Budget, Entry
from tests.app.ledger.audit import audit
from tests.app.ledger.client import open_tree
from tests.concurrency.processes import Host, deadlocks, in_threads, run_in_processes, watch_conflicts
from tests.concurrency.spending import HOUR, Attempt, Race, fill, limits_of, spend_either_way, units
from tests.databases import DatabaseFactory

PROCESSES = 4
CONNECTIONS = 5

#: A root, three children, and two children of each of the first two.
PARENTS = [None, 0, 0, 0, 1, 1, 2, 2]
#: The children may spend four times what the root may, and the grandchildren more than their parents.
LOOSE = [100, 130, 130, 140, 120, 140, 60, 200]
#: The root has room for everyone; below it, some denials come from a child and some from a grandchild.
TIGHT = [10_000, 60, 50, 20, 12, 60, 50, 8]


def race_in_a_tree(context: Context, given: list[int], seed: int = 0) -> list[Attempt]:
    budget_ids = open_tree(context, PARENTS, given)
    menu = [units(count) for count in range(1, 7)]
    return fill(context, Race(spend_either_way, budget_ids, menu, CONNECTIONS, 8, seed), PROCESSES)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("given", [LOOSE, TIGHT], ids=["loose", "tight"])
def test_a_parents_limit_holds_however_its_children_split_it(context: Context, given: list[int]) -> None:
    race_in_a_tree(context, given)


#: Two trees. From the leaves to the roots the ids rise on some paths and fall on others, so that locks that were taken
#: up a path, or down it, would meet in opposite orders.
PATHS = ["m", "m/a", "m/a/y", "m/z", "m/z/b", "n", "n/x", "n/x/c", "n/d", "n/d/w"]


def open_named(context: Context, path: str) -> str:
    """Open the budget with this path of short names; its id is the last of them."""
    *above, identifier = path.split("/")
    with context.database.write() as session:
        budget = Budget(
            id=identifier,
            name="b",
            neighboring_relation="replace_one",
            privacy_unit="record",
            filter=ZcdpFilter(1000.0),
            report_delta=None,
            labels={},
            principal_id="loopback",
            created_at=context.clock(),
            parent_id=above[-1] if above else None,
            path=path,
        )
        open_budget(session, budget)
    return identifier


@dataclass(frozen=True)
class Batches:
    """What one process does: batches of commands about random budgets, many in one transaction."""

    seed: int
    threads: int = 4
    batches: int = 12


def send_batches(host: Host, work: Batches) -> int:
    """Returns how many commands were carried out."""
    context = host.context
    with context.database.read() as session:
        terms = {path[-1]: limits_of(session, [path[-1]])[path[-1]] for path in PATHS}

    def thread(number: int) -> int:
        choice = random.Random(1000 * work.seed + number)
        done = 0
        held: list[str] = []
        for batch in range(work.batches):
            instructions = []
            for place in range(choice.randint(2, 6)):
                budget_id = choice.choice(PATHS)[-1]
                events = units(choice.randint(1, 5))
                quote = pricing.price(terms[budget_id].filter, events, terms[budget_id].relation)
                name = f"res_{work.seed}_{number}_{batch}_{place}"
                make: list[Command] = [
                    Reserve(name, events, quote, context.clock() + HOUR),
                    Charge(name, events, quote, "race"),
                ]
                instructions.append(Instruction(choice.choice(make), "loopback", budget_id))
            resolve: list[Command] = [Start(), Commit(), Void(), Expire()]
            instructions += [
                Instruction(choice.choice(resolve), "loopback", choice.choice(held))
                for _ in range(choice.randint(0, 4))
                if held
            ]
            choice.shuffle(instructions)
            with context.database.write() as session:
                outcomes = carry_out(session, context.database, instructions, context.clock())
            for instruction, outcome in zip(instructions, outcomes, strict=True):
                done += isinstance(outcome, Transition)
                if isinstance(instruction.command, Reserve):
                    held.append(instruction.command.reservation_id)
        return done

    host.barrier.wait()
    return sum(in_threads(work.threads, thread))


def send_batches_everywhere(context: Context, seed: int = 0) -> int:
    """Returns how many commands were carried out."""
    for path in PATHS:
        open_named(context, path)
    done = sum(run_in_processes(send_batches, context, [Batches(seed + place) for place in range(PROCESSES)]))
    with context.database.read() as session:
        entries = session.scalar(select(func.count()).select_from(Entry))
        for root in ("m", "n"):
            audit(session, root)
    assert entries == len(PATHS) + done
    assert deadlocks(context.database) == 0
    return done


@pytest.mark.thorough
def test_transactions_about_many_budgets_lock_them_in_one_order(context: Context) -> None:
    send_batches_everywhere(context)


@pytest.fixture
def postgresql(postgresql_databases: DatabaseFactory) -> Iterator[Database]:
    url = postgresql_databases.migrated()
    database = Database(url)
    yield database
    database.dispose()
    postgresql_databases.drop(url)


def test_the_control_that_locks_up_a_path_and_down_it_deadlocks(postgresql: Database) -> None:
    """And so it shows that a deadlock is counted, where the other tests count none."""
    with postgresql.write() as session:
        session.execute(text("CREATE TABLE control (id text PRIMARY KEY)"))
        session.execute(text("INSERT INTO control VALUES ('leaf'), ('root')"))
    conflicts = watch_conflicts(postgresql)
    both_have_one = threading.Barrier(2)

    def lock(session: Session, name: str) -> None:
        session.execute(text("SELECT id FROM control WHERE id = :id FOR NO KEY UPDATE"), {"id": name})

    def lock_both(order: Sequence[str]) -> bool:
        try:
            with postgresql.write() as session:
                lock(session, order[0])
                both_have_one.wait(60)
                lock(session, order[1])
        except OperationalError:
            return False
        return True

    orders = [["leaf", "root"], ["root", "leaf"]]
    assert sorted(in_threads(2, lambda number: lock_both(orders[number]))) == [False, True]
    assert conflicts == ["40P01"]
    assert deadlocks(postgresql) == 1
