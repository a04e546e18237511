"""URLs of databases as operators write them: SQLite, or PostgreSQL through psycopg 3."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")


def sqlite_url(file: Path) -> str:
    """Return the URL of a file of SQLite."""
    return URL.create("sqlite", database=str(file)).render_as_string()


def checked_url(given: str) -> str:
    """Return the URL, with the path of a SQLite file made absolute.

    Raises:
        ValueError: it is not the URL of such a database. The message does not quote it: it may hold a password.
    """
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise ValueError(
            "this is not a database URL such as postgresql://user:password@host/name or sqlite:////folder/file"
        ) from None
    if url.drivername in _POSTGRESQL:
        return given
    if url.drivername not in _SQLITE:
        raise ValueError("the database must be SQLite, or PostgreSQL through psycopg 3")
    name = url.database or ":memory:"
    if url.host or name == ":memory:" or name.startswith("file:"):
        raise ValueError(
            "SQLite needs a plain file, as in sqlite:////folder/file: every process must find the same one"
        )
    return url.set(database=str(Path(name).absolute())).render_as_string(hide_password=False)


def with_driver(url: str) -> str:
    """Return the URL with its driver.

    >>> with_driver("postgres://user@host/name")
    'postgresql+psycopg://user@host/name'
    """
    for prefix in ("postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


def location(url: str) -> tuple[str | None, int | None, str | None]:
    """Return where a database is: its host, its port and its name; for SQLite, its file as the name.

    >>> location("postgresql://user:password@host/name")
    ('host', 5432, 'name')
    """
    parts = make_url(with_driver(url))
    if parts.get_backend_name() == "sqlite":
        return None, None, parts.database
    return parts.host, parts.port or 5432, parts.database
