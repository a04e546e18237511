"""The exceptions which mean that the database itself failed. A wrong use of the library is our own fault, and not among
them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
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


#: Parts of what PostgreSQL and its client say when they do not connect, and what that means. Their own words are never
#: shown, because they quote the address.
_WHY_NOT_CONNECTED: Mapping[str, str] = {
    "Connection refused": "Nothing accepts connections at its address. Is it running?",
    "No such file or directory": "Its socket does not exist. Is it running?",
    "failed to resolve host": "The name of its host is not known.",
    "could not translate host name": "The name of its host is not known.",
    "timeout expired": "It did not answer in time. Is its address right, and does a firewall let it through?",
    "password authentication failed": "It refuses the user or the password.",
    "no password supplied": "It asks for a password, and the address has none.",
    "no pg_hba.conf entry": "It admits no such connection: see its pg_hba.conf.",
    'role "': "It has no such user.",
    'database "': "It has no database of this name, or the user may not connect to it.",
    "too many clients": "All its connections are taken: see its max_connections.",
    "does not support SSL": "It offers no TLS, which the address asks for.",
    "certificate verify failed": "Its certificate is not signed by an authority that is trusted here.",
    "does not match host name": "Its certificate is for another host.",
    "root certificate file": "The file of sslrootcert cannot be read.",
    "invalid response to SSL negotiation": "What listens at its address is not PostgreSQL.",
}


def why_not_connected(error: BaseException) -> str | None:
    """Return a sentence that says why PostgreSQL was not reached; None if the error does not show it."""
    said = str(getattr(error, "orig", error))
    return next((sentence for part, sentence in _WHY_NOT_CONNECTED.items() if part in said), None)


@contextmanager
def busy_is_a_problem(database: Database) -> Iterator[None]:
    """Answer with a problem if a lock was not free in time. Everything is rolled back, and the caller can simply ask
    again."""
    try:
        yield
    except OperationalError as error:
        if not database.is_lock_timeout(error):
            raise
        detail = (
            "The database is busy, and a lock was not free in time. Nothing was changed; send the same request again."
        )
        raise Problem(503, "database_busy", detail, headers={"Retry-After": "1"}) from error
