"""A database in memory, as the ledger's statements see one: transactions, row locks, unique keys, READ COMMITTED.

Where a database would let others act, the scheduler may. A transaction's rows lie beside the committed ones until it
commits, which is one step. Rows are never changed in place, so that a copy of the tables is a snapshot.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import product
from types import SimpleNamespace
from typing import Any

from sqlalchemy.exc import IntegrityError, OperationalError

from app.db.database import Database
from app.entries import metering
from app.entries.metering import Meter
from app.fence.marks import Head, Kept, Move
from app.fence.service import Fence
from app.idempotency.records import Key, Stored
from app.ledger.statements import step_hash
from app.outbox.writing import Message, Subscription
from app.tables.ledger import Budget
from tests.simulation.scheduler import Fault, Scheduler, Task

Row = dict[str, Any]
Use = tuple[str, date]
_COLUMNS = [column.key for column in Budget.__mapper__.columns]


class Refused(Exception):
    """What a driver raises; the state is PostgreSQL's word for it."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


def busy() -> OperationalError:
    """A lock was not given in time."""
    return OperationalError("lock", None, Refused("55P03"))


def lost() -> OperationalError:
    """The connection is gone; whether a commit was carried out nobody knows."""
    return OperationalError("connection", None, Refused("08006"), connection_invalidated=True)


def _taken() -> IntegrityError:
    return IntegrityError("insert", None, Refused("23505"))


@dataclass
class Tables:
    """Everything that is committed."""

    budgets: dict[str, Row] = field(default_factory=dict)
    reservations: dict[str, Row] = field(default_factory=dict)
    pending: dict[str, Row] = field(default_factory=dict)
    entries: list[Row] = field(default_factory=list)
    places: dict[tuple[str, int], Row] = field(default_factory=dict)
    records: dict[Key, Row] = field(default_factory=dict)
    exposed: Counter[tuple[str, str]] = field(default_factory=Counter)
    lives: list[str] = field(default_factory=list)
    limit_requests: dict[str, Row] = field(default_factory=dict)
    #: Of a key and a day: entries and bytes.
    uses: dict[Use, tuple[int, int]] = field(default_factory=dict)
    #: Of a reservation: its entries that extend it.
    extensions: Counter[str] = field(default_factory=Counter)
    #: Webhooks that there are, by their budgets. They are made beside the simulation.
    webhooks: dict[str, Subscription] = field(default_factory=dict)

    def copy(self) -> Tables:
        """A snapshot."""
        return Tables(
            dict(self.budgets),
            dict(self.reservations),
            dict(self.pending),
            list(self.entries),
            dict(self.places),
            dict(self.records),
            Counter(self.exposed),
            list(self.lives),
            dict(self.limit_requests),
            dict(self.uses),
            Counter(self.extensions),
            dict(self.webhooks),
        )


@dataclass
class Storage:
    """The database server, and the place of the fence.

    Attributes:
        scheduler: Chooses who goes on.
        one_writer: SQLite's way: a transaction that writes keeps all others out. Else rows are locked.
        on_commit: Is told of each transaction that writes, at the moment of its commit.
        faults: How likely what is: a commit that fails, one whose answer is lost, a fence that cannot be written.
    """

    scheduler: Scheduler
    one_writer: bool
    on_commit: Callable[[Connection], None]
    faults: Mapping[str, float]
    tables: Tables = field(default_factory=Tables)
    kept: Kept | None = None
    open: list[Connection] = field(default_factory=list)
    locks: dict[str, Connection] = field(default_factory=dict)
    waiting: list[tuple[Task, Connection, Connection]] = field(default_factory=list)
    leaf: int = 0

    def may_fail(self, what: str) -> bool:
        """Whether a fault happens now."""
        if self.scheduler.current is None or self.scheduler.rng.random() >= self.faults.get(what, 0.0):
            return False
        self.scheduler.note(what)
        return True

    def wait_for(self, holder: Connection, waiter: Connection) -> None:
        """Wait until another transaction ends."""
        seen, at = [waiter], holder
        while at is not None:
            if at in seen:
                raise Fault(f"deadlock: {len(seen)} transactions wait for one another")
            seen.append(at)
            at = next((of for _, by, of in self.waiting if by is at), None)  # type: ignore[assignment]
        task = self.scheduler.current
        assert task is not None
        entry = (task, waiter, holder)
        self.waiting.append(entry)
        self.scheduler.happened["waits for a lock"] += 1
        try:
            self.scheduler.block("wait")
        finally:
            self.waiting.remove(entry)

    def end(self, connection: Connection) -> None:
        """Release what a transaction has locked, and let those go on who wait for it."""
        if connection in self.open:
            self.open.remove(connection)
        for name in [name for name, holder in self.locks.items() if holder is connection]:
            del self.locks[name]
        for task, _, holder in self.waiting:
            if holder is connection:
                self.scheduler.wake(task)

    def lock(self, name: str, connection: Connection) -> None:
        """Lock something until the transaction ends."""
        while (holder := self.locks.get(name)) is not None and holder is not connection:
            self.wait_for(holder, connection)
        self.locks[name] = connection


