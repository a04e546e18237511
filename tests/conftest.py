"""Fixtures that every test may use: a migrated database on either engine, and a context on it with warm processes.

A test of numerics needs none of them and loads no framework: each fixture imports what it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from app.kit import collector
from tests.databases import ENGINES, DatabaseFactory, database_folder, postgresql_server
from tests.leave_nothing import start_guard

if TYPE_CHECKING:
    from app.context import Context
    from app.db.database import Database
    from app.kit.process_pool import ProcessPool
    from app.settings import Settings
    from tests.warm_processes import WarmProcesses

#: Private runs of tests wait for shorter intervals than those of users.
RELEASE_INTERVAL_S = 0.05

# A property test draws the same examples in every run: CI fails for what changed, never for its luck.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


# The tests that are found stay to the end: garbage is not looked for among them, neither now nor later.
collector.pause()


def pytest_configure() -> None:
    start_guard()


def pytest_collection_finish() -> None:
    """Collect garbage again, of what tests leave."""
    collector.resume()


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """Maintenance URL of a PostgreSQL server; started when the first test asks."""
    with postgresql_server() as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_databases() -> Iterator[DatabaseFactory]:
    with database_folder() as folder:
        factory = DatabaseFactory(None, folder)
        yield factory
        factory.close()


@pytest.fixture(scope="session")
def postgresql_databases(postgresql_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseFactory]:
    factory = DatabaseFactory(postgresql_url, tmp_path_factory.mktemp("databases"))
    yield factory
    factory.close()


@pytest.fixture(params=ENGINES)
def databases(request: pytest.FixtureRequest) -> DatabaseFactory:
    """The factory of databases of one engine; a test that uses it runs once per engine."""
    factory: DatabaseFactory = request.getfixturevalue(f"{request.param}_databases")
    return factory


@pytest.fixture
def database_url(databases: DatabaseFactory) -> Iterator[str]:
    """URL of a freshly migrated database; the test runs once on SQLite and once on PostgreSQL."""
    url = databases.migrated()
    yield url
    databases.drop(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A freshly migrated database; the test runs once on SQLite and once on PostgreSQL."""
    from app.db.database import Database

    database = Database(database_url)
    yield database
    database.dispose()


@cache
def _settings() -> Settings:
    """Made once: looking for all settings in the environment takes longer than many a test."""
    from app.settings import Settings

    return Settings(workers=0, release_interval_s=RELEASE_INTERVAL_S)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return _settings().model_copy(update={"data_dir": tmp_path / "data", "database_url": database_url})


@pytest.fixture(scope="session")
def warm_processes() -> Iterator[WarmProcesses]:
    """Processes for numerics, which one test after the other has to itself."""
    from tests.warm_processes import WarmProcesses

    warm = WarmProcesses()
    yield warm
    warm.close()


@pytest.fixture
def pools(warm_processes: WarmProcesses) -> Iterator[dict[str, ProcessPool]]:
    """What a context runs heavy numerics in: ``fenced_context(..., **pools)``."""
    pools = warm_processes.pools()
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture
def context(database: Database, settings: Settings, pools: dict[str, ProcessPool]) -> Context:
    """A context on the test's own database and data folder."""
    from app.fence.watching import fenced_context

    return fenced_context(settings, database, **pools)
