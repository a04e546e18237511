"""A server in a process of its own: what `epsilond run` and `epsilond budget` ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.runs import worker
from app.settings import Settings, environment_of
from tests.e2e.server import serving


@dataclass(frozen=True)
class Live:
    """A server without workers.

    Attributes:
        url: Its address.
        context: On its database and its data folder.
    """

    url: str
    context: Context

    @property
    def env(self) -> dict[str, str]:
        """The environment of a command that asks it."""
        folder = str(self.context.settings.data_dir)
        return {"EPSILOND_URL": self.url, "EPSILOND_API_KEY": "", "EPSILOND_DATA_DIR": folder}

    def work(self) -> None:
        """Train what is queued."""
        while worker.work_once(self.context, "wrk_test"):
            pass


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One server for all tests, each of which makes what it looks at."""
    folder, allowed = tmp_path_factory.mktemp("data"), "https://hooks.example/"
    settings = Settings(data_dir=folder, port=0, workers=0, warm_up=False, webhook_addresses=allowed)
    with serving(environment_of(settings)) as api:
        database = Database(settings.sqlalchemy_url)
        yield Live(str(api.client.base_url), fenced_context(settings, database))
        database.dispose()