class Engine:
    """What gives connections to a process."""

    def __init__(self, storage: Storage, process: Any) -> None:
        self.storage, self.process = storage, process

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction."""
        storage = self.storage
        connection = Connection(self)
        storage.open.append(connection)
        try:
            storage.scheduler.step("begin")
            if storage.one_writer:
                storage.lock("the database", connection)
            yield connection
            storage.scheduler.step("commit")
            if storage.may_fail("commit fails"):
                raise lost()
            connection.commit()
        finally:
            storage.end(connection)
        storage.scheduler.step("committed")
        if storage.may_fail("answer of a commit is lost"):
            raise lost()


class Connection:
    """One transaction's view."""

    dialect = SimpleNamespace(name="postgresql")

    def __init__(self, engine: Engine) -> None:
        self.engine, self.storage = engine, engine.storage
        self.task = self.storage.scheduler.current
        self.budgets: dict[str, Row] = {}
        self.reservations: dict[str, Row] = {}
        self.entries: list[Row] = []
        self.records: dict[Key, Row] = {}
        self.exposed: Counter[tuple[str, str]] = Counter()
        self.lives: list[str] = []
        self.limit_requests: dict[str, Row] = {}
        #: None where the row is deleted.
        self.uses: dict[Use, tuple[int, int] | None] = {}
        self.messages: list[Message] = []

    def execute(self, statement: Any, values: Any) -> Any:
        """Carry out a statement of `app.entries.metering`."""
        self.storage.scheduler.step("uses")
        for name, function in METERING.items():
            if statement is (metering._LOCK["postgresql"] if name == "_LOCK" else getattr(metering, name)):
                return function(self, values)
        raise AssertionError(f"nobody simulates {statement}")

    @property
    def tables(self) -> Tables:
        return self.storage.tables

    def commit(self) -> None:
        """Let everybody see everything, at once."""
        tables = self.tables
        if self.entries or self.records or self.messages or self.uses:
            self.storage.on_commit(self)
        tables.budgets |= self.budgets
        tables.reservations |= self.reservations
        for reservation_id, row in self.reservations.items():
            tables.pending.pop(reservation_id, None)
            if row["state"] == "pending":
                tables.pending[reservation_id] = row
        for row in self.entries:
            tables.entries.append(row)
            tables.places[row["budget_id"], row["sequence"]] = row
            tables.extensions[row["reservation_id"]] += row["kind"] == "extend"
        tables.limit_requests |= self.limit_requests
        for use, counts in self.uses.items():
            if counts is None:
                tables.uses.pop(use, None)
            else:
                tables.uses[use] = counts
        tables.records |= self.records
        tables.exposed.update(self.exposed)
        tables.lives += self.lives

    def budget(self, budget_id: str) -> Row | None:
        return self.budgets.get(budget_id) or self.tables.budgets.get(budget_id)

    def limit_request(self, request_id: str) -> Row | None:
        return self.limit_requests.get(request_id) or self.tables.limit_requests.get(request_id)

    def use(self, use: Use) -> tuple[int, int] | None:
        return self.uses[use] if use in self.uses else self.tables.uses.get(use)

    def reservation(self, reservation_id: str) -> Row | None:
        return self.reservations.get(reservation_id) or self.tables.reservations.get(reservation_id)

    def _unique(self, mine: Callable[[Connection], bool], is_committed: Callable[[], bool]) -> None:
        """Wait for whoever has inserted the same key and has not ended.

        Raises:
            IntegrityError: it is committed.
        """
        while not is_committed():
            other = next((each for each in self.storage.open if each is not self and mine(each)), None)
            if other is None:
                return
            self.storage.wait_for(other, self)
        self.storage.scheduler.happened["unique key was taken"] += 1
        raise _taken()


