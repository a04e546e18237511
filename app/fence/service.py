"""Compare the fence with the database, and update the fence with every commit that extends a chain of entries.

The fence is a record, kept outside the ledger's database, of the head of each chain: the last entry that was
acknowledged.

The entries of a commit are acknowledged once the fence has the new heads. A crash between the commit and the update of
the fence leaves a database that is ahead of its fence. Nothing is lost then, and the next comparison updates the fence.
If the fence is ahead, the database has lost entries.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.db.database import Database
from app.db.failures import DATABASE_FAILURES, Unfenced
from app.fence import repository
from app.fence.database_store import DatabaseStore
from app.fence.file_store import DamagedFence, FileStore
from app.fence.marks import Head, Kept, Loss, Move, Reason, compare

log = structlog.get_logger("epsilond.fence")

#: The seconds for which the result of a comparison is reused. A refusal is reused for a shorter time, because an
#: operator may acknowledge the loss meanwhile.
BELIEVED_S = 5.0
REFUSAL_BELIEVED_S = 1.0
_FAILURES = (DBAPIError, PoolTimeout, OSError)

# For each transaction, the heads that the chains it touches had before it; None for a chain that was not compared yet.
_TOUCHED: WeakKeyDictionary[Connection, dict[str, Head | None]] = WeakKeyDictionary()
# The SQLAlchemy engines whose transactions are reported to a fence.
_WATCHED: WeakSet[Engine] = WeakSet()


class Store(Protocol):
    """The place where the fence is kept."""

    def read(self, ids: Collection[str] | None = None) -> Kept | None: ...
    def create(self, kept: Kept) -> None: ...
    def replace(self, kept: Kept) -> None: ...
    def advance(self, moves: Sequence[Move]) -> bool:
        """Update the head of each chain whose ``base`` is its head in the fence. A base of None means that the fence
        lacks the chain.

        Returns:
            False if the fence has another end for some chains; these are not moved.
        """
        ...

    def close(self) -> None: ...


def touch(connection: Connection, budget_id: str, base: Head | None) -> None:
    """Note that the transaction acknowledges the chain of a budget, including the entries that the transaction adds.

    Args:
        connection: The connection of the transaction.
        budget_id: The budget of the chain.
        base: The head of the chain, read under the lock before anything was added; None if it was not read.

    Raises:
        RuntimeError: no fence watches the database, so that nothing may be acknowledged.
    """
    if connection.engine not in _WATCHED:
        raise RuntimeError("no fence watches this database: make the context with app.fence.watching.fenced_context")
    _TOUCHED.setdefault(connection, {}).setdefault(budget_id, base)


def leave_out(connection: Connection) -> None:
    """Let a transaction commit without an update of the fence. Only the code that replaces the fence calls this."""
    _TOUCHED.pop(connection, None)


class Fence:
    """The fence of a process, which watches every transaction that the process commits to the ledger's database.

    Guarantees:
        - acknowledged_is_fenced: when a write session has ended, the fence has every chain that the session extended or
          reported.
        - never_ahead: the fence never has an entry that is not committed.
        - behind_is_refused: no transaction extends a chain while the database is known to be behind the fence.
        - foreign_is_refused: no transaction extends a chain of a database that another version has migrated.

    Args:
        database: The ledger's database.
        url: The address of the database, or the path of the file, in which the fence is kept.
        clock: The time of day, which is recorded when the fence is created.
    """

    def __init__(self, database: Database, url: Callable[[], str | Path], clock: Callable[[], datetime]) -> None:
        self._database = database
        self._url = url
        self._clock = clock
        self._lock = threading.RLock()
        self._is_compared = False
        self._compared_at = 0.0
        self._loss: Loss | None = None
        self._is_logged = False
        #: The heads that the fence is known to have, for the chains that this process has used.
        self._known: dict[str, Head] = {}
        #: Chains whose committed heads could not be written to the fence.
        self._untold: set[str] = set()

    @cached_property
    def store(self) -> Store:
        """Return the file or the database in which the fence is kept."""
        place = self._url()
        return FileStore(place) if isinstance(place, Path) else DatabaseStore(place)

    @property
    def loss(self) -> Loss | None:
        """Return the loss for which the last comparison refused the database; None if it did not refuse it."""
        return self._loss

    def check(self) -> Loss | None:
        """Compare the whole database with the fence, and update the fence where the database is ahead. Return the loss,
        if there is one.

        If the database never had a fence, the fence is created.

        Raises:
            Unfenced: the fence cannot be read or written.
            DBAPIError: the database failed.
        """
        with self._lock:
            self._compare(None)
            self._is_compared, self._compared_at = True, time.monotonic()
            return self._loss

    def look(self) -> bool:
        """Return whether the fence and the database agree, by a comparison from the last few seconds. The beginning of
        a fault is logged."""
        try:
            loss = self.standing()
            if loss is not None and not self._is_logged:
                told = {"reason": str(loss.reason), "missing": loss.entries, "acknowledged": loss.acknowledged}
                log.error("database_behind_fence", **told)
            self._is_logged = loss is not None
            return loss is None
        except DATABASE_FAILURES as error:
            log.error("fence_not_compared", error_type=type(error).__name__)
            return False

    def standing(self) -> Loss | None:
        """Return the loss for which the database is refused, by a comparison from the last few seconds; None if it is
        not refused.

        Raises:
            Unfenced: the fence cannot be read or written.
        """
        believed = BELIEVED_S if self._loss is None else REFUSAL_BELIEVED_S
        if not self._is_compared or time.monotonic() - self._compared_at >= believed:
            self.check()
        return self._loss

    def renew(self, kept: Kept) -> None:
        """Replace the content of the fence after a loss was acknowledged, when a new life of the ledger begins."""
        with self._lock, _failures_told():
            self.store.replace(kept)
        self.check()

    def begin(self) -> None:
        """Compare the whole database with the fence, before the first write session of a process."""
        _WATCHED.add(self._database.engine)
        if not self._is_compared:
            self.check()

    def before_commit(self, connection: Connection) -> list[Move]:
        """Return the changes of the chains that the transaction is about to acknowledge.

        Raises:
            Unfenced: the database is behind the fence; nothing may be added to it.
        """
        touched = _TOUCHED.pop(connection, None)
        if not touched:
            return []
        if self._loss is None and any(self._is_before(budget_id, base) for budget_id, base in touched.items()):
            self.check()
        elif not repository.has_own_schema(connection):
            self._refuse(Loss(Reason.OTHER_SCHEMA))
        if self._loss is not None:
            raise refusal(self._loss)
        heads = repository.heads(connection, touched)
        return [Move(budget_id, base, heads[budget_id]) for budget_id, base in touched.items() if budget_id in heads]

    def after_commit(self, moves: Sequence[Move]) -> None:
        """Update the fence to the committed heads. The commit may be acknowledged only after this.

        Raises:
            Unfenced: the fence cannot be read or written. Sending the same command again makes another attempt.
            DBAPIError: the ledger's database failed before the comparison. Sending the command again helps here, too.
        """
        moves = [move for move in moves if self._known.get(move.budget_id) != move.head]
        untold = set(self._untold)
        if not moves and not untold:
            return
        ids = {move.budget_id for move in moves} | untold
        try:
            if not untold and self._advance(moves):
                return
            with self._lock:
                self._compare(ids)
        except DATABASE_FAILURES:
            self._untold |= ids
            raise
        self._untold -= ids
        if self._loss is not None:
            raise refusal(self._loss)

    def catch_up(self) -> None:
        """Update the fence to everything that is committed. Call this before answering with data that another process
        may have written.

        Raises:
            Unfenced: the database is behind, or the fence cannot be written.
        """
        loss = self.check()
        if loss is not None:
            raise refusal(loss)

    def heads(self, ids: Collection[str]) -> Mapping[str, Head]:
        """Update the fence to everything that is committed, and return the heads that it then has for these chains.

        A database snapshot that is taken afterwards has all entries up to these heads.

        Raises:
            Unfenced: the database is behind, or the fence cannot be read or written.
        """
        with self._lock:
            kept = self._compare(ids)
        if self._loss is not None:
            raise refusal(self._loss)
        return kept

    def close(self) -> None:
        """Close the fence's file or database. It is opened again when it is needed."""
        if "store" in vars(self):
            self.store.close()

    def _advance(self, moves: Sequence[Move]) -> bool:
        """Update the fence, and return whether it had the base of every chain."""
        with _failures_told():
            # A chain without a base was never compared, and neither was a chain whose base equals its new head.
            if any(move.base in (None, move.head) for move in moves) or not self.store.advance(moves):
                return False
        self._known |= {move.budget_id: move.head for move in moves}
        return True

    def _is_before(self, budget_id: str, base: Head | None) -> bool:
        """Return whether a chain ends earlier than this process has seen, or with another hash."""
        known = self._known.get(budget_id)
        return base is not None and known is not None and (base.sequence < known.sequence or _differ(base, known))

    def _compare(self, ids: Collection[str] | None) -> Mapping[str, Head]:
        """Compare some chains, or all, with the fence, and update the fence where the database is ahead.

        Returns:
            The heads that the fence has afterwards; empty if the database is refused.
        """
        try:
            # The fence is read before the database. So a commit in between can only put the database ahead of the
            # fence, never behind it.
            with _failures_told():
                kept = self.store.read(ids)
        except DamagedFence:
            return self._refuse(Loss(Reason.DAMAGED))
        with self._database.read() as session:
            connection = session.connection()
            if not repository.has_own_schema(connection):
                return self._refuse(Loss(Reason.OTHER_SCHEMA))
            ledger_id, life = repository.ledger_id(connection), repository.newest_life(connection)
            if kept is None:
                return self._without_fence(ledger_id, life)
            heads = repository.heads(connection, ids)
            loss = compare(
                kept,
                ledger_id,
                None if life is None else life[1],
                heads,
                lambda budget_id, first, last: repository.entries_between(connection, budget_id, first, last),
            )
        if loss is not None:
            return self._refuse(loss)
        if life is None:
            # The process that created the fence stopped before it recorded the first life of the ledger.
            self._enter_first_life(kept.life)
        ahead = {each: head for each, head in heads.items() if kept.heads.get(each) != head}
        self._loss = self._loss if ids is not None else None
        if ahead:
            moves = [Move(each, kept.heads.get(each), head) for each, head in ahead.items()]
            with _failures_told():
                is_moved = self.store.advance(moves)
            if not is_moved:
                # Another process has updated the fence meanwhile, so these chains must be compared with its new heads.
                return {**kept.heads, **self._compare(ahead)}
        self._known |= heads
        return {**kept.heads, **ahead}

    def _without_fence(self, ledger_id: str, life: tuple[int, str] | None) -> Mapping[str, Head]:
        if life is not None:
            return self._refuse(Loss(Reason.NO_FENCE))
        # The fence is created before the life is recorded, because a database that has a life but no fence is refused.
        with _failures_told():
            self.store.create(Kept(ledger_id, secrets.token_hex(16)))
        return self._compare(None)

    def _enter_first_life(self, life: str) -> None:
        with self._database.engine.begin() as connection:
            repository.enter_first_life(connection, life, self._clock())

    def _refuse(self, loss: Loss) -> Mapping[str, Head]:
        self._loss = loss
        self._known.clear()
        return {}


def refusal(loss: Loss) -> Unfenced:
    """Return the error that answers every request while the database is refused."""
    if loss.reason is Reason.OTHER_SCHEMA:
        detail = f"{loss.in_words()} Nothing is served. Ask a server of the other version."
        return Unfenced(503, "database_unavailable", detail, headers={"Retry-After": "5"})
    end = (
        "Give the server the right one."
        if loss.reason is Reason.OTHER_LEDGER
        else "Restore the newest copy, or let the operator enter the loss: `epsilond ledger acknowledge-loss`."
    )
    members = {"reason": str(loss.reason), "acknowledged_entries": loss.acknowledged, "missing_entries": loss.entries}
    detail = f"{loss.in_words()} Nothing is served. {end}"
    return Unfenced(503, "database_behind_fence", detail, members=members, headers={"Retry-After": "60"})


def _differ(base: Head, known: Head) -> bool:
    return base.sequence == known.sequence and base.hash != known.hash


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        detail = (
            "The fence, which EPSILOND_FENCE names, cannot be read or written, so nothing can be acknowledged. Send "
            "the same request again."
        )
        raise Unfenced(503, "fence_unavailable", detail, headers={"Retry-After": "5"}) from error
