"""One server process while its disk is full, its database locked, and its clients idle, slow or gone."""

from __future__ import annotations

import json
import os
import resource
import socket
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from sqlalchemy import make_url

from app import connections
from tests.app.problem_assertions import assert_problem
from tests.crash.connection import Address, Connection
from tests.crash.server_process import ServerProcess, running_server
from tests.databases import DatabaseFactory
from tests.local_access import authorization

BUDGET = {"name": "a", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
EVENTS = [{"mechanism": {"kind": "zcdp", "rho": 0.25}}]
ACCOUNT = {"events": EVENTS, "neighboring_relation": "add_or_remove_one", "delta": 1e-5}
ROWS = 20_000
IDLE = 1000

#: The program with less patience for locks and bodies than it has, on a system that allows few files at first.
PROGRAM = """
import resource
from app import connections
from app.cli.main import main
from app.db import database

database.Database.__init__.__defaults__ = (1,)
connections.FILES = 1300
connections.BODY_S = 1.0
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
main()
"""
MOST_CONNECTIONS = 1300 - connections.OTHER_FILES


@pytest.fixture(scope="module")
def database_file(sqlite_databases: DatabaseFactory) -> str:
    return str(make_url(sqlite_databases.migrated()).database)


@pytest.fixture(scope="module")
def server(database_file: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    with running_server(f"sqlite:///{database_file}", folder, ("-c", PROGRAM)) as server:
        yield server


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[Connection]:
    with Connection(server.address) as connection:
        yield connection


@contextmanager
def full(process: int) -> Iterator[None]:
    """No file of the process may have a byte more, as on a disk without room: every write fails, reading goes on."""
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


def send_upload(address: Address) -> httpx2.Response:
    """A public data set that is longer than what is kept in memory."""
    columns: list[dict[str, Any]] = [
        {"name": "x", "type": "number", "lower": 0, "upper": ROWS},
        {"name": "y", "type": "category", "categories": ["no", "yes"]},
    ]
    metadata = {"name": "a", "public": True, "declared_size": ROWS, "columns": columns, "label": "y"}
    rows = "x,y\n" + "".join(f"{number},no\n" for number in range(ROWS))
    return httpx2.post(
        f"http://{address[0]}:{address[1]}/v1/datasets",
        headers={"Idempotency-Key": "upload", **authorization(address[1])},
        files={
            "metadata": ("metadata.json", json.dumps(metadata), "application/json"),
            "file": ("a.csv", rows, "text/csv"),
        },
        timeout=60,
    )


def test_a_server_without_room_refuses_what_it_would_write_and_takes_it_later(
    server: ServerProcess, connection: Connection
) -> None:
    budget = connection.send("POST", "/v1/budgets", BUDGET, "budget").json()
    reservations = f"/v1/budgets/{budget['id']}/reservations"
    held = connection.send("POST", reservations, {"events": EVENTS, "purpose": "held"}, "held").json()
    commands: list[tuple[str, dict[str, Any], str]] = [
        ("/v1/budgets", BUDGET | {"name": "without room"}, "another budget"),
        (reservations, {"events": EVENTS, "purpose": "later"}, "later"),
        (f"/v1/reservations/{held['id']}/commit", {}, "commit"),
    ]
    with full(server.pid):
        for path, body, key in commands:
            answer = connection.send("POST", path, body, key)
            assert_problem(answer, 503, "database_unavailable")
            assert int(answer.headers["retry-after"]) > 0
        assert_problem(send_upload(server.address), 507, "disk_full")
        assert connection.get(f"/v1/budgets/{budget['id']}").json()["amounts"]["reserved"] == held["cost"]
        assert connection.send("POST", "/v1/account", ACCOUNT).status_code == 200
        assert connection.get("/health/live").status_code == 200
    answers = [connection.send("POST", path, body, key) for path, body, key in commands]
    assert [answer.status_code for answer in answers] == [201, 201, 200]
    assert send_upload(server.address).status_code == 201
    after = connection.get(f"/v1/budgets/{budget['id']}").json()
    assert (after["amounts"]["spent"], after["amounts"]["reserved"]) == (held["cost"], held["cost"])
    names = [budget["name"] for budget in connection.get("/v1/budgets?limit=200").json()["items"]]
    assert names.count("without room") == 1
    verdict = connection.send("POST", "/v1/ledger/verify", {"budget_id": budget["id"]}).json()
    # Its making, two holds, one commit: nothing of what was refused, and nothing twice.
    assert (verdict["valid"], verdict["entries"]) == (True, 4)


@pytest.mark.thorough
def test_a_locked_database_file_is_busy_and_the_same_request_succeeds_afterwards(
    database_file: str, connection: Connection
) -> None:
    request = BUDGET | {"name": "locked"}
    with closing(sqlite3.connect(database_file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = connection.send("POST", "/v1/budgets", request, "locked")
        assert_problem(answer, 503, "database_busy")
        assert int(answer.headers["retry-after"]) > 0
        assert connection.get("/v1/budgets").status_code == 200
        assert connection.send("POST", "/v1/account", ACCOUNT).status_code == 200
        assert connection.get("/health/live").status_code == 200
    answer = connection.send("POST", "/v1/budgets", request, "locked")
    assert (answer.status_code, answer.is_replayed) == (201, False)
    assert connection.send("POST", "/v1/budgets", request, "locked").is_replayed
    names = [budget["name"] for budget in connection.get("/v1/budgets?limit=200").json()["items"]]
    assert names.count("locked") == 1


def test_a_thousand_idle_connections_keep_nobody_out_and_too_many_only_those_who_come_late(
    server: ServerProcess, connection: Connection
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    process = psutil.Process(server.pid)
    with ExitStack() as stack:
        first = stack.enter_context(Connection(server.address))
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(server.address))
        with Connection(server.address) as another:
            assert another.send("POST", "/v1/account", ACCOUNT).status_code == 200
            assert another.get("/v1/budgets").status_code == 200
        assert process.num_fds() > IDLE
        late = [
            stack.enter_context(socket.create_connection(server.address)) for _ in range(MOST_CONNECTIONS - IDLE + 10)
        ]
        assert hung_up(late[-1])
        # Nobody who was there before has lost the connection, or is kept from asking.
        assert connection.get("/v1/budgets").status_code == 200
        assert first.get("/health/live").status_code == 200
    with Connection(server.address) as another:
        assert another.get("/health/live").status_code == 200


def hung_up(client: socket.socket) -> bool:
    """Whether the server ends the connection without a word."""
    client.settimeout(30)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_the_server_looks_for_slow_clients_by_itself(server: ServerProcess) -> None:
    head = f"POST /v1/account HTTP/1.1\r\nHost: {server.address[0]}\r\nContent-Length: 10\r\n\r\n"
    with socket.create_connection(server.address, timeout=30) as client:
        client.sendall(head.encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code": "request_timeout"' in answer


def test_an_upload_whose_client_vanishes_leaves_nothing(server: ServerProcess, connection: Connection) -> None:
    head = (
        f"POST /v1/datasets HTTP/1.1\r\nHost: {server.address[0]}\r\nIdempotency-Key: vanished\r\n"
        f"Authorization: {authorization(server.address[1])['Authorization']}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
    )
    with socket.create_connection(server.address) as client:
        client.sendall(head.encode() + b"1,2\n" * 2**19)
        while not uploads(server):
            assert connection.get("/health/live").status_code == 200
        # Gone with a reset, in the middle of the file.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    while uploads(server):
        assert connection.get("/health/live").status_code == 200
    assert "request_failed" not in server.printed()


def uploads(server: ServerProcess) -> list[str]:
    """The files of uploads that the server has open; they have no name in any folder."""
    found = []
    for link in Path(f"/proc/{server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(link))
    return [name for name in found if "/datasets/" in name]
