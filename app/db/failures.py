"""The exceptions that mean the database itself failed, as against a wrong use of the library, which is our fault."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

DATABASE_FAILURES = (DBAPIError, PoolTimeout)
