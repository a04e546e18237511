"""A stop ends soon, whatever waits for the database: an orchestrator kills what has not ended after ten seconds."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from app import server
from app.db.migrate import upgrade
from app.settings import Settings, environment_of
from tests.app.runs.conftest import REQUEST

ROOT = Path(__file__).parents[2]

# The real command with less patience, so that the test has some too.
PROGRAM = (
    "import sys; from app import server; from app.cli.main import main; server.GRACE_S, server.STOP_S = 1, 3.0; main()"
)


def test_the_patience_is_below_that_of_orchestrators() -> None:
    assert server.GRACE_S < server.STOP_S < 10


@contextmanager
def started(settings: Settings, command: str, program: str = PROGRAM) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, command],
        cwd=ROOT,
        env={**os.environ, **environment_of(settings)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or words not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    return "".join(lines)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold SQLite's one write lock: whoever wants to write waits for half a minute."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.mark.thorough
def test_the_server_ends_while_a_request_waits_for_a_lock(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, port=0, workers=0, warm_up=False)
    upgrade(settings.sqlalchemy_url)
    with started(settings, "serve") as process:
        port = re.search(r"listening on 127\.0\.0\.1:([0-9]+)", lines_until(process, "Ctrl+C"))
        assert port is not None
        body = b'{"name": "a", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}'
        head = (
            "POST /v1/budgets HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Idempotency-Key: k\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n"
            f"{settings.local_token_file.read_text().strip()}\r\n\r\n"
        )
        with locked(tmp_path / "epsilond.sqlite3"), socket.create_connection(("127.0.0.1", int(port[1])), 10) as client:
            client.sendall(head.encode())
            # Asked for the body, the application has the request in hand.
            assert client.recv(100).startswith(b"HTTP/1.1 100")
            client.sendall(body)
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        assert process.stdout is not None
        assert "stopped_with_work_unfinished" in process.stdout.read()


def ready(port: int) -> tuple[int, dict[str, str]]:
    """What `/health/ready` says on a connection of its own."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/health/ready")
    answer = connection.getresponse()
    checks: dict[str, str] = json.load(answer)["checks"]
    connection.close()
    return answer.status, checks


@pytest.mark.thorough
def test_ready_is_503_first_while_requests_are_answered_still(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, port=0, workers=0, drain_s=300)
    upgrade(settings.sqlalchemy_url)
    with started(settings, "serve") as process:
        port = re.search(r"listening on 127\.0\.0\.1:([0-9]+)", lines_until(process, "Ctrl+C"))
        assert port is not None
        assert ready(int(port[1]))[0] == 200
        kept = HTTPConnection("127.0.0.1", int(port[1]), timeout=30)
        kept.request("GET", "/health/live")
        assert kept.getresponse().read()
        process.send_signal(signal.SIGTERM)
        while ready(int(port[1]))[0] == 200:
            pass
        status, checks = ready(int(port[1]))
        assert (status, checks["accepting"], checks["database"]) == (503, "failing", "ok")
        kept.request("GET", "/v1/algorithms")
        assert kept.getresponse().read(), "who was told to stop still answers"
        process.send_signal(signal.SIGTERM)
        assert kept.sock.recv(1) == b"", "a connection without a request is closed"
        assert process.wait(15) == 0
        kept.close()


def test_a_request_under_way_ends_and_its_connection_with_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, port=0, workers=0, warm_up=False)
    upgrade(settings.sqlalchemy_url)
    with started(settings, "serve", "from app.cli.main import main; main()") as process:
        port = re.search(r"listening on 127\.0\.0\.1:([0-9]+)", lines_until(process, "Ctrl+C"))
        assert port is not None
        body = b'{"events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 1}}], "delta": 1e-5}'
        head = (
            "POST /v1/account HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", int(port[1])), 30) as client:
            client.sendall(head.encode())
            assert client.recv(100).startswith(b"HTTP/1.1 100")
            process.send_signal(signal.SIGTERM)
            lines_until(process, "Waiting for connections to close")
            client.sendall(body)
            heard = b"".join(iter(lambda: client.recv(10_000), b""))
        assert heard.startswith(b"HTTP/1.1 200"), heard
        assert process.wait(15) == 0


@pytest.mark.thorough
def test_streams_of_progress_end_at_once_and_whole(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, port=0, workers=0, warm_up=False)
    upgrade(settings.sqlalchemy_url)
    with started(settings, "serve") as process:
        port = re.search(r"listening on 127\.0\.0\.1:([0-9]+)", lines_until(process, "Ctrl+C"))
        assert port is not None
        rows = [[1, "no"], [2, "yes"]]
        columns = [
            {"name": "a", "type": "number", "lower": 0, "upper": 2},
            {"name": "y", "type": "category", "categories": ["no", "yes"]},
        ]
        line = settings.local_token_file.read_text().strip()
        name, _, value = line.partition(": ")
        request = Request(
            f"http://127.0.0.1:{port[1]}/v1/runs",
            json.dumps(
                REQUEST | {"dataset": {"public": True, "columns": columns, "label": "y", "rows": rows}}
            ).encode(),
            {"Content-Type": "application/json", "Idempotency-Key": "k", name: value},
        )
        with urlopen(request, timeout=30) as answer:
            run_id = json.load(answer)["id"]
        with socket.create_connection(("127.0.0.1", int(port[1])), 10) as client:
            client.sendall(f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{line}\r\n\r\n".encode())
            heard = b""
            while b"queued-0" not in heard:
                heard += client.recv(10_000)
            process.send_signal(signal.SIGTERM)
            while more := client.recv(10_000):
                heard += more
        # The last chunk is there: the answer was ended, and not cut off when patience was at its end.
        assert heard.endswith(b"0\r\n\r\n")
        assert process.wait(15) == 0
        assert process.stdout is not None
        assert "graceful shutdown exceeded" not in process.stdout.read()


@pytest.mark.thorough
def test_the_worker_command_ends_while_the_database_is_locked(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    upgrade(settings.sqlalchemy_url)
    with started(settings, "worker") as process:
        lines_until(process, "worker_started")
        with locked(tmp_path / "epsilond.sqlite3"):
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
