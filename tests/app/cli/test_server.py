"""The client of `epsilond run` and `budget` against servers that fail in each of their ways."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.cli import server
from tests.app.cli.calls import call, done, problem, refused
from tests.app.cli.conftest import Live

PAGE = b'{"items": [], "next_cursor": null}'


class Request(BaseHTTPRequestHandler):
    """One request, and the answer that the test has for it."""

    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self, body))
        self.server.script[min(len(self.server.seen), len(self.server.script)) - 1](self)
        self.close_connection = True

    do_POST = do_GET  # noqa: N815  # the names that the standard library calls

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


class Scripted(ThreadingHTTPServer):
    """A server that answers its first request with the first of ``script``, and so on; the last one for ever."""

    def __init__(self, script: tuple[Callable[[Request], None], ...]) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.script = script
        self.seen: list[tuple[Request, bytes]] = []

    @property
    def env(self) -> dict[str, str]:
        return {"EPSILOND_URL": f"http://127.0.0.1:{self.server_port}", "EPSILOND_API_KEY": "epsilond_a_b"}


@contextmanager
def serving(*script: Callable[[Request], None]) -> Iterator[Scripted]:
    scripted = Scripted(script)
    thread = threading.Thread(target=scripted.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield scripted
    finally:
        scripted.shutdown()
        thread.join()
        scripted.server_close()


def says(status: int, body: bytes = PAGE, content_type: str = "application/json", **headers: str) -> Any:
    return lambda request: request.answer(status, body, Content_Type=content_type, **headers)


def hangs_up(request: Request) -> None:
    """No answer: the connection ends."""


def problem_of(status: int, code: str) -> Any:
    document = {"status": status, "code": code, "detail": "Some words.", "request_id": "req_1", "errors": []}
    return says(status, json.dumps(document).encode(), "application/problem+json")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PAUSE_S", 0.0)


def test_the_key_travels_in_its_header_alone(tmp_path: Path) -> None:
    with serving(says(200)) as scripted:
        done("run", "list", env=scripted.env)
        ((request, _),) = scripted.seen
        assert request.headers["Authorization"] == "Bearer epsilond_a_b"
        assert "epsilond_a_b" not in request.path
        # The folder of a server that was started in this checkout has a token, which would be found.
        done("run", "list", env={**scripted.env, "EPSILOND_API_KEY": "", "EPSILOND_DATA_DIR": str(tmp_path)})
        assert scripted.seen[1][0].headers["Authorization"] is None


def test_who_gave_no_key_is_told_where_it_is_read_from() -> None:
    with serving(problem_of(401, "unauthenticated")) as scripted:
        assert "EPSILOND_API_KEY" in refused("run", "list", env={**scripted.env, "EPSILOND_API_KEY": ""})


def test_on_a_server_without_keys_the_first_words_say_how_its_token_is_shown(live: Live, tmp_path: Path) -> None:
    line = refused("budget", "list", env={**live.env, "EPSILOND_DATA_DIR": str(tmp_path)})
    assert line.startswith("epsilond: Show this server's token: `export EPSILOND_DATA_DIR=")
    with serving(problem_of(401, "unauthenticated")) as scripted:
        line = refused("budget", "list", env={**scripted.env, "EPSILOND_API_KEY": ""})
    assert "`export EPSILOND_API_KEY=epsilond_...`" in line
    assert "token" not in line


def test_a_command_that_is_sent_again_is_the_same_command() -> None:
    with serving(hangs_up, problem_of(409, "request_in_progress"), problem_of(422, "done")) as scripted:
        assert "Some words." in refused("run", "cancel", "run_a", env=scripted.env)
        assert len({(request.headers["Idempotency-Key"], body) for request, body in scripted.seen}) == 1
        assert len(scripted.seen) == 3
        refused("run", "cancel", "run_a", env=scripted.env)
        keys = [request.headers["Idempotency-Key"] for request, _ in scripted.seen]
        assert keys[3] != keys[2], "another command"


def test_a_command_without_an_answer_says_how_to_ask_again() -> None:
    with serving(hangs_up) as scripted:
        line = refused("run", "cancel", "run_a", status=4, env=scripted.env)
        keys = {request.headers["Idempotency-Key"] for request, _ in scripted.seen}
        assert len(scripted.seen) == server.ATTEMPTS
        assert f"It may have taken effect: --idempotency-key {keys.pop()} asks again." in line
        assert "taken effect" not in refused("run", "list", status=4, env=scripted.env)


def test_a_server_that_is_not_there_is_one_line_with_status_4() -> None:
    with serving(says(200)) as scripted:
        env = scripted.env
    line = refused("run", "list", status=4, env=env)
    assert f"{env['EPSILOND_URL']} does not answer: Connection refused. EPSILOND_URL or --url names another." in line
    assert "does not answer" in problem("run", "list", status=4, env=env)["detail"]


@pytest.mark.parametrize(("status", "code"), [(429, "too_many_requests"), (503, "numerics_busy")])
def test_a_server_that_is_busy_is_status_4(status: int, code: str) -> None:
    with serving(problem_of(status, code)) as scripted:
        assert problem("run", "list", status=4, env=scripted.env)["code"] == code
        assert len(scripted.seen) == 1


@pytest.mark.parametrize(
    "answer",
    [
        says(301, b"", Location="https://elsewhere.example/\x1b[2J"),
        says(502, b"<html>Bad Gateway</html>", "text/html"),
        says(404, b"{}"),
        says(422, b"[1]", "application/problem+json"),
        says(422, b"{", "application/problem+json"),
    ],
)
def test_what_does_not_answer_as_epsilond_does_is_named(answer: Any) -> None:
    with serving(answer) as scripted:
        line = refused("run", "list", env=scripted.env)
        assert "not as epsilond does. Is it the server?" in line
        assert "\x1b" not in line
        assert len(scripted.seen) == 1, "nobody follows where it points to, with the key"


@pytest.mark.parametrize("body", [b"<html></html>", b"[]", b"\xff", b'{"items": 1}'])
def test_an_answer_that_is_none_is_one_line(body: bytes) -> None:
    with serving(says(200, body)) as scripted:
        assert "does not answer as epsilond" in refused("run", "list", env=scripted.env)
        assert "does not answer as epsilond" in refused("budget", "show", "bud_a", env=scripted.env)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "epsilond.example",
        "ftp://epsilond.example",
        "http://",
        "http://a:b",
        "http://a:99999",
        "http://a\x1b.example",
        "http://a..example",
        "http://" + "a" * 64,
    ],
)
def test_what_is_no_address_is_one_line(url: str) -> None:
    assert "is not the address of a server" in refused("run", "list", "--url", url)


@pytest.mark.parametrize("url", ["http://user:secret@a.example", "http://a.example/?key=secret", "http://a.example/#s"])
def test_an_address_holds_no_key(url: str) -> None:
    line = refused("run", "list", "--url", url)
    assert "put the key into EPSILOND_API_KEY" in line
    assert "secret" not in line


@pytest.mark.parametrize("key", ["a\nb", "ключ"])
def test_a_key_that_is_none_is_not_shown(key: str) -> None:
    line = refused("run", "list", "--url", "http://127.0.0.1:1", env={"EPSILOND_API_KEY": key})
    assert "EPSILOND_API_KEY is not a key" in line
    assert key not in line


def test_a_key_that_would_cross_a_network_in_the_clear_is_told() -> None:
    result = call("run", "list", "--url", "http://epsilond.invalid", env={"EPSILOND_API_KEY": "epsilond_a_b"})
    assert (result.exit_code, result.stderr.count("\n")) == (4, 2)
    assert "warning: the key goes to epsilond.invalid in the clear; https:// would protect it" in result.stderr
    assert "epsilond_a_b" not in result.output


RUN = {
    "id": "run_a", "state": "succeeded", "problem": None, "algorithm": "dp_sgd", "progress": {"done": 3, "total": 3},
    "dataset_id": "ds_a", "dataset_version": None,
    "budget_id": None, "charge": None, "given_back": None, "price": None, "plan_hash": "f" * 64, "result": None,
    "finished_at": None, "release_at": None,
    "warnings": [], "dtype": "float32", "dtype_reason": None, "choices": [],
}  # fmt: skip


def event(kind: str, identifier: str, done: int) -> bytes:
    data = json.dumps({"id": "run_a", "state": "running", "progress": {"done": done, "total": 3}})
    return f"event: {kind}\ndata: {data}\nid: {identifier}\n\n".encode()


def streams(*parts: bytes) -> Any:
    return says(200, b"retry: 3000\n\n: keep-alive\n\n" + b"".join(parts), "text/event-stream")


def test_a_stream_that_breaks_off_goes_on_where_it_was() -> None:
    answer = says(200, json.dumps(RUN).encode())
    script = (streams(event("progress", "running-1", 1)), hangs_up, streams(event("end", "succeeded-3", 3)), answer)
    with serving(*script) as scripted:
        assert "succeeded" in done("run", "follow", "run_a", env=scripted.env)
        assert [request.headers["Last-Event-ID"] for request, _ in scripted.seen] == [
            None,
            "running-1",
            "running-1",
            None,
        ]


def test_patience_begins_anew_with_every_event() -> None:
    silence = (hangs_up,) * (server.ATTEMPTS - 1)
    first, second = (streams(event("progress", f"running-{done}", done)) for done in (1, 2))
    answer = says(200, json.dumps(RUN).encode())
    with serving(first, *silence, second, *silence, streams(event("end", "succeeded-3", 3)), answer) as scripted:
        assert "succeeded" in done("run", "follow", "run_a", env=scripted.env)


def test_a_stream_of_a_run_that_has_ended_says_nothing() -> None:
    with serving(says(204, b""), says(200, json.dumps(RUN).encode())) as scripted:
        assert "succeeded" in done("run", "follow", "run_a", env=scripted.env)


@pytest.mark.parametrize(
    "answer", [hangs_up, streams(b"data: {\n\n"), streams(b"data: \xff\n\n"), streams(b"data: 1\n\n")]
)
def test_a_stream_that_is_none_is_given_up(answer: Any) -> None:
    with serving(answer) as scripted:
        assert "does not answer" in refused("run", "follow", "run_a", status=4, env=scripted.env)
        assert len(scripted.seen) == server.ATTEMPTS


def test_a_stream_that_is_refused_is_the_servers_problem() -> None:
    with serving(problem_of(404, "not_found")) as scripted:
        assert problem("run", "follow", "run_a", env=scripted.env)["code"] == "not_found"
