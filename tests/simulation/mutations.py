"""Faults of the machine and of the protocol that somebody might make: the simulation has to find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from app.entries import statements
from app.idempotency import once
from app.idempotency import records as remembered
from app.kit.hash_chain import GENESIS, chain_hash
from app.ledger import transitions
from app.ledger.commands import Expire, Void
from app.ledger.denials import DenialCode
from app.tables.states import ReservationStatus
from tests.simulation import storage as simulated
from tests.simulation.storage import Connection, SimulatedFence

_lock_budgets, _insert_all, _due_holds = simulated.lock_budgets, simulated.insert_all, simulated.due_holds
_denial, _reserve = transitions._denial, transitions._reserve


@dataclass(frozen=True)
class Mutation:
    """A fault.

    Attributes:
        replaced: Owners, names and what stands in the place.
        needs_row_locks: It is none where one transaction writes at a time.
    """

    replaced: Sequence[tuple[Any, str, Callable[..., Any]]]
    needs_row_locks: bool = False

    @contextmanager
    def made(self) -> Iterator[None]:
        """The code with the fault, as long as the block runs."""
        patches = [patch.object(owner, name, other) for owner, name, other in self.replaced]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in reversed(patches):
                each.stop()


def _rows(connection: Connection, ids: Sequence[str]) -> list[SimpleNamespace]:
    return [SimpleNamespace(**row) for each in sorted(ids) if (row := connection.budget(each)) is not None]


def _without_locks(connection: Connection, ids: Sequence[str]) -> list[SimpleNamespace]:
    connection.storage.scheduler.step("read")
    return _rows(connection, ids)


def _read_before_the_lock(connection: Connection, ids: Sequence[str]) -> list[SimpleNamespace]:
    found = _rows(connection, ids)
    _lock_budgets(connection, ids)
    return found


def _locks_in_any_order(connection: Connection, ids: Sequence[str]) -> list[SimpleNamespace]:
    shuffled = sorted(ids)
    connection.storage.scheduler.rng.shuffle(shuffled)
    for each in shuffled:
        _lock_budgets(connection, [each])
    return _rows(connection, ids)


def _record_in_a_transaction_of_its_own(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    with connection.engine.begin() as other:
        _insert_all(other, rows)


def _may_expire_when_started(reservation: Any, command: Any, now: Any) -> Any:
    if isinstance(command, Expire) and reservation.status is ReservationStatus.STARTED:
        return None
    return _denial(reservation, command, now)


def _started_are_due_too(session: Any, path: str, now: Any, limit: int) -> list[str]:
    rows = session.connection().tables.reservations.values()
    started = [row["id"] for row in rows if row["state"] == "started" and row["expires_at"] <= now]
    return (_due_holds(session, path, now, limit) + started)[:limit]


def _may_be_voided_when_started(reservation: Any, command: Any, now: Any) -> Any:
    denial = _denial(reservation, command, now)
    is_started = denial is not None and denial.code is DenialCode.ALREADY_STARTED
    return None if is_started and isinstance(command, Void) else denial


def _may_expire_early(reservation: Any, command: Any, now: Any) -> Any:
    denial = _denial(reservation, command, now)
    return None if denial is not None and denial.code is DenialCode.NOT_EXPIRED else denial


def _all_are_due(session: Any, path: str, now: Any, limit: int) -> list[str]:
    return list(session.connection().tables.pending)[:limit]


def _fenced_before_the_commit(self: SimulatedFence, connection: Any) -> list[Any]:
    moves = super(SimulatedFence, self).before_commit(connection)
    self.after_commit(moves)
    return moves


MUTATIONS: Mapping[str, Mutation] = {
    "a lock is left out": Mutation([(simulated, "lock_budgets", _without_locks)], needs_row_locks=True),
    "what is decided on is read before the lock": Mutation(
        [(simulated, "lock_budgets", _read_before_the_lock)], needs_row_locks=True
    ),
    "locks are taken in any order": Mutation([(simulated, "lock_budgets", _locks_in_any_order)], needs_row_locks=True),
    "the record is written in another transaction": Mutation(
        [(simulated, "insert_all", _record_in_a_transaction_of_its_own)], needs_row_locks=True
    ),
    "a started hold expires": Mutation(
        [(transitions, "_denial", _may_expire_when_started), (simulated, "due_holds", _started_are_due_too)]
    ),
    "a started hold is voided": Mutation([(transitions, "_denial", _may_be_voided_when_started)]),
    "a hold expires before its time": Mutation(
        [(transitions, "_denial", _may_expire_early), (simulated, "due_holds", _all_are_due)]
    ),
    "nothing is released": Mutation([(transitions, "minus", lambda a, b: a)]),
    "an entry does not name the one before it": Mutation(
        [(statements, "chain_hash", lambda previous, canonical: chain_hash(GENESIS, canonical))]
    ),
    "budgets above are not asked": Mutation(
        [(transitions, "_reserve", lambda path, command, now: _reserve(path[:1], command, now))]
    ),
    "a command is answered before the fence has it": Mutation(
        [(SimulatedFence, "after_commit", lambda self, moves: None)]
    ),
    "the fence is told before the commit": Mutation([(SimulatedFence, "before_commit", _fenced_before_the_commit)]),
    "a repetition is answered before the fence has it": Mutation(
        [(once, "catch_up", lambda database: None), (remembered, "catch_up", lambda database: None)]
    ),
}
