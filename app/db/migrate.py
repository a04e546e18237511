"""Schema migrations, run from code: the database's URL is the only setting, so there is no ini file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from app.db.database import Database

MIGRATIONS = Path(__file__).parents[2] / "migrations"
# Two servers that start at once migrate one after the other. Any constant does; this one is "epsilond" in ASCII.
_ADVISORY_LOCK = 0x657073696C6F6E64


def upgrade(database_url: str, revision: str = "head") -> None:
    """Bring the database to ``revision``: all of it in one transaction, or nothing."""
    _run(database_url, lambda config: command.upgrade(config, revision))


def head_revision() -> str:
    """The newest revision that this checkout knows."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None, "the migrations folder has at least one revision"
    return head


def current_revision(database: Database) -> str | None:
    """The revision that the database is at; None for an empty one."""
    with database.read() as session:
        return MigrationContext.configure(session.connection()).get_current_revision()


def is_at_head(database: Database) -> bool:
    """Whether this checkout's code and the database's tables belong together."""
    return current_revision(database) == head_revision()


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # The option is read with %-interpolation.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _run(database_url: str, step: Callable[[Config], None]) -> None:
    database = Database(database_url)
    try:
        with database.engine.connect() as connection:
            if database.is_sqlite:
                # A table is changed by making it anew, which its references would forbid; they are checked at the end.
                connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")
            with connection.begin():
                if not database.is_sqlite:
                    connection.execute(text("SET LOCAL lock_timeout = '10min'"))
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
                step(_config(connection))
                if database.is_sqlite and connection.execute(text("PRAGMA foreign_key_check")).first() is not None:
                    raise RuntimeError("the migration would break a reference between tables; nothing was changed")
    finally:
        database.dispose()
