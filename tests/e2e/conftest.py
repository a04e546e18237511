"""What every whole path begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.databases import DatabaseFactory


@pytest.fixture
def environment(databases: DatabaseFactory, tmp_path: Path) -> dict[str, str]:
    """A fresh database and data folder for every server."""
    return {"EPSILOND_DATABASE_URL": databases.empty(), "EPSILOND_DATA_DIR": str(tmp_path / "var")}
