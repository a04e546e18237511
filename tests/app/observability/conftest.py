"""A service whose log lines are read."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.observability.logs import configure_logging
from app.settings import Settings
from tests.databases import DatabaseFactory


@pytest.fixture
def context(sqlite_databases: DatabaseFactory, tmp_path: Path) -> Iterator[Context]:
    """Yield a context on SQLite, because nothing here differs between the engines."""
    database = Database(sqlite_databases.migrated())
    yield fenced_context(Settings(data_dir=tmp_path / "data", database_url=database.url, workers=0), database)
    database.dispose()


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Every line of the process, the least severe ones included."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("sqlalchemy", "alembic", "uvicorn.access", "httpx2")
    levels = {name: logging.getLogger(name).level for name in names}
    stream = io.StringIO()
    configure_logging("debug", "json", stream)
    # The tests' own client tells what it asks.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()
