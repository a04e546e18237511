"""The real server process on a real socket: what a client in the same process cannot show."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.kit import limits
from app.server import CannotListen, listen
from app.settings import Settings, environment_of
from tests.app.problem_assertions import assert_problem

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class RawAnswer:
    status_code: int
    headers: Message
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Running:
    port: int
    banner: str
    data_dir: Path
    process: subprocess.Popen[str]

    def ask(self, request: bytes) -> RawAnswer:
        """Send bytes as they are, read until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(request)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = received.partition(b"\r\n\r\n")
        status, _, fields = head.partition(b"\r\n")
        return RawAnswer(int(status.split()[1]), BytesParser().parsebytes(fields + b"\r\n\r\n"), body)


def start(settings: Settings) -> Running:
    with (settings.data_dir / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve", "--migrate"],
            cwd=ROOT,
            env={**os.environ, **environment_of(settings)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    lines = list(iter(process.stdout.readline, "  stop       Ctrl+C\n"))
    port = re.search(r"listening on 127\.0\.0\.1:([0-9]+)", lines[0])
    assert port is not None, lines
    return Running(int(port[1]), "".join(lines), settings.data_dir, process)


def stop(running: Running, number: signal.Signals) -> int:
    running.process.send_signal(number)
    assert running.process.stdout is not None
    running.process.stdout.close()
    return running.process.wait(30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start(Settings(data_dir=tmp_path_factory.mktemp("data"), port=0, workers=0, warm_up=False))
    yield running
    assert stop(running, signal.SIGTERM) == 0


def head(*fields: str, target: str = "POST /v1/account", host: str = "127.0.0.1") -> bytes:
    lines = (f"{target} HTTP/1.1", f"Host: {host}", "Connection: close", *fields)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_the_banner_says_where_on_what_and_for_whom(server: Running) -> None:
    assert f"http://127.0.0.1:{server.port}/docs" in server.banner
    assert "SQLite" in server.banner
    assert "no key created yet: only this machine is answered" in server.banner


def test_the_banner_has_an_address_that_signs_in_once_and_nothing_has_the_token(server: Running) -> None:
    printed = re.search(rf"http://127\.0\.0\.1:{server.port}/dashboard/sign-in\?code=(\S+)", server.banner)
    assert printed is not None, server.banner
    assert f"`epsilond sign-in --url http://127.0.0.1:{server.port}`" in server.banner
    form = f"code={printed[1]}".encode()

    def redeem() -> RawAnswer:
        origin = f"Origin: http://127.0.0.1:{server.port}"
        fields = (origin, "Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(form)}")
        host = f"127.0.0.1:{server.port}"
        return server.ask(head(*fields, target="POST /dashboard/sign-in", host=host) + form)

    answer = redeem()
    assert answer.status_code == 303, answer.body
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert server.ask(head(f"Cookie: {cookie}", target="GET /dashboard/budgets")).status_code == 200
    assert redeem().status_code == 401
    file = server.data_dir / "local-token"
    token = file.read_text().split()[-1]
    assert file.stat().st_mode & 0o777 == 0o600
    log = (server.data_dir / "log").read_text()
    assert "/dashboard/sign-in" in log
    for text in (server.banner, log, cookie):
        assert token not in text
    assert printed[1] not in log


def test_it_answers(server: Running) -> None:
    assert server.ask(head(target="GET /health/ready")).json()["status"] == "ok"
    answer = server.ask(head(target="GET /docs"))
    assert answer.status_code == 200
    assert answer.headers["server"] is None


def test_a_chunked_body_above_the_limit_is_413(server: Running) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    body = chunk * (limits.JSON_BODY_BYTES // 0x10000 + 1) + b"0\r\n\r\n"
    fields = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    assert_problem(server.ask(head(*fields) + body), 413, "body_too_large")


def test_a_length_above_the_limit_is_413_before_the_body_is_sent(server: Running) -> None:
    fields = ("Content-Type: application/json", "Content-Length: 999999999999")
    assert_problem(server.ask(head(*fields)), 413, "body_too_large")


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{8000}", "127.0.0.1.evil.example"])
def test_a_foreign_host_is_refused(server: Running, host: str) -> None:
    assert_problem(server.ask(head(target="GET /v1/algorithms", host=host)), 403, "loopback_only")


@pytest.mark.parametrize("field", ["X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "Via: 1.1 proxy"])
def test_a_proxy_is_refused(server: Running, field: str) -> None:
    assert_problem(server.ask(head(field, target="GET /v1/algorithms")), 403, "loopback_only")


def test_an_origin_elsewhere_is_refused(server: Running) -> None:
    answer = server.ask(head("Origin: http://evil.example", target="GET /v1/algorithms"))
    assert_problem(answer, 403, "loopback_only")


def test_the_log_is_json_without_addresses(server: Running) -> None:
    server.ask(head("X-Request-Id: find-me", target="GET /health/live?q=datum-48151623"))
    text = (server.data_dir / "log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    [line] = [line for line in lines if line.get("request_id") == "find-me"]
    assert (line["event"], line["route"], line["status"]) == ("request", "/health/live", 200)
    assert "datum-48151623" not in text


def test_a_taken_port_is_one_clear_line(server: Running) -> None:
    with pytest.raises(CannotListen, match=rf"cannot listen on 127\.0\.0\.1, port {server.port}: .*EPSILOND_PORT"):
        listen("127.0.0.1", server.port)
    with pytest.raises(CannotListen, match=r"cannot listen on 192\.0\.2\.1"):
        listen("192.0.2.1", 0)


def test_control_c_ends_it_quietly(tmp_path: Path) -> None:
    running = start(Settings(data_dir=tmp_path, port=0, workers=0, log_level="warning"))
    assert stop(running, signal.SIGINT) == 0
    assert (tmp_path / "log").read_text() == ""


def test_the_numerics_are_loaded_before_anybody_asks(tmp_path: Path) -> None:
    running = start(Settings(data_dir=tmp_path, port=0, workers=0))
    try:
        loaded = numerics_within(60.0, running)
        assert loaded
    finally:
        # It ends with the server, whatever it has come to.
        assert stop(running, signal.SIGTERM) == 0
    assert not any(each.is_running() for each in loaded)


def test_without_a_warm_up_they_are_not(server: Running) -> None:
    assert not numerics_within(2.0, server)


def numerics_within(seconds: float, running: Running) -> list[psutil.Process]:
    """The processes for numerics, as soon as there is one."""
    deadline = time.monotonic() + seconds
    while not (loaded := numerics_of(running)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return loaded


def numerics_of(running: Running) -> list[psutil.Process]:
    children = psutil.Process(running.process.pid).children()
    return [each for each in children if "app.kit.process_worker" in each.cmdline()]
