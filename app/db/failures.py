"""The exceptions which mean that the database itself failed. A wrong use of the library is our own fault, and not among
them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.db.database import Database
from app.problems import Problem


class Unfenced(Problem):
    """503: the request, or its effect, cannot be acknowledged (`app.fence`). It may be sent again."""


DATABASE_FAILURES = (DBAPIError, PoolTimeout, Unfenced)

#: PostgreSQL's code for a full disk.
_POSTGRESQL_DISK_FULL = "53100"


def is_disk_full(error: DBAPIError) -> bool:
    """Return whether the database had no room. The transaction under way is undone."""
    if isinstance(error.orig, sqlite3.OperationalError):
        return error.orig.sqlite_errorcode == sqlite3.SQLITE_FULL
    return getattr(error.orig, "sqlstate", None) == _POSTGRESQL_DISK_FULL


@contextmanager
def busy_is_a_problem(database: Database) -> Iterator[None]:
    """Answer with a problem if a lock was not free in time. Everything is rolled back, and the caller can simply ask
    again."""
    try:
        yield
    except OperationalError as error:
        if not database.is_lock_timeout(error):
            raise
        detail = "The database is busy and gave no lock in time. Nothing was changed; send the same request again."
        raise Problem(503, "database_busy", detail, headers={"Retry-After": "1"}) from error
