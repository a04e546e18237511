"""Servers on copies of one database, as an operator has them who restores a backup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.db.database import Database
from app.fence import service
from app.fence.watching import fenced_context
from app.kit.process_pool import ProcessPool
from app.main import create_app
from app.settings import Settings
from tests.app.budgets.conftest import Api, Clock
from tests.app.documented_problems import assert_documented
from tests.databases import DatabaseFactory
from tests.local_access import local_client


@pytest.fixture
def compared_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence and the database, before everything that is asked."""
    monkeypatch.setattr(service, "BELIEVED_S", 0.0)
    monkeypatch.setattr(service, "REFUSAL_BELIEVED_S", 0.0)


@dataclass
class Place:
    """A data folder, and the database that is in use there.

    Attributes:
        databases: Of one engine.
        folder: Of data; the fence lies in it unless ``fence`` names another place.
        url: Of the database.
    """

    databases: DatabaseFactory
    folder: Path
    url: str
    pools: dict[str, ProcessPool]
    fence: str = ""
    clock: Clock = field(default_factory=Clock)

    def settings(self) -> Settings:
        return Settings(data_dir=self.folder, database_url=self.url, workers=0, fence=self.fence or None)

    @contextmanager
    def context(self) -> Iterator[Context]:
        """A process's context."""
        database = Database(self.url)
        try:
            yield fenced_context(self.settings(), database, self.clock, **self.pools)
        finally:
            database.dispose()

    @contextmanager
    def server(self) -> Iterator[Api]:
        """A server, from its start to its end."""
        with self.context() as context, closing_client(context) as client:
            yield Api(client)

    def backup(self) -> str:
        """A copy of the database; nobody is connected to it."""
        return self.databases.copy_of(self.url)

    @property
    def file(self) -> Path:
        return self.folder / "fence"


@contextmanager
def closing_client(context: Context) -> Iterator[TestClient]:
    with ExitStack() as stack:
        client = stack.enter_context(local_client(create_app(context)))
        client.event_hooks["response"].append(assert_documented)
        yield client


@pytest.fixture
def place(databases: DatabaseFactory, tmp_path: Path, pools: dict[str, ProcessPool]) -> Place:
    """A fresh database with a data folder, once on SQLite and once on PostgreSQL."""
    return Place(databases, tmp_path / "data", databases.migrated(), pools)
