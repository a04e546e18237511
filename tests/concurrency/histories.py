"""Small histories of the real ledger: a few threads, a few commands each, and what each was answered when."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from anyio.from_thread import BlockingPortal

from app.context import Context
from app.db.database import Database
from app.fence.watching import fence_of
from app.kit.group_commit import GroupCommit
from tests.app.ledger.client import Client, open_tree
from tests.app.ledger.model import Command, Model
from tests.concurrency.linearization import Operation
from tests.concurrency.processes import at, in_threads

THREADS = 3
COMMANDS = 4
#: A budget, two in a line, a parent with two children.
TREES: list[tuple[int | None, ...]] = [(None,), (None, 0), (None, 0, 0)]
LATER_S = 60


def record_history(context: Context, loop: BlockingPortal, seed: int) -> tuple[Model, list[Operation]]:
    """A random history of a new tree of budgets, and the state from which it began.

    There are holds from before, some of them due. Two of the three threads are of one server, and share transactions;
    one is of another, with an engine of its own. At the end everything is looked at once more.
    """
    choice = random.Random(seed)
    parents = choice.choice(TREES)
    model = Model(parents, tuple(choice.randint(8, 16) for _ in parents))
    now = context.clock()
    before, here = at(context, now), at(context, now + timedelta(seconds=LATER_S))
    budgets = open_tree(before, parents, model.limits)
    ids: dict[str, str] = {}
    with other_server(here) as there:
        clients = [Client(each, loop, budgets, ids) for each in (before, here, here, there)]
        for number in range(3):
            name = f"{budgets[0]} {number}"
            made = Command("reserve", choice.randrange(len(parents)), choice.randint(1, 6), choice.choice([1, 600]))
            outcome, model = model.apply(name, made)
            assert clients[0].send(name, made) == outcome
        model = replace(model, now=LATER_S)
        plans = [random.Random(f"{seed} {thread}") for thread in range(THREADS)]

        def thread(number: int) -> list[Operation]:
            return [
                _send(clients[1 + number], f"{budgets[0]} {number} {turn}", _any_command(plans[number], model, ids))
                for turn in range(COMMANDS)
            ]

        with _often_interrupted():
            found = [operation for operations in in_threads(THREADS, thread) for operation in operations]
        looks = [
            _send(clients[1], f"{budgets[0]} look {budget}", Command("look", budget)) for budget in range(len(parents))
        ]
    return model, [*found, *looks]


def _any_command(choice: random.Random, model: Model, ids: dict[str, str]) -> Command:
    """About any budget, or any hold that somebody has been told of by now."""
    budget, units = choice.randrange(len(model.limits)), choice.randint(1, 6)
    kind = choice.choice(["reserve"] * 4 + ["start", "commit", "commit", "void", "extend", "correct"] * 2 + ["charge"])
    kind = choice.choice([kind, kind, kind, "look", "limit"])
    names = sorted(ids)
    if kind == "limit":
        return Command(kind, budget, choice.randint(4, 20))
    if kind in ("reserve", "charge", "look") or not names:
        return Command("reserve" if not names else kind, budget, None if kind == "look" else units, 600)
    part = units if kind in ("commit", "correct") and choice.random() < 0.5 else None
    return Command(kind, choice.choice(names), part, 600, may_lower=choice.random() < 0.5)


def _send(client: Client, name: str, command: Command) -> Operation:
    asked_at = time.monotonic_ns()
    outcome = client.send(name, command)
    return Operation(name, command, asked_at, time.monotonic_ns(), outcome)


@contextmanager
def other_server(context: Context) -> Iterator[Context]:
    """As if in another process: an engine and transactions of its own."""
    database = Database(context.database.url)
    try:
        other = replace(context, database=database, ledger_commits=GroupCommit())
        fence_of(other)
        yield other
    finally:
        database.dispose()


@contextmanager
def _often_interrupted() -> Iterator[None]:
    """Let threads of Python take turns much more often than they do."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
