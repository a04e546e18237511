"""The exceptions that mean the database itself failed, as against a wrong use of the library, which is our fault."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

DATABASE_FAILURES = (DBAPIError, PoolTimeout)

#: PostgreSQL's word for a full disk.
_POSTGRESQL_DISK_FULL = "53100"


def is_disk_full(error: DBAPIError) -> bool:
    """Whether the database had no room; what was under way is undone."""
    if isinstance(error.orig, sqlite3.OperationalError):
        return error.orig.sqlite_errorcode == sqlite3.SQLITE_FULL
    return getattr(error.orig, "sqlstate", None) == _POSTGRESQL_DISK_FULL
