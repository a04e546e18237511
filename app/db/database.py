"""Engines and sessions: a write session is one transaction, a read session cannot write."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.orm import Session

from app.kit import spans
from app.kit.private_files import make_private_file, make_private_folder

# SQLite waits this many seconds for another writer before it gives up, and PostgreSQL for a row lock.
LOCK_TIMEOUT_S = 30
#: The lock timeout on PostgreSQL for a transaction that serves many callers at once.
BRIEF_LOCK_TIMEOUT_S = 1
#: A connection to PostgreSQL that was idle for more seconds than this is tested before it is used.
IDLE_S = 1.0
#: Options of libpq, by which a host that disappears is noticed after ten seconds while connecting, after thirty while
#: sending, and after a minute while waiting for an answer. A URL may set others.
PATIENCE_WITH_HOSTS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
#: PostgreSQL's codes for a lock that was not obtained in time, a deadlock and a serialization conflict: nothing was
#: written, so the transaction can be tried again.
POSTGRESQL_BUSY = frozenset({"55P03", "40P01", "40001"})

_WAIT_AS_LONG_AS_ALLOWED = text("SELECT set_config('lock_timeout', :timeout, true)")


class Witness(Protocol):
    """An object that is called around every writing transaction, and can prevent its acknowledgement (`app.fence`)."""

    def begin(self) -> None:
        """Prepare for a transaction before it begins."""

    def before_commit(self, connection: Connection) -> list[Any]:
        """Return the argument of `after_commit`. If this raises, the transaction is rolled back."""
        ...

    def after_commit(self, moves: list[Any]) -> None:
        """Record a durable transaction before it is acknowledged."""

    def catch_up(self) -> None:
        """Record commits by other processes before they are acknowledged, since those processes may not have recorded
        them yet.
        """

    def close(self) -> None:
        """Release all resources when the engine is disposed of."""


class Database:
    """One engine, SQLite or PostgreSQL, behind two kinds of session."""

    def __init__(self, url: str, lock_timeout_s: int = LOCK_TIMEOUT_S) -> None:
        self.url = url
        self.lock_timeout_s = lock_timeout_s
        self._make_witness: Callable[[], Witness] | None = None
        self._witness_lock = threading.Lock()
        self._witness: Witness | None = None
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self.engine = _sqlite_engine(url, lock_timeout_s) if self.is_sqlite else _postgresql_engine(url)

    def watch(self, make_witness: Callable[[], Witness]) -> None:
        """Set how the witness is made when it is first needed. Only the first call counts; later calls change
        nothing."""
        with self._witness_lock:
            self._make_witness = self._make_witness or make_witness

    @property
    def witness(self) -> Witness | None:
        """Return the witness of writing transactions; None if there is none."""
        with self._witness_lock:
            if self._witness is None and self._make_witness is not None:
                self._witness = self._make_witness()
            return self._witness

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Run the block in one transaction. It is committed when the block ends, and rolled back if the block raises.

        On SQLite it holds the write lock from its first statement (BEGIN IMMEDIATE), so a decision that reads and then
        writes is serial. On PostgreSQL (READ COMMITTED) a decision must first lock the row it is about.
        """
        with (
            self._part("write"),
            self._witnessed() as told,
            Session(self.engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            if not self.is_sqlite:
                session.execute(_WAIT_AS_LONG_AS_ALLOWED, {"timeout": f"{self.lock_timeout_s}s"})
            yield session
            # If the block has rolled back by itself, nothing will be committed.
            if self.witness is not None and session.in_transaction():
                told.extend(self.witness.before_commit(session.connection()))

    @contextmanager
    def write_briefly(self) -> Iterator[Connection]:
        """Like `write`, without a session. It waits at most `BRIEF_LOCK_TIMEOUT_S` for a row that others have
        locked."""
        with self._part("write"), self._witnessed() as told, self.engine.begin() as connection:
            yield connection
            if self.witness is not None:
                told.extend(self.witness.before_commit(connection))

    @contextmanager
    def _witnessed(self) -> Iterator[list[Any]]:
        """Yield a list for the changes of a transaction. They are passed to the witness once they are durable."""
        if self.witness is not None:
            self.witness.begin()
        told: list[Any] = []
        yield told
        if self.witness is not None:
            self.witness.after_commit(told)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Yield a consistent view that cannot write. Loaded objects stay readable after the block."""
        engine = self.engine.execution_options(epsilond_read_only=True)
        with self._part("read"), Session(engine, expire_on_commit=False) as session:
            if not self.is_sqlite:
                session.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            try:
                yield session
            finally:
                # A rollback alone would expire the loaded rows.
                session.expunge_all()
                session.rollback()

    def _part(self, kind: Literal["read", "write"]) -> AbstractContextManager[None]:
        return spans.part(f"database {kind}", {"db.system.name": "sqlite" if self.is_sqlite else "postgresql"})

    def is_lock_timeout(self, error: DBAPIError) -> bool:
        """Return whether the statement failed only because of other transactions' locks or a deadlock with them."""
        if isinstance(error.orig, sqlite3.OperationalError):
            return error.orig.sqlite_errorcode == sqlite3.SQLITE_BUSY
        return getattr(error.orig, "sqlstate", None) in POSTGRESQL_BUSY

    def dispose(self) -> None:
        self.engine.dispose()
        if self._witness is not None:
            self._witness.close()


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database; None if it is in memory, or not a SQLite database."""
    parts = make_url(url)
    if parts.get_backend_name() != "sqlite" or parts.database in (None, "", ":memory:"):
        return None
    return Path(parts.database)


def _sqlite_engine(url: str, lock_timeout_s: int) -> Engine:
    file, pool = sqlite_file(url), {}
    if file is not None:
        make_private_folder(file.absolute().parent)
        # All of the default number of connections are kept, since a new one costs as much as a few transactions.
        pool = {"pool_size": 15, "max_overflow": 0}
    engine = create_engine(url, connect_args={"timeout": lock_timeout_s}, **pool)

    @event.listens_for(engine, "do_connect")
    def _make_private(*_: Any) -> None:
        # SQLite gives the files that it makes beside the database the same mode.
        if file is not None:
            make_private_file(file)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # The driver must not open transactions by itself: "begin" below decides which kind.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        read_only = connection.get_execution_options().get("epsilond_read_only", False)
        connection.exec_driver_sql(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _texts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of a parameter that may occur several times in a URL."""
    return (value,) if isinstance(value, str) else value


def _postgresql_engine(url: str) -> Engine:
    said = make_url(url).query
    patience = {name: value for name, value in PATIENCE_WITH_HOSTS.items() if name not in said}
    # If an option is repeated, the last one wins. So a URL may set every option except these two, on which commands
    # rely.
    options = f"{' '.join(_texts(said.get('options', '')))} -c lock_timeout={BRIEF_LOCK_TIMEOUT_S}s"
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",
        pool_size=10,
        max_overflow=20,
        connect_args={**patience, "options": f"{options} -c synchronous_commit=on".strip()},
    )

    @event.listens_for(engine, "checkin")
    def _note(_connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _try(connection: Any, record: Any, _proxy: Any) -> None:
        # If the server was restarted while the connection was idle, a new connection is made.
        if time.monotonic() - record.info.get("idle_since", math.inf) > IDLE_S:
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise DisconnectionError from error

    return engine
