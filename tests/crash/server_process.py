"""A real server process in a process group of its own, which can be killed and started again on the same database."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.crash.connection import Address, Connection
from tests.e2e.server import ROOT, START_TIMEOUT_S
from tests.local_access import remember

STOP_TIMEOUT_S = 30
PROGRAM = ("-m", "app")


@contextmanager
def running_server(
    database_url: str, folder: Path, program: tuple[str, ...] = PROGRAM, **settings: str
) -> Iterator[ServerProcess]:
    """A server on this database, with its own files in ``folder``; started, and stopped when the block ends.

    Args:
        program: What Python runs, before the command and its options.
        settings: More of the service's settings, by the names of their variables.
    """
    own = {"EPSILOND_DATABASE_URL": database_url, "EPSILOND_DATA_DIR": str(folder / "var")}
    server = ServerProcess(own | settings, folder, program)
    try:
        server.start()
        yield server
    finally:
        server.stop()


class ServerProcess:
    """`python -m app serve --migrate`, over and over.

    Args:
        environment: The service's settings; each start has what is in it then.
        folder: Where the output of each start goes.
        program: What Python runs.
    """

    def __init__(self, environment: dict[str, str], folder: Path, program: tuple[str, ...] = PROGRAM) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPSILOND_")}
        self.environment = (
            inherited | {"EPSILOND_PORT": "0", "EPSILOND_WORKERS": "0", "EPSILOND_WARM_UP": "no"} | environment
        )
        self._folder = folder
        self._program = program
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        assert self._address is not None, "the server was never started"
        return self._address

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start a server and wait until it is ready."""
        assert not self.is_running
        self._starts += 1
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, "serve", "--migrate"],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._address = self._wait_for_address()
        remember(self._address[1], Path(self.environment["EPSILOND_DATA_DIR"]))
        # The socket listens already, so the first reply comes as soon as there can be one.
        with Connection(self._address) as connection:
            assert connection.get("/health/ready").status_code == 200, self._log.read_text()

    def kill(self) -> None:
        """SIGKILL to the whole process group: the server, and its workers if it has any."""
        process = self._running()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_alone(self) -> None:
        """SIGKILL to the server's own process: its workers are left."""
        process = self._running()
        process.kill()
        process.wait()

    @property
    def pid(self) -> int:
        """Of the server's own process."""
        return self._running().pid

    def workers(self) -> list[Any]:
        """The worker processes under the server."""
        found: list[Any] = psutil.Process(self._running().pid).children()
        return found

    def stop(self) -> None:
        """End the server, if it runs, and find no traceback in what any start has printed."""
        if self._process is not None and self.is_running:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            finally:
                if self.is_running:
                    os.killpg(self._process.pid, signal.SIGKILL)
                    self._process.wait()
        printed = self.printed()
        assert "Traceback" not in printed, printed

    def printed(self) -> str:
        """What all starts have printed, their workers' lines among it."""
        return "".join(log.read_text() for log in sorted(self._folder.glob("server-*.log")))

    @property
    def _log(self) -> Path:
        return self._folder / f"server-{self._starts}.log"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        assert self.is_running, f"the server ended by itself: {self._log.read_text()}"
        return self._process

    def _wait_for_address(self) -> Address:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.is_running:
            found = re.search(r"http://(127\.0\.0\.1):(\d+)", self._log.read_text())
            if found:
                return found[1], int(found[2])
            time.sleep(0.02)
        raise AssertionError(f"the server did not start: {self._log.read_text()}")
