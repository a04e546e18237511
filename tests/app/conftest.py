"""The service in memory: the whole application over the `context` fixture, called without a socket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.settings import Settings
from tests.app.documented_problems import assert_documented
from tests.databases import DatabaseFactory
from tests.local_access import BASE_URL, LOOPBACK_PEER, local_client
from tests.warm_processes import WarmProcesses

ConnectAs = Callable[..., TestClient]


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Modes must not hang on the user's own caution."""
    previous = os.umask(0)
    yield
    os.umask(previous)


@pytest.fixture
def connect(context: Context) -> Iterator[ConnectAs]:
    """Make a client of the application: ``connect(base_url=..., peer=..., headers=..., is_local=False)``.

    It shows the token of a server without keys, unless it is told that it is not the operator's.
    """
    app = create_app(context)
    with ExitStack() as stack:

        def client(
            base_url: str = BASE_URL,
            peer: tuple[str, int] = LOOPBACK_PEER,
            headers: dict[str, str] | None = None,
            is_local: bool = True,
        ) -> TestClient:
            make = local_client if is_local else TestClient
            made = make(app, base_url=base_url, client=peer, headers=headers, follow_redirects=False)
            made.event_hooks["response"].append(assert_documented)
            return stack.enter_context(made)

        yield client


@pytest.fixture
def client(connect: ConnectAs) -> TestClient:
    """A client on the machine itself, without a key but with the token."""
    return connect()


@pytest.fixture(scope="module")
def reader(
    sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory, warm_processes: WarmProcesses
) -> Iterator[TestClient]:
    """One client for a whole module of tests that store nothing; on SQLite alone."""
    url = sqlite_databases.migrated()
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0, max_upload_bytes=4096)
    database = Database(url)
    app = create_app(fenced_context(settings, database, **warm_processes.pools()))
    with local_client(app) as client:
        client.event_hooks["response"].append(assert_documented)
        yield client
    database.dispose()
