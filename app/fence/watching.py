"""Who watches which database: every process that writes to a ledger makes its context here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from app.context import Context, utc_now
from app.db.database import Database
from app.fence.service import Fence
from app.settings import Settings


def fenced_context(
    settings: Settings, database: Database, clock: Callable[[], datetime] = utc_now, **parts: Any
) -> Context:
    """A context whose database is watched by the fence that the settings name.

    A context that is made otherwise can calculate and read. `app.fence.service.touch` refuses what it would add to a
    ledger.

    Args:
        settings: The process's settings.
        database: The ledger's.
        clock: The time of day.
        parts: Other attributes of the context.
    """
    context = Context(settings, database, clock, **parts)
    fence_of(context)
    return context


def fence_of(context: Context) -> Fence:
    """The fence of the context's database, which it watches from the first call on."""
    settings = context.settings
    context.database.watch(lambda: Fence(context.database, lambda: settings.fence_place, context.clock))
    return cast(Fence, context.database.witness)