# The statements of `app.ledger.statements` and of `app.entries.statements`, with their names.


def paths(connection: Connection, targets: Sequence[str]) -> list[tuple[str, str]]:
    connection.storage.scheduler.step("paths")
    found = []
    for target in targets:
        about = connection.reservation(target) or connection.limit_request(target)
        row = connection.budget(target if about is None else about["budget_id"])
        if row is not None:
            found.append((target, row["path"]))
    return found


def lock_budgets(connection: Connection, ids: Sequence[str]) -> list[SimpleNamespace]:
    found = []
    for budget_id in sorted(ids):
        connection.storage.scheduler.step("lock")
        if not connection.storage.one_writer and connection.budget(budget_id) is not None:
            connection.storage.lock(budget_id, connection)
        row = connection.budget(budget_id)
        if row is not None:
            found.append(SimpleNamespace(**row))
    return found


def reservations(connection: Connection, ids: Sequence[str]) -> list[SimpleNamespace]:
    connection.storage.scheduler.step("reservations")
    return [SimpleNamespace(**row) for each in ids if (row := connection.reservation(each)) is not None]


def update_budgets(connection: Connection, changes: Sequence[Row]) -> None:
    for change in changes:
        connection.storage.scheduler.step("update budget")
        budget_id = change["b_id"]
        row = connection.budget(budget_id)
        assert row is not None
        # An update locks, too; it does nothing where the lock is held already.
        if not connection.storage.one_writer:
            connection.storage.lock(budget_id, connection)
        if change["headroom"] < 0 and not change["overdrawn"]:
            raise IntegrityError("update", None, Refused("23514"))
        connection.budgets[budget_id] = {**row, **{name: each for name, each in change.items() if name != "b_id"}}


def insert_reservations(connection: Connection, values: Sequence[Row]) -> None:
    for row in values:
        connection.storage.scheduler.step("insert reservation")
        if connection.reservation(row["id"]) is not None:
            raise _taken()
        connection.reservations[row["id"]] = dict(row)


def update_reservations(connection: Connection, changes: Sequence[Row]) -> None:
    for change in changes:
        connection.storage.scheduler.step("update reservation")
        row = connection.reservation(change["b_id"])
        assert row is not None
        connection.reservations[row["id"]] = {**row, **{name: each for name, each in change.items() if name != "b_id"}}


def limit_requests(connection: Connection, ids: Sequence[str], budget_ids: Sequence[str]) -> list[SimpleNamespace]:
    rows = connection.tables.limit_requests | connection.limit_requests if ids or budget_ids else {}
    if rows:
        connection.storage.scheduler.step("limit requests")
    found = [rows[each] for each in ids if each in rows]
    found += [row for row in rows.values() if row["budget_id"] in budget_ids and row["state"] == "open"]
    return [SimpleNamespace(**row) for row in found]


def insert_limit_requests(connection: Connection, values: Sequence[Row]) -> None:
    for row in values:
        connection.storage.scheduler.step("insert limit request")
        if connection.limit_request(row["id"]) is not None:
            raise _taken()
        connection.limit_requests[row["id"]] = dict(row)


def update_limit_requests(connection: Connection, changes: Sequence[Row]) -> None:
    for change in changes:
        connection.storage.scheduler.step("update limit request")
        row = connection.limit_request(change["b_id"])
        assert row is not None
        others = {name: each for name, each in change.items() if name != "b_id"}
        connection.limit_requests[row["id"]] = {**row, **others}


def insert_entries(connection: Connection, values: Sequence[Row], meter: Meter) -> None:
    storage = connection.storage
    for row in values:
        storage.scheduler.step("insert entry")
        place = (row["budget_id"], row["sequence"])
        connection._unique(
            lambda other, place=place: any((e["budget_id"], e["sequence"]) == place for e in other.entries),
            lambda place=place: place in storage.tables.places,
        )
        storage.leaf += 1
        connection.entries.append({**row, "leaf_index": storage.leaf})
    if values:
        meter.write()


def add_exposed_steps(connection: Connection, steps: Sequence[tuple[str, Any, int]]) -> None:
    if steps:
        connection.storage.scheduler.step("exposed steps")
    for budget_id, step, count in steps:
        connection.exposed[budget_id, step_hash(step)] += count


# Those of `app.entries.metering`.


