"""Schema migrations, run from code: the database's URL is the only setting, so there is no ini file.

Alembic is imported only when a schema is changed. Importing it takes a tenth of a server's start, and mostly the schema
is the newest already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from app.db.database import Database

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parents[2] / "migrations"
# Two servers that start together migrate one after the other. Any constant would do; this one is "epsilond" in ASCII.
_ADVISORY_LOCK = 0x657073696C6F6E64


class UnknownRevision(Exception):
    """The database or the caller names a revision that this checkout does not know."""


class BrokenReferences(Exception):
    """A transaction refers to rows that do not exist at its commit."""


def upgrade(database_url: str, revision: str = "head") -> None:
    """Bring the database to ``revision`` in one transaction, completely or not at all.

    Raises:
        UnknownRevision: as for `upgrade_within`.
        BrokenReferences: as for `schema_changes`.
    """
    database = Database(database_url)
    try:
        with schema_changes(database) as connection:
            upgrade_within(connection, revision)
    finally:
        database.dispose()


@contextmanager
def schema_changes(database: Database) -> Iterator[Connection]:
    """Run the block in one transaction in which the schema may change. It is committed when the block ends, and rolled
    back if the block raises.

    If two begin at once, the second one waits. References between tables are compared at the end.
    """
    with database.engine.connect() as connection:
        if database.is_sqlite:
            # SQLite changes a table by making it anew, which references to it would forbid; they are checked at the
            # end.
            connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")
        with connection.begin():
            if not database.is_sqlite:
                connection.execute(text("SET LOCAL lock_timeout = '10min'"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            yield connection
            if database.is_sqlite and connection.execute(text("PRAGMA foreign_key_check")).first() is not None:
                raise BrokenReferences("a reference between tables would be broken; nothing was changed")


def upgrade_within(connection: Connection, revision: str = "head") -> None:
    """Bring the schema to ``revision`` in the transaction of `schema_changes`.

    Raises:
        UnknownRevision: this checkout does not know ``revision``, or the revision that the schema is at.
    """
    if revision == "head" and _revision_of(connection) == head_revision():
        return
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(_config(connection), revision)
    except CommandError as error:
        raise UnknownRevision(str(error)) from None


@cache
def head_revision() -> str:
    """Return the newest revision that this checkout knows, which is the last file by name."""
    return max(path.name for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py")).partition("_")[0]


def current_revision(database: Database) -> str | None:
    """Return the revision of the database; None for an empty one."""
    with database.read() as session:
        return _revision_of(session.connection())


def is_at_head(database: Database) -> bool:
    """Return whether this checkout's code and the database's tables belong together."""
    return current_revision(database) == head_revision()


def _revision_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return revision


def _config(connection: Connection | None = None) -> Config:
    from alembic.config import Config

    config = Config()
    # Alembic interpolates % in options.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
