"""The migrations make the tables that the code declares, on both engines, and undo them."""

from __future__ import annotations

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from app.db.database import Database
from app.db.migrate import current_revision, head_revision, is_at_head, upgrade
from app.tables.schema import metadata
from tests.databases import DatabaseFactory


@pytest.fixture
def empty_url(databases: DatabaseFactory):
    url = databases.empty()
    yield url
    databases.drop(url)


@pytest.fixture
def empty_database(empty_url: str):
    database = Database(empty_url)
    yield database
    database.dispose()


def test_a_migrated_database_has_the_tables_that_the_models_declare(database: Database) -> None:
    with database.engine.connect() as connection:
        migration = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(migration, metadata) == []
        names = {check["name"] for check in inspect(connection).get_check_constraints("reservations")}
    assert names == {
        "ck_reservations_state",
        "ck_reservations_charged_when_committed",
        "ck_reservations_resolved_at",
    }


def test_an_empty_database_is_upgraded_to_the_head(empty_url: str, empty_database: Database) -> None:
    assert current_revision(empty_database) is None
    assert not is_at_head(empty_database)
    upgrade(empty_url)
    assert current_revision(empty_database) == head_revision()
    assert is_at_head(empty_database)


def test_upgrade_is_a_no_operation_at_the_head(database: Database) -> None:
    upgrade(database.url)
    assert is_at_head(database)


def test_two_servers_that_start_at_once_migrate_one_after_the_other(empty_url: str, empty_database: Database) -> None:
    errors: list[BaseException] = []

    def migrate() -> None:
        try:
            upgrade(empty_url)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert is_at_head(empty_database)
