"""A server without keys behind a proxy that says nothing of itself, and beside other users of its machine."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from epsilond_client import Client
from epsilond_client.problems import ProblemError
from epsilond_client.transport import local_token

from app.cli.server import Server
from tests.app.cli.calls import done, refused
from tests.databases import DatabaseFactory
from tests.e2e.server import serving

BUDGET = {
    "name": "the attacker's",
    "neighboring_relation": "add_or_remove_one",
    "filter": {"kind": "zcdp", "rho": 1e6},
    "privacy_unit": "record",
}
CALIBRATION = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "iterations": 10,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
}


def bare_proxy_pass(upstream: str) -> type[BaseHTTPRequestHandler]:
    """Forward as nginx does for a bare `proxy_pass`: Host becomes the upstream's, and no header is added."""
    target = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.forward()

        def do_POST(self) -> None:
            self.forward()

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            connection = http.client.HTTPConnection(target, timeout=60)
            connection.request(self.command, self.path, body or None, kept | {"Host": target, "Connection": "close"})
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@contextmanager
def forwarding(upstream: str) -> Iterator[str]:
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), bare_proxy_pass(upstream))
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{proxy.server_address[1]}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


def ask(address: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
    """Ask as any program does that has a network, and no file of this machine."""
    connection = http.client.HTTPConnection(address, timeout=60)
    content = None if body is None else json.dumps(body)
    given = {"Content-Type": "application/json", "Idempotency-Key": "attack"} | headers
    connection.request(method, path, content, given)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


@pytest.fixture(scope="module")
def keyless(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and data folder of a server that has no key."""
    data = tmp_path_factory.mktemp("keyless") / "var"
    environment = {"EPSILOND_DATABASE_URL": sqlite_databases.empty(), "EPSILOND_DATA_DIR": str(data)}
    with serving(environment) as api:
        yield urlsplit(str(api.client.base_url)).netloc, data


def test_a_silent_proxy_opens_nothing(keyless: tuple[str, Path]) -> None:
    address, _ = keyless
    with forwarding(f"http://{address}") as outside:
        status, answer = ask(outside, "POST", "/v1/budgets", BUDGET, Host="epsilond.example")
        assert (status, answer["code"]) == (401, "unauthenticated")
        assert ask(outside, "GET", "/v1/budgets", Host="epsilond.example")[0] == 401


def test_another_user_of_the_machine_is_not_let_in(keyless: tuple[str, Path]) -> None:
    address, _ = keyless
    assert ask(address, "POST", "/v1/budgets", BUDGET)[0] == 401
    assert ask(address, "GET", "/v1/datasets")[0] == 401


def test_whoever_reads_the_file_is_let_in_and_the_file_is_private(keyless: tuple[str, Path]) -> None:
    address, data = keyless
    file = data / "local-token"
    assert (data.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    name, _, value = file.read_text().strip().partition(": ")
    assert ask(address, "POST", "/v1/budgets", BUDGET, **{name: value})[0] == 201


def test_calculations_are_open_to_the_machine_and_behind_a_silent_proxy(keyless: tuple[str, Path]) -> None:
    address, _ = keyless
    with forwarding(f"http://{address}") as outside:
        for place in (address, outside):
            assert ask(place, "POST", "/v1/calibrate", CALIBRATION)[0] == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
def test_a_proxy_that_says_so_is_refused_even_with_the_token(keyless: tuple[str, Path], header: str) -> None:
    address, data = keyless
    name, _, value = (data / "local-token").read_text().strip().partition(": ")
    status, answer = ask(address, "GET", "/v1/budgets", None, **{name: value, header: "127.0.0.1"})
    assert (status, answer["code"]) == (403, "loopback_only")


def test_the_command_line_and_the_client_find_the_token(keyless: tuple[str, Path], tmp_path: Path) -> None:
    address, data = keyless
    url = f"http://{address}"
    there = {"EPSILOND_URL": url, "EPSILOND_API_KEY": "", "EPSILOND_DATA_DIR": str(data)}
    elsewhere = there | {"EPSILOND_DATA_DIR": str(tmp_path)}
    budgets = json.loads(done("budget", "list", "--json", env=there))["items"]
    assert isinstance(budgets, list)
    assert "local-token" in refused("budget", "list", env=elsewhere)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EPSILOND_API_KEY", raising=False)
        patch.setenv("EPSILOND_DATA_DIR", str(data))
        with Client(url) as client:
            assert len(list(client.budgets.list())) == len(budgets)
        patch.setenv("EPSILOND_DATA_DIR", str(tmp_path))
        with Client(url, token_file=data / "local-token") as client:
            assert len(list(client.budgets.list())) == len(budgets)
        with Client(url) as client, pytest.raises(ProblemError, match="local-token"):
            list(client.budgets.list())
        with pytest.raises(ValueError, match="token_file"):
            Client(url, token_file=tmp_path / "nothing")


def test_neither_sends_the_token_to_another_machine(keyless: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    _, data = keyless
    monkeypatch.setenv("EPSILOND_DATA_DIR", str(data))
    monkeypatch.delenv("EPSILOND_API_KEY", raising=False)
    assert Server("https://epsilond.example").key == ""
    assert Server("http://127.0.0.1:1").key.startswith("epsilond_local_")
    assert local_token("https://epsilond.example", None) is None
    assert local_token("https://epsilond.example", data / "local-token") is None
