"""The databases of tests, each of which has an engine of its own."""

from __future__ import annotations

import secrets

from sqlalchemy import literal_column, select
from sqlalchemy.engine.interfaces import CacheStats

from app.db.database import Database
from tests.databases import DatabaseFactory


def test_what_one_engine_has_compiled_is_used_by_the_next(databases: DatabaseFactory) -> None:
    statement = select(literal_column("1").label(secrets.token_hex(8)))
    found = []
    for _ in range(2):
        database = Database(databases.empty())
        with database.engine.connect() as connection:
            found.append(connection.execute(statement).context.cache_hit)
        database.dispose()
    assert found == [CacheStats.CACHE_MISS, CacheStats.CACHE_HIT]
