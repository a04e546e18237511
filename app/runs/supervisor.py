"""Worker processes: started, watched, replaced when they end, and their unfinished runs settled."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from pathlib import Path

import structlog

from app.kit.context import Context
from app.runs import repository, worker
from app.settings import environment_of

log = structlog.get_logger()

WATCH_INTERVAL_S = 0.5
GRACE_S = 10.0
PROJECT_ROOT = Path(__file__).resolve().parents[2]


class Supervisor:
    """Keeps ``count`` worker processes running.

    A worker that ends with a run in progress loses it: the charge is committed in full and the run fails, because noise
    may have been drawn. Runs of workers of this host that are no more (the machine restarted) are settled at the start.
    """

    def __init__(self, context: Context, count: int) -> None:
        self._context = context
        self._count = count
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker-supervisor", daemon=True)

    def start(self) -> None:
        self._settle_the_dead()
        for _ in range(self._count):
            self._spawn()
        self._thread.start()

    def stop(self) -> None:
        """Ask the workers to stop, wait a little, then insist; settle what they left."""
        self._stopping.set()
        self._thread.join()
        for process in self._processes.values():
            process.terminate()
        for worker_id, process in self._processes.items():
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            worker.give_up_runs_of(self._context, worker_id)
        self._processes.clear()

    def wait(self) -> None:
        """Until `stop` is called from elsewhere (a signal handler)."""
        self._stopping.wait()

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_INTERVAL_S):
            ended = [worker_id for worker_id, process in self._processes.items() if process.poll() is not None]
            for worker_id in ended:
                log.error("worker_ended", worker_id=worker_id, exit_status=self._processes[worker_id].returncode)
                try:
                    worker.give_up_runs_of(self._context, worker_id)
                except Exception as error:
                    # The database may be away; the process stays listed, so the next round tries again.
                    log.error("worker_not_settled", worker_id=worker_id, error_type=type(error).__name__)
                    continue
                del self._processes[worker_id]
                self._spawn()

    def _spawn(self) -> None:
        token = secrets.token_hex(4)
        command = [sys.executable, "-m", "app.runs", token, str(os.getpid())]
        process = subprocess.Popen(command, cwd=PROJECT_ROOT, env=os.environ | environment_of(self._context.settings))
        self._processes[worker_id_of(process.pid, token)] = process

    def _settle_the_dead(self) -> None:
        with self._context.database.read() as session:
            workers = repository.workers_in_progress(session)
        for worker_id in workers:
            host, pid, _ = worker_id.rsplit("/", 2)
            if host == socket.gethostname() and not _is_alive(int(pid)):
                worker.give_up_runs_of(self._context, worker_id)


def worker_id_of(pid: int, token: str) -> str:
    """Host, process and a random token: a process id that is used again is another worker."""
    return f"{socket.gethostname()[:32]}/{pid}/{token}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
