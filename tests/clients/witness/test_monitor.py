"""A monitor of a service that lies: rolled back, rewritten, not cosigned, stale, away."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from epsilond_witness.monitor import Alert, Monitor
from epsilond_witness.notes import Key, Kind, cosign

from tests.clients.witness.cases import Log, leaves, proof, said
from tests.clients.witness.test_program import run

NOW = 1_800_000_000


class Service:
    """Answers as a service does, with whatever log and cosignatures it is given.

    Attributes:
        log: The log, and how many of its entries are shown.
        witnessed: What is shown as witnessed: a log and a size; None where nothing is.
        cosigners: The private key and the key of a witness, and the time at which it cosigns.
        status, code: Answer this to everything.
    """

    def __init__(self, log: Log, size: int) -> None:
        self.log, self.size = log, size
        self.witnessed: tuple[Log, int] | None = None
        self.cosigners: list[tuple[Ed25519PrivateKey, Key, int]] = []
        self.status, self.code = 200, ""
        self.asked: list[tuple[str, str | None]] = []
        self.posted: list[bytes] = []

    def note(self, log: Log, size: int) -> str:
        note = log.note(size)
        body = note.partition("\n\n")[0] + "\n"
        return note + "".join(cosign(body, private, key, at).line for private, key, at in self.cosigners)

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        if self.status != 200:
            return self.status, json.dumps({"code": self.code})
        if path == "/v1/ledger/consistency":
            first, second = int(query["from_size"]), int(query["to_size"])
            path_of = proof(first, self.log.leaves[:second])
            return 200, json.dumps({"path": [node.hex() for node in path_of]})
        assert path == "/v1/ledger/checkpoint"
        if "witnessed" not in query:
            return 200, self.log.note(self.size)
        if self.witnessed is None:
            return 409, json.dumps({"code": "not_witnessed"})
        return 200, self.note(*self.witnessed)


@pytest.fixture
def service() -> Iterator[Service]:
    told = Service(Log(leaves(40)), 10)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            told.asked.append((self.path, self.headers["Authorization"]))
            status, body = told.answer(parts.path, dict(parse_qsl(parts.query)))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            told.posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield told
        server.shutdown()
        thread.join()


def cosigner(name: str, at: int = NOW) -> tuple[Ed25519PrivateKey, Key, int]:
    private = Ed25519PrivateKey.generate()
    return private, Key.of(private, name, Kind.COSIGNER), at


def monitor(service: Service, folder: Path, *keys: Key, quorum: int = 0, now: int = NOW) -> Monitor:
    url: str = service.url  # type: ignore[attr-defined]
    return Monitor(folder, url, (service.log.key,), "a-token", keys, quorum, clock=lambda: now)


def alerts(found: Monitor) -> set[Alert]:
    return set(found.look().alerts)


def test_a_ledger_that_grows_is_as_it_should_be(service: Service, tmp_path: Path) -> None:
    watch = monitor(service, tmp_path / "m")
    for size in (10, 10, 11, 40):
        service.size = size
        look = watch.look()
        assert (look.size, look.alerts) == (size, {})
    assert {token for _, token in service.asked} == {"Bearer a-token"}
    assert (tmp_path / "m" / "newest.txt").read_text() == service.log.note(40)


def test_a_ledger_that_was_rolled_back_is_told_until_it_is_mended(service: Service, tmp_path: Path) -> None:
    watch = monitor(service, tmp_path / "m")
    assert watch.look().alerts == {}
    service.size = 9
    for _ in range(3):
        look = watch.look()
        assert (set(look.alerts), look.size) == ({Alert.SMALLER}, 10)
    [evidence] = (tmp_path / "m").glob("contradiction-*")
    assert evidence.read_text() == f"{service.log.note(10)}\n{service.log.note(9)}"
    service.size = 12
    assert alerts(watch) == set()


@pytest.mark.parametrize("size", [10, 15])
def test_a_history_that_was_rewritten_is_told(service: Service, tmp_path: Path, size: int) -> None:
    watch = monitor(service, tmp_path / "m")
    assert watch.look().alerts == {}
    service.log, service.size = service.log.fork(4), size
    look = watch.look()
    assert (set(look.alerts), look.size) == ({Alert.INCONSISTENT}, 10)
    assert len(list((tmp_path / "m").glob("contradiction-*"))) == 1
    # A monitor that has seen nothing before cannot know.
    assert alerts(monitor(service, tmp_path / "other")) == set()


def test_what_is_witnessed_is_what_is_shown(service: Service, tmp_path: Path) -> None:
    one = cosigner("w.example/1")
    service.cosigners = [one]
    watch = monitor(service, tmp_path / "m", one[1], quorum=1)
    assert alerts(watch) == {Alert.NOT_WITNESSED}
    service.witnessed = (service.log, 8)
    look = watch.look()
    assert (look.alerts, look.cosigned_at, look.size) == ({}, NOW, 10)
    service.witnessed = (service.log.fork(4), 8)
    assert alerts(watch) == {Alert.INCONSISTENT}
    service.witnessed = (service.log, 11)
    assert alerts(watch) == {Alert.SMALLER}, "what is shown lacks an entry that was cosigned"


def test_a_quorum_counts_different_witnesses_that_are_known(service: Service, tmp_path: Path) -> None:
    one, two, stranger = cosigner("w.example/1", NOW - 50), cosigner("w.example/2", NOW - 20), cosigner("s.example")
    service.witnessed = (service.log, 10)
    watch = monitor(service, tmp_path / "m", one[1], two[1], quorum=2)
    for cosigners in ([], [one], [one, one], [one, stranger], [two, stranger]):
        service.cosigners = cosigners
        assert alerts(watch) == {Alert.NOT_WITNESSED}, cosigners
    service.cosigners = [one, two]
    assert watch.look().cosigned_at == NOW - 50
    assert monitor(service, tmp_path / "m", one[1], two[1], quorum=1).look().cosigned_at == NOW - 20
    # A cosignature of one witness under the name of the other.
    service.cosigners = [one, (one[0], two[1], NOW)]
    assert alerts(watch) == {Alert.NOT_WITNESSED}
    with pytest.raises(ValueError, match="have the same key"):
        monitor(service, tmp_path / "m", one[1], Key(two[1].name, Kind.COSIGNER, one[1].public), quorum=1)
    with pytest.raises(ValueError, match="cannot cosign"):
        monitor(service, tmp_path / "m", one[1], quorum=2)


def test_old_cosignatures_and_those_to_come_are_told(service: Service, tmp_path: Path) -> None:
    one = cosigner("w.example/1")
    service.witnessed, service.cosigners = (service.log, 10), [one]
    assert alerts(monitor(service, tmp_path / "m", one[1], quorum=1, now=NOW + 600)) == set()
    assert alerts(monitor(service, tmp_path / "m", one[1], quorum=1, now=NOW + 601)) == {Alert.STALE}
    assert alerts(monitor(service, tmp_path / "m", one[1], quorum=1, now=NOW - 121)) == {Alert.NOT_WITNESSED}


def test_a_checkpoint_that_is_not_the_ledgers_is_none(service: Service, tmp_path: Path) -> None:
    watch = monitor(service, tmp_path / "m")
    service.log = Log(service.log.leaves)
    assert alerts(watch) == {Alert.UNSIGNED}
    service.log.note = lambda size: "nonsense"  # type: ignore[method-assign]
    assert alerts(watch) == {Alert.UNSIGNED}
    assert not (tmp_path / "m" / "newest.txt").exists()


def test_a_service_that_refuses_or_is_away_is_told(service: Service, tmp_path: Path) -> None:
    watch = monitor(service, tmp_path / "m")
    service.status, service.code = 401, "unauthenticated"
    assert watch.look().alerts == {Alert.UNREACHABLE: "the server answered 401 unauthenticated"}
    service.status, service.code = 409, "ledger_not_consistent"
    assert alerts(watch) == {Alert.INCONSISTENT}, "it says so itself"
    service.status, service.code = 302, ""
    assert alerts(watch) == {Alert.UNREACHABLE}
    away = Monitor(tmp_path / "m", "http://127.0.0.1:1", (service.log.key,))
    assert set(away.look().alerts) == {Alert.UNREACHABLE}


def test_the_command_tells_by_status_line_hook_and_webhook(service: Service, tmp_path: Path) -> None:
    url: str = service.url  # type: ignore[attr-defined]
    token, heard = tmp_path / "token", tmp_path / "heard.json"
    token.write_text("a-token\n")
    hook = f"{sys.executable} -c \"import sys; open('{heard}', 'w').write(sys.stdin.read())\""
    arguments = ["monitor", str(tmp_path / "m"), "--url", url, "--log", str(service.log.key), "--once"]
    arguments += ["--token-file", str(token), "--hook", hook, "--webhook", f"{url}/hook"]
    [look] = said(run(*arguments).stdout)
    assert (look["size"], look["alerts"]) == (10, [])
    assert not heard.exists()
    assert service.posted == []
    service.log = service.log.fork(3)
    [look] = said(run(*arguments, status=1).stdout)
    assert [each["alert"] for each in look["alerts"]] == ["inconsistent"]  # type: ignore[attr-defined,index]
    assert json.loads(heard.read_text()) == look
    assert [json.loads(body) for body in service.posted] == [look]
    assert "--quorum" not in run(*arguments, "--hook", "false", status=1).stderr
    assert "cannot cosign" in run(*arguments, "--quorum", "1", status=2).stderr


@pytest.mark.thorough
def test_evidence_does_not_grow_without_end(service: Service, tmp_path: Path) -> None:
    watch = monitor(service, tmp_path / "m")
    assert watch.look().alerts == {}
    true = service.log
    for number in range(105):
        service.log = Log([*true.leaves[:9], hashlib.sha256(bytes([number])).digest()], true.private)
        assert alerts(watch) == {Alert.INCONSISTENT}
    assert len(list((tmp_path / "m").glob("contradiction-*"))) == 100
