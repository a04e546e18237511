"""A reservation resolves at most once: commits against voids against the sweeper, all at once, in several processes.

Hosts disagree about the time, so that all three may win: on the sweeper's clock the hold is due, on the others' not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from anyio.from_thread import BlockingPortal

from app.auth.principal import LOOPBACK
from app.context import Context
from app.idempotency.once import Keyed
from app.ledger.commands import Commit, Start, Void
from app.ledger.journal import Instruction, carry_out
from app.ledger.repository import chain
from app.ledger.transitions import Transition
from app.problems import Problem
from app.reservations.commands import to_resolve
from app.reservations.endpoints import answered
from app.reservations.service import release_due_holds
from app.tables.states import ReservationStatus
from tests.app.ledger.audit import audit
from tests.app.ledger.client import Client, open_tree
from tests.app.ledger.model import Command, Outcome
from tests.concurrency.histories import other_server
from tests.concurrency.processes import Host, at, deadlocks, in_threads, run_in_processes

Resolution = Start | Commit | Void

ROUNDS = 25
#: Each round's hold is due a minute after the one before, and due to the sweeper alone.
MADE, MINUTE = datetime(2026, 5, 1, tzinfo=UTC), timedelta(minutes=1)

RESOLVED = {
    ReservationStatus.COMMITTED: "commit",
    ReservationStatus.VOIDED: "void",
    ReservationStatus.EXPIRED: "expire",
}


@dataclass(frozen=True)
class Role:
    """What one process does to the hold of each round."""

    name: str
    sweeps: bool
    holds: list[str]
    first_due: datetime


def resolve_together(host: Host, name: str, hold: str) -> list[str]:
    """Start, commit and void at once, as over HTTP and in transactions of their own; what was carried out."""

    context = host.context

    def over_http(command: type[Resolution]) -> bool:
        keyed = Keyed.of(context, LOOPBACK.id, f"{name} {hold} {command.__name__}", b"")
        try:
            host.loop.call(answered, to_resolve(context, LOOPBACK, keyed, hold, command()))
        except Problem:
            return False
        return True

    def alone(command: type[Resolution]) -> bool:
        with context.database.write() as session:
            instruction = Instruction(command(), "loopback", hold)
            (outcome,) = carry_out(session, context.database, [instruction], context.clock())
        return isinstance(outcome, Transition)

    asked: list[tuple[Callable[[type[Resolution]], bool], type[Resolution]]] = [
        (over_http, Commit),
        (over_http, Void),
        (alone, Commit),
        (alone, Void),
        (over_http, Start),
    ]
    done = in_threads(len(asked), lambda number: asked[number][0](asked[number][1]))
    return [command.__name__ for (_, command), was_done in zip(asked, done, strict=True) if was_done]


def play(host: Host, role: Role) -> list[list[str]]:
    """What was carried out in each round."""
    carried_out = []
    for number, hold in enumerate(role.holds):
        now = role.first_due + number * MINUTE
        host.barrier.wait()
        if role.sweeps:
            carried_out.append(["Expire"] * release_due_holds(at(host.context, now)))
        else:
            # The sweeper looks before it locks: give it a start, now and then.
            time.sleep(number % 5 / 1000)
            carried_out.append(resolve_together(replace(host, context=at(host.context, now - MINUTE)), role.name, hold))
    return carried_out


@pytest.mark.thorough
def test_a_hold_that_is_due_makes_room_for_all_who_come_at_once(context: Context, loop: BlockingPortal) -> None:
    """Also for those who find that another has released it already. Each comes to a server of its own."""
    servers = 6
    with ExitStack() as stack:
        contexts = [
            at(stack.enter_context(other_server(context)), MADE + (MINUTE if server else timedelta()))
            for server in range(1 + servers)
        ]
        for number in range(10):
            budgets = open_tree(context, [None, 0], [servers, 100])
            name = budgets[0]
            clients = [Client(each, loop, budgets) for each in contexts]
            assert clients[0].send(name, Command("reserve", 1, servers, 60)) == ("pending", 0)

            def come(thread: int, name: str = name, clients: list[Client] = clients) -> Outcome:
                return clients[1 + thread].send(f"{name} {thread}", Command("reserve", thread % 2, 1, 60))

            found = in_threads(servers, come)
            assert sorted(found) == [("pending", left) for left in range(servers)], number
            with context.database.read() as session:
                audit(session, budgets[0])


def resolve_everywhere(context: Context, loop: BlockingPortal) -> Counter[str]:
    """How the reservations ended."""
    client = Client(at(context, MADE), loop, open_tree(context, [None, 0], [1000, 1000]))
    for number in range(ROUNDS):
        client.send(f"hold {number:02}", Command("reserve", 1, 3, 60 * (number + 1)))
    holds = [client.ids[name] for name in sorted(client.ids)]
    roles = [Role(name, name == "sweeper", holds, MADE + MINUTE) for name in ("here", "sweeper", "there")]
    told = run_in_processes(play, context, roles)
    with context.database.read() as session:
        audit(session, client.budgets[0])
        after = audit(session, client.budgets[1]).reservations
        entries = Counter((entry.reservation_id, entry.kind) for entry in chain(session, client.budgets[1]))
    for number, hold in enumerate(holds):
        carried_out = Counter(name for process in told for name in process[number])
        status = after[hold].status
        resolutions = {kind: carried_out[kind.capitalize()] for kind in ("commit", "void", "expire")}
        assert resolutions == {kind: RESOLVED[status] == kind for kind in resolutions}, carried_out
        assert {kind: entries[hold, kind] for kind in resolutions} == resolutions
        assert entries[hold, "start"] == carried_out["Start"] <= (status is ReservationStatus.COMMITTED)
    assert deadlocks(context.database) == 0
    return Counter(str(after[hold].status) for hold in holds)


def test_a_reservation_resolves_at_most_once(context: Context, loop: BlockingPortal) -> None:
    resolve_everywhere(context, loop)
