"""What every whole path begins with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import DatabaseFactory
from tests.e2e.server import Api, serving


@pytest.fixture
def environment(databases: DatabaseFactory, tmp_path: Path) -> dict[str, str]:
    """A fresh database and data folder for every server."""
    return {"EPSILOND_DATABASE_URL": databases.empty(), "EPSILOND_DATA_DIR": str(tmp_path / "var")}


@pytest.fixture(scope="package")
def api(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One server for every test to which it does not matter what else was asked of it; on SQLite.

    Private rows have one budget for ever, so each test begins them with another one (`breast_cancer.rotated`).
    """
    data = tmp_path_factory.mktemp("shared") / "var"
    with serving({"EPSILOND_DATABASE_URL": sqlite_databases.empty(), "EPSILOND_DATA_DIR": str(data)}) as api:
        yield api
