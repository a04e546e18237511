"""Retries are safe while the first sending is still under way: each command is sent one to five times by each of two
processes, shuffled, from several threads, and has one effect and one answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from sqlalchemy import func, select

from app.context import Context
from app.tables.idempotency import IdempotencyRecord
from app.tables.ledger import Entry
from tests.app.ledger.audit import audit
from tests.app.ledger.client import Client, Reply, open_tree
from tests.app.ledger.model import Command
from tests.concurrency.processes import Host, deadlocks, in_threads, run_in_processes

PROCESSES = 2
THREADS = 6
#: A parent, and two children that together may hold more; about two thirds of what is asked fits.
PARENTS, LIMITS = [None, 0, 0], [60, 50, 50]
HOLDS = 24


@dataclass(frozen=True)
class Deliveries:
    """What one process sends.

    Attributes:
        seed: Of the order, and of how often each command is sent.
        commands: By their keys.
    """

    seed: int
    budgets: Sequence[str]
    ids: Mapping[str, str]
    commands: Mapping[str, Command]


def deliver(host: Host, work: Deliveries) -> list[tuple[str, Reply]]:
    """Every decision that came back, with the key that it answers."""
    client = Client(host.context, host.loop, work.budgets, dict(work.ids))
    choice = random.Random(work.seed)
    sendings = [name for name in work.commands for _ in range(choice.randint(1, 5))]
    choice.shuffle(sendings)

    def thread(number: int) -> list[tuple[str, Reply]]:
        return [(name, until_decided(client, name, work.commands[name])) for name in sendings[number::THREADS]]

    host.barrier.wait()
    return [answered for found in in_threads(THREADS, thread) for answered in found]


def until_decided(client: Client, name: str, command: Command) -> Reply:
    """The answer, once no twin of the request is under way in this process any more."""
    while True:
        reply = client.reply(name, command)
        if reply.body.get("code") != "request_in_progress":
            return reply


def deliver_everywhere(
    context: Context, budgets: list[str], ids: Mapping[str, str], commands: Mapping[str, Command], seed: int
) -> dict[str, list[Reply]]:
    """The answers to each command, from all processes."""
    work = [Deliveries(seed + place, budgets, ids, commands) for place in range(PROCESSES)]
    answers: dict[str, list[Reply]] = {name: [] for name in commands}
    for found in run_in_processes(deliver, context, work):
        for name, reply in found:
            answers[name].append(reply)
    return answers


def send_often_and_everywhere(context: Context, seed: int = 0) -> dict[str, list[Reply]]:
    """Every answer to each command."""
    budgets = open_tree(context, PARENTS, LIMITS)
    made = {f"hold {number}": Command("reserve", number % 3, 1 + number % 5, 3600) for number in range(HOLDS)}
    made |= {f"charge {number}": Command("charge", number % 3, 1) for number in range(3)}
    first = deliver_everywhere(context, budgets, {}, made, seed)
    ids = {name: replies[0].body["id"] for name, replies in first.items() if replies[0].status == 201}
    denied = {name for name, replies in first.items() if replies[0].status == 409}
    assert denied
    resolved = {
        f"{kind} {name}": Command(kind, name, seconds=7200)
        for name in sorted(ids.keys() - {"charge 0", "charge 1", "charge 2"})
        for kind in ("start", "commit", "void", "extend", "correct")
    }
    limits = {f"limit {number}": Command("limit", 0, 500 + number) for number in range(2)}
    # And what was answered before is asked again, while there is room for what was denied.
    second = deliver_everywhere(context, budgets, ids, {**made, **resolved, **limits}, seed + PROCESSES)
    answers = {name: first.get(name, []) + replies for name, replies in second.items()}
    for name, replies in answers.items():
        assert {reply.status for reply in replies} <= {200, 201, 409}, name
        assert len({json.dumps([reply.status, reply.body], sort_keys=True) for reply in replies}) == 1, name
        assert sum(not reply.is_replayed for reply in replies) == 1, name
    assert all(replies[0].body["code"] == "budget_exceeded" for name, replies in answers.items() if name in denied)
    succeeded = sum(replies[0].status < 400 for replies in answers.values())
    with context.database.read() as session:
        audit(session, budgets[0])
        entries = session.scalar(select(func.count()).select_from(Entry))
        records = session.scalar(select(func.count()).select_from(IdempotencyRecord))
    assert (entries, records) == (len(budgets) + succeeded, len(answers))
    assert deadlocks(context.database) == 0
    return answers


@pytest.mark.thorough  # tests/concurrency/test_command_race.py has the shorter ones
def test_a_command_sent_often_and_everywhere_has_one_effect_and_one_answer(context: Context) -> None:
    send_often_and_everywhere(context)
