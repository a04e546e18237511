"""Servers in processes of their own, started as an operator starts them, and a plain client for single requests."""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.telemetry import TelemetryConfig

from app.db.migrate import upgrade
from benchmarks import report

HOST = "127.0.0.1"
#: The variable that holds the header of the service that is measured.
AUTHORIZATION = "BENCHMARK_AUTHORIZATION"
STOP_S = 15.0
#: The service's telemetry is off, and so is that of what it is compared with.
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}

_ADDRESS = re.compile(rf"http://{re.escape(HOST)}:(\d+)")
#: Both kinds of server: a free port, no log line per request.
_ENVIRONMENT = {"EPSILOND_HOST": HOST, "EPSILOND_PORT": "0", "EPSILOND_LOG_LEVEL": "warning", "EPSILOND_WARM_UP": "no"}


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers.

    Attributes:
        port: Where it listens.
        process_id: Its first process.
    """

    port: int
    process_id: int

    def cpu_seconds(self) -> float:
        """Return what it has taken of its cores so far, with all processes that it started (Linux)."""
        return cpu_seconds(self.process_id)


def cpu_seconds(process_id: int) -> float:
    """Return what a process has taken of its cores so far, with all processes that it started (Linux)."""
    process = Path(f"/proc/{process_id}")
    # Behind the name, which may hold anything: user and system time, then those of children that have ended.
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    children = [int(child) for task in process.glob("task/*/children") for child in task.read_text().split()]
    return own + sum(map(cpu_seconds, children))


@contextmanager
def service(url: str, data_dir: Path, workers: int = 0, core: int | None = None, **more: str) -> Iterator[Server]:
    """`python -m app serve` on the migrated database at ``url``.

    Args:
        workers: How many it starts.
        core: The one that it has, with all its processes; None: all.
        more: Further settings, by the names of their variables.
    """
    settings = {"EPSILOND_DATABASE_URL": url, "EPSILOND_DATA_DIR": str(data_dir), "EPSILOND_WORKERS": str(workers)}
    with _server(["app", "serve"], settings | more, core) as server:
        # The processes that load it inherit the header with its token, and show it to what it is compared with, too.
        os.environ[AUTHORIZATION] = (data_dir / "local-token").read_text().strip()
        try:
            yield server
        finally:
            del os.environ[AUTHORIZATION]


@contextmanager
def bare(module: str = "benchmarks.ledger.bare", core: int | None = None, **environment: str) -> Iterator[Server]:
    """The bare endpoints of a module."""
    with _server([module], environment, core) as server:
        yield server


@contextmanager
def _server(module: list[str], environment: Mapping[str, str], core: int | None) -> Iterator[Server]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPSILOND_")}
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        cwd=report.ROOT,
        env={**inherited, **_ENVIRONMENT, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    if core is not None:
        # Before it has threads or processes of its own, which inherit it.
        os.sched_setaffinity(process.pid, {core})
    try:
        yield Server(_port(process), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        found = _ADDRESS.search(line)
        if found is not None:
            return int(found[1])
    raise RuntimeError(f"the server ended with status {process.wait()} before it had an address")


@dataclass(frozen=True, slots=True)
class Client:
    """One kept connection, for one request after the other."""

    connection: http.client.HTTPConnection

    def get(self, path: str) -> Any:
        """Return the answer to a GET.

        Raises:
            RuntimeError: If the status is not 200.
        """
        return self._ask("GET", path, None, {}, 200)

    def post(self, path: str, body: Mapping[str, Any], status: int) -> Any:
        """Return the answer to a POST under a new idempotency key.

        Raises:
            RuntimeError: If the status is not the expected one.
        """
        headers = {"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)}
        return self._ask("POST", path, json.dumps(body), headers, status)

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str], status: int) -> Any:
        name, _, token = os.environ.get(AUTHORIZATION, "").partition(": ")
        self.connection.request(method, path, body, {**headers, name: token} if token else dict(headers))
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != status:
            raise RuntimeError(f"{method} {path}: {answer.status} {content.decode()}")
        return json.loads(content)


@contextmanager
def client(server: Server) -> Iterator[Client]:
    """A client of the server."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    try:
        yield Client(connection)
    finally:
        connection.close()


def migrated(url: str) -> str:
    """Return the URL itself, its database at the newest schema."""
    upgrade(url)
    return url
