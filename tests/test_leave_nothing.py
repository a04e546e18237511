"""Tests that are killed leave no process behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]
PATIENCE_S = 120.0

#: Starts a server with a worker on PostgreSQL, says who was started, and never ends.
STARTING = """
import time
from pathlib import Path

from sqlalchemy import make_url

from tests.crash.server_process import running_server


def test_that_never_ends(postgresql_databases, tmp_path):
    url = postgresql_databases.empty()
    with running_server(url, tmp_path, EPSILOND_WORKERS="1") as server:
        while not server.workers():
            time.sleep(0.1)
        said = Path({said!r})
        postmaster = Path(make_url(url).query["host"]) / "postmaster.pid"
        started = [server.pid, *[each.pid for each in server.workers()], int(postmaster.read_text().split()[0])]
        said.with_suffix(".new").write_text(" ".join(map(str, started)))
        said.with_suffix(".new").rename(said)
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGKILL, "0"),
        pytest.param(signal.SIGTERM, "0", marks=pytest.mark.thorough),
        pytest.param(signal.SIGKILL, "1", marks=pytest.mark.thorough),
    ],
    ids=["killed", "terminated", "killed-with-workers"],
)
def test_what_was_started_ends_with_the_tests(tmp_path: Path, number: signal.Signals, workers: str) -> None:
    said = tmp_path / "started"
    (tmp_path / "test_starting.py").write_text(STARTING.format(said=str(said)))
    options = ["-c", "pyproject.toml", "--rootdir", str(ROOT), "-p", "tests.conftest", "-n", workers]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_starting.py")]
    with (tmp_path / "printed").open("wb") as printed:
        tests = subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not said.exists():
            assert tests.poll() is None, (tmp_path / "printed").read_text()
            assert time.monotonic() < deadline, "nothing was started"
            time.sleep(0.1)
        started = [psutil.Process(int(each)) for each in said.read_text().split()]
        assert len(started) == 3
    finally:
        tests.send_signal(number)
        tests.wait()
    _, alive = psutil.wait_procs(started, timeout=30)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]
