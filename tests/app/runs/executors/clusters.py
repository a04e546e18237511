"""A real Dask cluster: its scheduler and its workers are commands, started as docs/operating/dask.md says."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from app.kit.process_pool import PROJECT_ROOT

TIMEOUT_S = 60
CONFIGURATION = PROJECT_ROOT / "app" / "runs" / "executors" / "cluster.yaml"


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


class ClusterProcesses:
    """One scheduler and its workers on this machine, each one process with one thread.

    Attributes:
        address: The scheduler's; it stays the same when the scheduler is started again.
        workers: Those that were started and not killed.
    """

    def __init__(self, folder: Path, configuration: Path = CONFIGURATION) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._folder, self._configuration = folder, configuration
        folder.mkdir(exist_ok=True)

    def start_scheduler(self) -> None:
        port = self.address.rpartition(":")[2]
        self._scheduler = self._start(
            PROJECT_ROOT, "scheduler", "--host", "127.0.0.1", "--port", port, "--dashboard-address", "127.0.0.1:0"
        )

    def start_worker(self, checkout: Path = PROJECT_ROOT) -> subprocess.Popen[bytes]:
        process = self._start(
            checkout,
            "worker",
            *(self.address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard"),
            # Where the tests themselves are killed, it ends by itself.
            *("--memory-limit", "1GiB", "--death-timeout", "60"),
        )
        self.workers.append(process)
        return process

    def kill_scheduler(self) -> None:
        assert self._scheduler is not None
        _kill(self._scheduler)

    def restart(self) -> None:
        """Start everything anew after the scheduler was killed: workers that have met it end with it."""
        self.stop()
        self.start_scheduler()
        self.start_worker()

    def kill_worker(self, process: subprocess.Popen[bytes]) -> None:
        _kill(process)
        self.workers.remove(process)

    def stop(self) -> None:
        for process in (*self.workers, self._scheduler):
            if process is not None:
                _kill(process)
        self.workers.clear()

    @property
    def printed(self) -> str:
        """All that scheduler and workers have logged."""
        return (self._folder / "log").read_text()

    def _start(self, checkout: Path, *command: str) -> subprocess.Popen[bytes]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EPSILOND_", "DASK_"))}
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [Path(sys.executable).with_name("dask"), *command],
                cwd=checkout,
                env=inherited
                | {
                    "PYTHONPATH": str(checkout),
                    "DASK_TEMPORARY_DIRECTORY": str(self._folder),
                    "DASK_CONFIG": str(self._configuration),
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
