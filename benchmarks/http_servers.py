"""This module starts each server in a process of its own, as an operator does. It also has a client for single
requests."""

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
#: The environment variable that has the value of the header `Authorization` for the measured service.
AUTHORIZATION = "BENCHMARK_AUTHORIZATION"
STOP_S = 15.0
#: The settings that turn telemetry off, in the service and in the bare endpoints.
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}

_ADDRESS = re.compile(rf"http://{re.escape(HOST)}:(\d+)")
#: The settings of the service and of the bare endpoints: a free port, and no log line for each request.
_ENVIRONMENT = {"EPSILOND_HOST": HOST, "EPSILOND_PORT": "0", "EPSILOND_LOG_LEVEL": "warning", "EPSILOND_WARM_UP": "no"}


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    Attributes:
        port: The port on which it listens.
        process_id: The id of the process that was started first.
    """

    port: int
    process_id: int

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server so far, with all processes that it started (Linux)."""
        return cpu_seconds(self.process_id)


def cpu_seconds(process_id: int) -> float:
    """Return the CPU time of a process so far, with all processes that it started (Linux)."""
    process = Path(f"/proc/{process_id}")
    # The name of the process may contain anything, so the fields are read after its end. Four of them are user and
    # system time, of the process itself and of its children that have ended.
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    children = [int(child) for task in process.glob("task/*/children") for child in task.read_text().split()]
    return own + sum(map(cpu_seconds, children))


@contextmanager
def service(url: str, data_dir: Path, workers: int = 0, core: int | None = None, **more: str) -> Iterator[Server]:
    """Start `python -m app serve` on the migrated database at ``url``, and stop it at the end.

    Args:
        workers: The number of workers that it starts.
        core: The core for all its processes; None means all cores.
        more: Further settings, by the names of their environment variables.
    """
    settings = {"EPSILOND_DATABASE_URL": url, "EPSILOND_DATA_DIR": str(data_dir), "EPSILOND_WORKERS": str(workers)}
    with _server(["app", "serve"], settings | more, core) as server:
        # The load processes inherit the header with the token. They also send it to the bare endpoints.
        os.environ[AUTHORIZATION] = (data_dir / "local-token").read_text().strip()
        try:
            yield server
        finally:
            del os.environ[AUTHORIZATION]


@contextmanager
def bare(module: str = "benchmarks.ledger.bare", core: int | None = None, **environment: str) -> Iterator[Server]:
    """Start the bare endpoints of a module, and stop them at the end."""
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
        # The core is set before the server starts threads or processes, which inherit it.
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
    raise RuntimeError(f"the server ended with status {process.wait()} before it printed its address")


@dataclass(frozen=True, slots=True)
class Client:
    """A connection that is kept open and carries one request after the other."""

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
    """Connect a client to the server, and close it at the end."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    try:
        yield Client(connection)
    finally:
        connection.close()


def migrated(url: str) -> str:
    """Migrate the database to the newest schema, and return its URL."""
    upgrade(url)
    return url
