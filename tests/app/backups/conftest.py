"""A service that was lived in, to be saved and restored; made once for each kind of database, and copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.auth import database_secrets
from app.auth.principal import Scope
from app.auth.service import create_key
from app.backups.archive import open_archive
from app.backups.making import make_backup
from app.backups.manifest import Manifest
from app.backups.restoring import restore
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.ledger import transparency
from app.main import create_app
from app.secrets.material import Purpose
from app.settings import Settings
from app.tables.schema import metadata
from tests.app.budgets.conftest import Api, Clock
from tests.app.ledger.scenes import lived_in
from tests.app.run_sweeps.conftest import Sweeps
from tests.app.runs.conftest import ROWS, Service
from tests.app.runs.interrupted import left_after
from tests.databases import ENGINES, DatabaseFactory
from tests.local_access import local_client

#: What a restore needs that no backup has: the secrets, and the fence.
CARRIED = ("secret.key", "keys.2.key", "checkpoint.key", "fence")


def nobody_counts(_size: int) -> None:
    pass


@dataclass(frozen=True)
class Home:
    """A data folder with its database, which no process has open.

    Attributes:
        databases: Of its engine.
        folder: Of data.
        url: Of the database.
        names: What the test looks for, by what it is: ids of runs, data sets, reservations.
    """

    databases: DatabaseFactory
    folder: Path
    url: str
    names: dict[str, Any]
    clock: Clock

    @property
    def settings(self) -> Settings:
        return Settings(data_dir=self.folder, database_url=self.url, workers=0)

    @contextmanager
    def context(self) -> Iterator[Context]:
        database = Database(self.url)
        try:
            yield fenced_context(self.settings, database, self.clock)
        finally:
            database.dispose()

    @contextmanager
    def service(self) -> Iterator[Service]:
        with self.context() as context, local_client(create_app(context), headers=self.headers) as client:
            yield Service(client, context)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.names['token']}"}

    def save(self, path: Path, **options: Any) -> Manifest:
        with self.context() as context:
            return make_backup(context, path, nobody_counts, **options)

    def restore(self, path: Path) -> None:
        with self.context() as context, open_archive(path) as archive:
            restore(context, archive, nobody_counts)

    def elsewhere(self, folder: Path, databases: DatabaseFactory | None = None, *, carried: bool = True) -> Home:
        """An empty home, with the secrets and the fence of this one where ``carried`` says so."""
        databases = databases or self.databases
        folder.mkdir(mode=0o700)
        for name in CARRIED if carried else ():
            shutil.copy(self.folder / name, folder / name)
        return replace(self, databases=databases, folder=folder, url=databases.empty())

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything in the database, as the driver gives it but for what the two drivers give otherwise."""
        engine = sa.create_engine(self.url)
        found = {}
        with engine.connect() as connection:
            for name, table in metadata.tables.items():
                columns = [sa.cast(column, sa.Text) if _is_text(column) else column for column in table.columns]
                statement = sa.select(*columns).order_by(*table.primary_key.columns)
                found[name] = [tuple(map(_plain, row)) for row in connection.execute(statement)]
        engine.dispose()
        return found


def _is_text(column: sa.Column[Any]) -> bool:
    type_: Any = column.type
    while isinstance(type_, sa.TypeDecorator):
        type_ = type_.impl_instance
    return isinstance(type_, sa.JSON | sa.String)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.fixture(scope="session")
def home_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[DatabaseFactory], Home]:
    @cache
    def made(databases: DatabaseFactory) -> Home:
        clock = Clock()
        home = Home(databases, tmp_path_factory.mktemp("home") / "data", databases.migrated(), {}, clock)
        database = Database(home.url)
        context = fenced_context(home.settings, database, clock)
        database_secrets.admit(context)
        with local_client(create_app(context)) as client:
            service = Service(client, context)
            lived_in(Api(client), clock)
            _, run = service.charged()
            service.work()
            home.names["run"] = run["id"]
            home.names["model"] = service.model(run)
            sweeps = Sweeps(client, context)
            sweeps.paid()
            assert sweeps.work_all() == 3
            private = service.budget()
            home.names["dataset"] = service.dataset(budget_id=private["id"])["id"]
            deleted = service.dataset(ROWS + "3,0,red,no\n", public=True)["id"]
            assert client.delete(f"/v1/datasets/{deleted}").status_code == 204
            home.names["interrupted"] = left_after(service, 5)
            transparency.checkpoint(context)
            database_secrets.rotate(context, Purpose.KEYS)
            home.names["queued"] = service.charged()[1]
            created = create_key(context, "admin", [Scope.ADMIN, Scope.OWNER, Scope.ANALYST, Scope.AUDITOR])
            assert created is not None
            home.names["token"] = created.token
        database.dispose()
        return home

    return made


@pytest.fixture
def home(databases: DatabaseFactory, home_of: Callable[[DatabaseFactory], Home], tmp_path: Path) -> Home:
    """A service with all that a backup may hold, and all that it must not."""
    made = home_of(databases)
    shutil.copytree(made.folder, tmp_path / "data")
    return replace(made, folder=tmp_path / "data", url=databases.copy_of(made.url))


@pytest.fixture(params=ENGINES)
def other_databases(request: pytest.FixtureRequest) -> DatabaseFactory:
    """Where a backup goes; with `databases`, every pair of engines."""
    factory: DatabaseFactory = request.getfixturevalue(f"{request.param}_databases")
    return factory