def _lock_uses(connection: Connection, values: Row) -> SimpleNamespace:
    """A row for each key and two days, made where there is none, and locked."""
    found = []
    for use in product(sorted(values["ids"]), (values["before"], values["day"])):
        connection.storage.scheduler.step("lock use")
        if not connection.storage.one_writer:
            connection.storage.lock(f"use {use}", connection)
        entries, size = connection.use(use) or (0, 0)
        connection.uses[use] = (entries, size)
        found.append((*use, entries, size))
    return SimpleNamespace(all=lambda: found)


def _add_uses(connection: Connection, added: Sequence[Row]) -> None:
    for row in added:
        use = (row["b_id"], row["b_day"])
        entries, size = connection.use(use) or (0, 0)
        connection.uses[use] = (entries + row["entries"], size + row["bytes"])


def _forget_uses(connection: Connection, values: Row) -> None:
    for use in sorted(connection.tables.uses):
        if use[0] == values["b_id"] and use[1] < values["b_day"]:
            if not connection.storage.one_writer:
                connection.storage.lock(f"use {use}", connection)
            connection.uses[use] = None


def _count_open(connection: Connection, values: Row) -> SimpleNamespace:
    rows = (connection.tables.reservations | connection.reservations).values()
    found = [row for row in rows if row["principal_id"] == values["principal_id"] and row["resolved_at"] is None]
    return SimpleNamespace(scalar_one=lambda: len(found))


def _count_extensions(connection: Connection, values: Row) -> SimpleNamespace:
    return SimpleNamespace(scalar_one=lambda: connection.tables.extensions[values["reservation_id"]])


METERING: Mapping[str, Callable[[Connection, Any], Any]] = {
    "_LOCK": _lock_uses,
    "_ADD": _add_uses,
    "_FORGET": _forget_uses,
    "_OPEN": _count_open,
    "_EXTENSIONS": _count_extensions,
}


# Those of `app.outbox.writing`.


def subscriptions(connection: Connection, budget_ids: Sequence[str]) -> list[Subscription]:
    if budget_ids:
        connection.storage.scheduler.step("webhooks")
    webhooks = connection.tables.webhooks
    return [webhooks[budget_id] for budget_id in budget_ids if budget_id in webhooks]


def write_messages(connection: Connection, messages: Iterable[Message], _now: datetime) -> None:
    """Put messages into the outbox, as a part of the transaction."""
    for message in messages:
        connection.storage.scheduler.step("insert message")
        connection.messages.append(message)


# Those of `app.idempotency.records`.


def find(connection: Connection, keys: Sequence[Key]) -> dict[Key, Stored]:
    connection.storage.scheduler.step("find records")
    found = {}
    for key in keys:
        row = connection.records.get(key) or connection.tables.records.get(key)
        if row is not None:
            found[key] = Stored(row["fingerprint"], row["status"], row["answer"])
    return found


def insert_all(connection: Connection, rows: Sequence[Row]) -> None:
    for row in rows:
        connection.storage.scheduler.step("insert record")
        key = (row["principal_id"], row["key"])
        connection._unique(
            lambda other, key=key: key in other.records, lambda key=key: key in connection.tables.records
        )
        connection.records[key] = row


# Those of `app.ledger.repository` that the release of holds asks.


def find_budget(session: Session, budget_id: str) -> SimpleNamespace | None:
    row = session.connection().budget(budget_id)
    return None if row is None else SimpleNamespace(**row)


def due_holds(session: Session, path: str, now: datetime, limit: int) -> list[str]:
    connection = session.connection()
    connection.storage.scheduler.step("due holds")
    due = [
        row
        for row in (connection.tables.pending | connection.reservations).values()
        if row["state"] == "pending"
        and row["expires_at"] <= now
        and _is_under(connection.tables.budgets[row["budget_id"]]["path"], path)
    ]
    return [row["id"] for row in sorted(due, key=lambda row: (row["expires_at"], row["id"]))[:limit]]


def _is_under(path: str, root: str) -> bool:
    return not root or path == root or path.startswith(f"{root}/")


# Those of `app.fence.repository`.


def has_own_schema(_connection: Connection) -> bool:
    return True  # nobody migrates: tests/app/fence/test_schema.py


def ledger_id(_connection: Connection) -> str:
    return "the ledger"


def newest_life(connection: Connection) -> tuple[int, str] | None:
    connection.storage.scheduler.step("newest life")
    lives = connection.tables.lives
    return (len(lives), lives[-1]) if lives else None


