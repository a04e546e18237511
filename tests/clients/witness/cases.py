"""Logs that sign whatever a test has them sign, and a witness that is served over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from epsilond_witness.cosigning import Witness
from epsilond_witness.notes import Key, Kind
from epsilond_witness.serving import DEADLINE_S, Server
from epsilond_witness.state import State, make, now, open_folder

from tests.app.ledger.rfc9162 import tree_hash

ORIGIN = "epsilond/led_test"
NAME = "witness.example/ledgers"


class Log:
    """A log with any leaves; its signatures are good, whatever they sign."""

    def __init__(self, leaves: Sequence[bytes] = (), private: Ed25519PrivateKey | None = None) -> None:
        self.leaves = list(leaves)
        self.private = private or Ed25519PrivateKey.generate()
        self.key = Key.of(self.private, ORIGIN, Kind.LOG)

    def fork(self, at: int) -> Log:
        """A log of the same key whose leaves are others from a place on."""
        return Log([*self.leaves[:at], *(hashlib.sha256(leaf).digest() for leaf in self.leaves[at:])], self.private)

    def root(self, size: int) -> bytes:
        return tree_hash(self.leaves[:size])

    def note(self, size: int, root: bytes | None = None, lines: str = "") -> str:
        root = self.root(size) if root is None else root
        text = f"{ORIGIN}\n{size}\n{base64.b64encode(root).decode()}\n{lines}"
        signature = base64.b64encode(self.key.id + self.private.sign(text.encode())).decode()
        return f"{text}\n\u2014 {ORIGIN} {signature}\n"

    def request(self, old: int, size: int, note: str | None = None, path: Sequence[bytes] | None = None) -> bytes:
        path = proof(old, self.leaves[:size]) if path is None else path
        hashes = "".join(f"{base64.b64encode(node).decode()}\n" for node in path)
        return f"old {old}\n{hashes}\n{self.note(size) if note is None else note}".encode()


def leaves(count: int) -> list[bytes]:
    return [hashlib.sha256(f"leaf {number}".encode()).digest() for number in range(count)]


def proof(first: int, leaves: Sequence[bytes]) -> list[bytes]:
    """RFC 6962, section 2.1.2, as it is written there."""

    def subproof(first: int, part: Sequence[bytes], is_whole: bool) -> list[bytes]:
        if first == len(part):
            return [] if is_whole else [tree_hash(list(part))]
        k = 1 << (len(part) - 1).bit_length() - 1
        if first <= k:
            return [*subproof(first, part[:k], is_whole), tree_hash(list(part[k:]))]
        return [*subproof(first - k, part[k:], False), tree_hash(list(part[:k]))]

    return subproof(first, leaves, True) if 0 < first < len(leaves) else []


class Served:
    """A witness behind its HTTP server.

    Attributes:
        key: Its public key.
        state: What it has cosigned.
        port: Where it listens, on 127.0.0.1.
    """

    def __init__(self, key: Key, state: State, port: int) -> None:
        self.key, self.state, self.port = key, state, port
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, str]:
        """Status, content type and body of an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
        finally:
            connection.close()

    def add(self, body: bytes) -> tuple[int, str]:
        status, _, text = self.ask("POST", "/add-checkpoint", body)
        return status, text


@contextmanager
def serving(
    folder: Path,
    *logs: Key,
    name: str = NAME,
    port: int = 0,
    deadline_s: float = DEADLINE_S,
    clock: Callable[[], int] = now,
) -> Iterator[Served]:
    """A witness in a folder, made if there is none."""
    if not folder.exists():
        make(folder, name)
    private, key, state = open_folder(folder)
    with Server(("127.0.0.1", port), Witness(private, key, state, logs, clock), deadline_s=deadline_s) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Served(key, state, server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def said(output: str) -> list[dict[str, object]]:
    """The lines of JSON that a program printed."""
    return [json.loads(line) for line in output.splitlines()]
