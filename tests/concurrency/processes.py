"""Work that is done at once by several operating-system processes, each with connections of its own.

Nothing in a race may have to be tried again because transactions got in each other's way: every conflict that a
database reports in any process, a deadlock or a serialization failure, fails the race, also one that the application
would hide.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal
from sqlalchemy import event, text

from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.settings import Settings

Result = TypeVar("Result")


@dataclass(frozen=True)
class Host:
    """What a process has of its own, but for the last.

    Attributes:
        context: With an engine of its own.
        loop: An event loop, as a server's.
        barrier: All processes may pass it together, repeatedly.
    """

    context: Context
    loop: BlockingPortal
    barrier: Barrier


#: What one process does with its argument.
Work = Callable[[Host, Any], Result]

#: A deadlock, a serialization failure, a write lock that was not given in half a minute.
CONFLICTS = {"40P01", "40001", "SQLITE_BUSY"}
PATIENCE_S = 120

OTHER_CLIENTS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@dataclass(frozen=True)
class _Done:
    result: Any
    conflicts: list[str]


@dataclass(frozen=True)
class _Failed:
    why: str


def run_in_processes(work: Work[Result], context: Context, arguments: Sequence[Any]) -> list[Result]:
    """Do ``work`` once per argument, each in a process of its own, all at the same time.

    Args:
        work: A function of a module. It, its arguments and its results travel between processes.
        context: Names the database and the data folder; each process opens its own.
        arguments: One per process.
    """
    # Never a fork of this process, which has threads; the server that forks has imported the work's module once.
    start_method = multiprocessing.get_context("forkserver")
    start_method.set_forkserver_preload([work.__module__])
    results, barrier = start_method.Queue(), start_method.Barrier(len(arguments))
    assert context.settings.secret
    processes = [
        start_method.Process(
            target=_process,
            args=(work, context.database.url, context.settings.data_dir, place, argument, barrier, results),
        )
        for place, argument in enumerate(arguments)
    ]
    for process in processes:
        process.start()
    outcomes = dict(results.get(timeout=PATIENCE_S) for _ in processes)
    for process in processes:
        process.join()
        process.close()
    results.close()
    results.join_thread()
    failures = [outcome.why for outcome in outcomes.values() if isinstance(outcome, _Failed)]
    assert not failures, "\n".join(failures)
    done = [outcomes[place] for place in range(len(arguments))]
    conflicts = [conflict for outcome in done for conflict in outcome.conflicts]
    assert not conflicts, conflicts
    return [outcome.result for outcome in done]


def _process(
    work: Work[Result], url: str, data_dir: Path, place: int, argument: Any, barrier: Barrier, results: Any
) -> None:
    database = Database(url)
    conflicts = watch_conflicts(database)
    try:
        with start_blocking_portal() as loop:
            barrier.wait(PATIENCE_S)
            context = fenced_context(Settings(data_dir=data_dir, database_url=url), database)
            result = work(Host(context, loop, barrier), argument)
        results.put((place, _Done(result, conflicts)))
    except BaseException:
        barrier.abort()
        results.put((place, _Failed(traceback.format_exc())))
    finally:
        database.dispose()


def at(context: Context, now: datetime) -> Context:
    """The context, under a clock that stands still."""
    return replace(context, clock=lambda: now)


def in_threads(count: int, work: Callable[[int], Result]) -> list[Result]:
    """Do ``work`` in so many threads, which start together; each is given its number."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> Result:
        barrier.wait(PATIENCE_S)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def open_connections(database: Database, count: int) -> None:
    """Open so many connections, which the engine keeps for the threads that come."""
    barrier = threading.Barrier(count)

    def connect(_: int) -> None:
        with database.read() as session:
            session.execute(text("SELECT 1"))
            barrier.wait(PATIENCE_S)

    in_threads(count, connect)


def watch_conflicts(database: Database) -> list[str]:
    """A list that grows by every conflict that the database reports to this process from now on."""
    conflicts: list[str] = []

    @event.listens_for(database.engine, "handle_error")
    def _keep(failure: Any) -> None:
        error = failure.original_exception
        code = error.sqlite_errorname if isinstance(error, sqlite3.Error) else getattr(error, "sqlstate", None)
        if code in CONFLICTS:
            conflicts.append(code)

    return conflicts


def deadlocks(database: Database) -> int:
    """How many deadlocks PostgreSQL has found in this database. SQLite, which has one writer, knows none.

    Requires: nobody else has a connection, or wants to keep one.
    """
    if database.is_sqlite:
        return 0
    database.dispose()
    # A backend tells what it has counted when it ends, which takes a moment after its client has gone.
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with database.read() as session:
            if session.execute(text(OTHER_CLIENTS)).scalar_one() == 0:
                return int(session.execute(text(DEADLOCKS)).scalar_one())
    raise AssertionError("someone keeps a connection")
