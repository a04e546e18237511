"""`kill -9` around the write of the fence: what was acknowledged is never missed, and nothing is refused wrongly."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from app.context import Context
from app.db.database import Database
from app.fence import file_store
from app.fence.file_store import FileStore
from app.fence.watching import fence_of, fenced_context
from app.ledger import transparency
from app.settings import Settings
from tests.app.ledger.client import Client, open_tree
from tests.app.ledger.model import Command
from tests.databases import DatabaseFactory


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_the_write() -> None:
    """The database has committed, and the fence does not know."""
    FileStore._append = _die  # type: ignore[method-assign,assignment]


def in_the_write() -> None:
    """Half of the record is in the file."""
    write = os.pwrite

    def half(descriptor: int, data: bytes, offset: int) -> int:
        write(descriptor, data[: len(data) // 2], offset)
        _die()
        return 0

    file_store.os.pwrite = half  # type: ignore[assignment]


def after_the_write() -> None:
    """The fence has it, and nobody was answered."""
    file_store.os.fdatasync = _die  # type: ignore[assignment]


def while_it_is_written_anew() -> None:
    """The new file is complete, and not yet in the old one's place."""
    file_store.COMPACTED_FROM_BYTES = 0
    file_store._GROWTH = 0
    Path.replace = _die  # type: ignore[method-assign,assignment]


def _start(url: str, folder: Path, budget_id: str, ids: dict[str, str], arm: Callable[[], None]) -> None:
    database = Database(url)
    context = fenced_context(Settings(data_dir=folder, database_url=url, workers=0), database)
    fence_of(context).check()
    arm()
    with start_blocking_portal() as loop:
        Client(context, loop, [budget_id], ids).send("started", Command("start", "held"))


@pytest.mark.parametrize("arm", [before_the_write, in_the_write, after_the_write, while_it_is_written_anew])
@pytest.mark.one_in(4)
def test_a_server_that_is_killed_at_the_fence_goes_on_and_still_notices_a_restore(
    databases: DatabaseFactory, tmp_path: Path, arm: Callable[[], None]
) -> None:
    url, folder = databases.migrated(), tmp_path / "data"

    def context_on(at: str) -> tuple[Context, Database]:
        database = Database(at)
        return fenced_context(Settings(data_dir=folder, database_url=at, workers=0), database), database

    context, database = context_on(url)
    with start_blocking_portal() as loop:
        client = Client(context, loop, open_tree(context, [None], [20]))
        client.send("held", Command("reserve", 0, 3, seconds=3600))
        (budget_id,), ids = client.budgets, client.ids
    database.dispose()
    backup = databases.copy_of(url)

    process = multiprocessing.get_context("fork").Process(target=_start, args=(url, folder, budget_id, ids, arm))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL

    context, database = context_on(url)
    assert fence_of(context).check() is None, "a database that is ahead has lost nothing"
    with start_blocking_portal() as loop:
        reply = Client(context, loop, [budget_id], ids).reply("started", Command("start", "held"))
    assert (reply.status, reply.is_replayed) == (200, True), "it was committed, and is acknowledged now"
    assert transparency.verified(context).valid
    database.dispose()

    context, database = context_on(backup)
    loss = fence_of(context).check()
    database.dispose()
    assert loss is not None, "what was acknowledged is missed"
    assert loss.entries == 1
