"""Contexts whose database a fence watches: every process that writes to a ledger makes its context here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from app.context import Context, utc_now
from app.db.database import Database
from app.fence.service import Fence
from app.settings import Settings

# The settings of the process that watches each engine.
_SETTINGS: WeakKeyDictionary[Engine, Settings] = WeakKeyDictionary()


def fenced_context(
    settings: Settings, database: Database, clock: Callable[[], datetime] = utc_now, **parts: Any
) -> Context:
    """Make a context whose database is watched by the fence that the settings name.

    Any other context can only calculate and read. `app.fence.service.touch` refuses its additions to a ledger.

    Args:
        settings: The process's settings.
        database: The ledger's database.
        clock: The time of day.
        parts: Other attributes of the context.
    """
    context = Context(settings, database, clock, **parts)
    fence_of(context)
    return context


def fence_of(context: Context) -> Fence:
    """Return the fence of the context's database. It watches from the first call on, under the context's settings."""
    settings = context.settings
    _SETTINGS.setdefault(context.database.engine, settings)
    context.database.watch(lambda: Fence(context.database, lambda: settings.fence_place, context.clock))
    return cast(Fence, context.database.witness)


def settings_of(connection: Connection) -> Settings:
    """Return the settings under which a watched database is written.

    Raises:
        RuntimeError: no fence watches the database, so that nothing may be written to its ledger.
    """
    settings = _SETTINGS.get(connection.engine)
    if settings is None:
        raise RuntimeError("no fence watches this database: make the context with app.fence.watching.fenced_context")
    return settings
