"""A server whose accounts are those of a provider on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.context import Context, utc_now
from app.db.database import Database
from app.fence.watching import fenced_context
from app.settings import Settings
from tests.app.auth.oidc.provider_of_tests import AUDIENCE, CLIENT_ID, FaultyProvider, faulty_provider
from tests.app.conftest import ConnectAs
from tests.databases import DatabaseFactory

PUBLIC_URL = "https://epsilond.example"

RIGHTS = """
[[rights]]
subject = "robot-1"
scopes = ["metrics"]
budgets = "all"

[[rights]]
group = "officers"
scopes = ["admin"]
budgets = "all"

[[rights]]
group = "analysts"
scopes = ["analyst"]
budgets = "all"
"""


def write_configuration(path: Path, issuer: str, rights: str = RIGHTS, **more: Any) -> Path:
    lines = {"issuer": issuer, "client_id": CLIENT_ID, "audience": AUDIENCE, "name": "Example", **more}
    given = {name: value for name, value in lines.items() if value is not None}
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()) + rights)
    return path


@pytest.fixture
def provider() -> Iterator[FaultyProvider]:
    with faulty_provider() as found:
        yield found


@pytest.fixture
def configure(provider: FaultyProvider, tmp_path: Path) -> Callable[..., Path]:
    def write(**more: Any) -> Path:
        return write_configuration(tmp_path / "oidc.toml", provider.issuer, **more)

    return write


@pytest.fixture
def context(sqlite_databases: DatabaseFactory, tmp_path: Path, configure: Callable[..., Path]) -> Iterator[Context]:
    """Yield a context on SQLite. Only the row that two requests create at once differs between the engines."""
    database = Database(sqlite_databases.migrated())
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=database.url,
        workers=0,
        oidc_file=configure(),
        public_url=PUBLIC_URL,
    )
    yield fenced_context(settings, database, utc_now)
    database.dispose()


@pytest.fixture
def stranger(connect: ConnectAs) -> TestClient:
    """A client on another machine that shows nothing."""
    return connect(base_url=PUBLIC_URL, peer=("10.0.0.1", 1), is_local=False)