def enter_first_life(connection: Connection, life: str, _moment: datetime) -> None:
    if not connection.tables.lives:
        connection.lives = [life]


def heads(connection: Connection, ids: Collection[str] | None = None) -> dict[str, Head]:
    connection.storage.scheduler.step("heads")
    wanted = connection.tables.budgets | connection.budgets
    rows = wanted.values() if ids is None else [wanted[each] for each in ids if each in wanted]
    return {row["id"]: Head(row["sequence"], row["head_hash"]) for row in rows}


def entries_between(connection: Connection, budget_id: str, first: int, last: int) -> Iterator[tuple[str, bytes]]:
    for sequence in range(first, last + 1):
        row = connection.tables.places.get((budget_id, sequence))
        if row is not None:
            yield row["hash"], row["canonical"]


class Session:
    """As much of a session as the ledger uses."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection(self) -> Connection:
        return self._connection

    def add(self, budget: Budget) -> None:
        self._connection.budgets[budget.id] = {name: getattr(budget, name) for name in _COLUMNS}

    def flush(self) -> None:
        self._connection.storage.scheduler.step("insert budget")

    def in_transaction(self) -> bool:
        return True


class SimulatedDatabase(Database):
    """The real protocol of transactions and their witness, on simulated connections."""

    engine: Any

    def __init__(self, storage: Storage, process: Any) -> None:
        self.url, self.lock_timeout_s, self.is_sqlite = "simulated", 1, False
        self.engine = Engine(storage, process)
        self._make_witness = None
        self._witness_lock = threading.Lock()
        self._witness = None

    @contextmanager
    def write(self) -> Iterator[Any]:
        with self.write_briefly() as connection:
            yield Session(connection)  # type: ignore[arg-type]

    @contextmanager
    def read(self) -> Iterator[Any]:
        self.engine.storage.scheduler.step("read")
        yield Session(Connection(self.engine))


class Place:
    """The fence as it is kept: what was noted stays, whoever dies."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def read(self, ids: Collection[str] | None = None) -> Kept | None:
        self._step("read fence")
        kept = self.storage.kept
        if kept is None or ids is None:
            return kept
        return Kept(kept.ledger_id, kept.life, {each: kept.heads[each] for each in ids if each in kept.heads})

    def create(self, kept: Kept) -> None:
        self._step("create fence")
        if self.storage.kept is None:
            self.storage.kept = kept

    def replace(self, kept: Kept) -> None:
        raise Fault("nobody has acknowledged a loss")

    def advance(self, moves: Sequence[Move]) -> bool:
        self._step("advance fence")
        kept = self.storage.kept
        assert kept is not None
        next_heads = {move.budget_id: move.head for move in moves if kept.heads.get(move.budget_id) == move.base}
        self._note(next_heads)
        return len(next_heads) == len(moves)

    def close(self) -> None:
        pass

    def _step(self, where: str) -> None:
        self.storage.scheduler.step(where)
        if self.storage.may_fail("fence cannot be reached"):
            raise OSError(5, "the fence cannot be reached")

    def _note(self, later: Mapping[str, Head]) -> None:
        kept, places = self.storage.kept, self.storage.tables.places
        assert kept is not None
        for budget_id, head in later.items():
            row = places.get((budget_id, head.sequence))
            if row is None or row["hash"] != head.hash:
                raise Fault(f"the fence is told of entry {head.sequence} of {budget_id}, which is not committed")
        self.storage.kept = Kept(kept.ledger_id, kept.life, {**kept.heads, **later})
        self.storage.scheduler.step("fence is written")


class TakingTurns:
    """A lock of one process's threads, which lets the scheduler go on while it is waited for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Task | None = None
        self._depth = 0
        self._waiting: list[Task] = []

    def __enter__(self) -> None:
        task = self._scheduler.current
        while self._owner is not None and self._owner is not task:
            assert task is not None
            self._waiting.append(task)
            try:
                self._scheduler.block("turn")
            finally:
                self._waiting.remove(task)
        self._owner, self._depth = task, self._depth + 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            for task in self._waiting:
                self._scheduler.wake(task)


class SimulatedFence(Fence):
    """The real fence, with its place in memory."""

    def __init__(self, database: SimulatedDatabase, clock: Callable[[], datetime]) -> None:
        super().__init__(database, lambda: "simulated", clock)
        storage = database.engine.storage
        vars(self)["store"] = Place(storage)
        self._lock = TakingTurns(storage.scheduler)  # type: ignore[assignment]
