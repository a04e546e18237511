"""One real server for all tests of the client that share a process, and what they begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from epsilond_client import Budget, Client, Retries
from epsilond_client.retries import Clock

from tests.clients.python.proxy import Proxy, proxy_before
from tests.crash.server_process import ServerProcess, running_server
from tests.databases import DatabaseFactory

MakeBudget = Callable[..., Budget]


class Waits:
    """A clock that does not wait: it only says that it has."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: sum(self.waited), sleep=self.waited.append)


@contextmanager
def token_of(server: ServerProcess) -> Iterator[None]:
    """Let clients find the server's token, as they do on an operator's machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPSILOND_DATA_DIR", server.environment["EPSILOND_DATA_DIR"])
        yield


@pytest.fixture(scope="session")
def keyless_server(
    sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server that has no keys and no workers."""
    folder: Path = tmp_path_factory.mktemp("client-server")
    with running_server(sqlite_databases.migrated(), folder) as server:
        yield server


@pytest.fixture
def url(keyless_server: ServerProcess) -> Iterator[str]:
    """The address of that server, whose token clients find while the test runs."""
    with token_of(keyless_server):
        host, port = keyless_server.address
        yield f"http://{host}:{port}"


@pytest.fixture
def client(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.delenv("EPSILOND_API_KEY", raising=False)
    with Client(url) as client:
        yield client


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with proxy_before(url) as proxy:
        yield proxy


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def behind_proxy(proxy: Proxy, waits: Waits) -> Iterator[Client]:
    """A client whose requests pass the proxy, and which does not really wait."""
    with Client(proxy.url, retries=Retries(seconds=30.0), clock=waits.clock) as client:
        yield client


@pytest.fixture
def make_budget(client: Client) -> MakeBudget:
    """A fresh budget, by default of rho 1: ten steps of `STEP` cost 0.5."""

    def make(**filter: object) -> Budget:
        return client.budgets.create(
            "tests", neighboring_relation="add_or_remove_one", filter=filter or {"kind": "zcdp", "rho": 1.0}
        )

    return make


@pytest.fixture
def budget(make_budget: MakeBudget) -> Budget:
    return make_budget()
