"""A clock that the test turns by hand; a ledger in which everything has happened, made once and copied."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from sqlalchemy import delete

from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.settings import Settings
from app.tables.ledger import LedgerLife
from tests.app.budgets.conftest import Api, Clock, api, api_of, audit_all, context
from tests.app.ledger.scenes import lived_in
from tests.databases import DatabaseFactory
from tests.local_access import local_client

__all__ = ["api", "api_of", "context"]


@dataclass(frozen=True)
class Scene:
    """A database that was lived in.

    Attributes:
        url: Of the database; nobody is connected to it.
        root: The root of the tree in it.
        now: When it was left.
    """

    url: str
    root: dict[str, Any]
    now: datetime


@pytest.fixture(scope="session")
def scene_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[DatabaseFactory], Scene]:
    @cache
    def scene(databases: DatabaseFactory) -> Scene:
        url, clock = databases.migrated(), Clock()
        settings = Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0)
        database = Database(url)
        context = fenced_context(settings, database, clock)
        with local_client(create_app(context)) as client:
            root = lived_in(Api(client), clock)
        audit_all(context)
        with database.write() as session:
            # A copy is used in another data folder: as if it never had a fence.
            session.execute(delete(LedgerLife))
        database.dispose()
        return Scene(url, root, clock.now)

    return scene


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, databases: DatabaseFactory, scene_of: Callable[[DatabaseFactory], Scene]
) -> Scene | None:
    """What a test begins with that asks for the `root`; others begin with nothing."""
    return scene_of(databases) if "root" in request.fixturenames else None


@pytest.fixture
def database_url(databases: DatabaseFactory, scene: Scene | None) -> Iterator[str]:
    url = databases.migrated() if scene is None else databases.copy_of(scene.url)
    yield url
    databases.drop(url)


@pytest.fixture
def clock(scene: Scene | None) -> Clock:
    return Clock() if scene is None else Clock(scene.now)


@pytest.fixture
def root(scene: Scene) -> dict[str, Any]:
    """The root of a tree in which everything has happened (`lived_in`)."""
    return copy.deepcopy(scene.root)
