"""The HTTP server of a witness. It accepts small requests, few at once, and each must end within some seconds."""

from __future__ import annotations

import io
import json
import socket
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from epsilond_witness.cosigning import MOST_BYTES, Answer, Witness
from epsilond_witness.timed import Timed

#: A connection is closed if no complete request has arrived within this many seconds.
DEADLINE_S = 10.0
MOST_CONNECTIONS = 32
_ADD = "/add-checkpoint"
_CHECKPOINT = "/checkpoint"


class Server(ThreadingHTTPServer):
    """A server of a witness. Connections beyond the limit are closed."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], witness: Witness, *, deadline_s: float = DEADLINE_S) -> None:
        self.witness, self.deadline_s = witness, deadline_s
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread, or close it if too many are open."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the class of a connection's error, and nothing that was sent."""
        _log({"error": type(sys.exception()).__name__})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "epsilond-witness", ""
    server: Server

    def setup(self) -> None:
        super().setup()
        self._timed = Timed(self.rfile.detach(), self.connection, time.monotonic() + self.server.deadline_s)
        self.rfile = io.BufferedReader(self._timed)

    def handle_one_request(self) -> None:
        self._timed.until = time.monotonic() + self.server.deadline_s
        super().handle_one_request()

    def do_POST(self) -> None:
        if self.path != _ADD:
            # The body is not read. The connection must close, since the body would be taken for the next request.
            self.close_connection = True
            self._answer(Answer(404, f"there is nothing at this path; post checkpoints to {_ADD}\n"))
            return
        refusal = self._refusal()
        if refusal is not None:
            self.close_connection = True
            self._answer(refusal)
            return
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        try:
            self._answer(self.server.witness.add_checkpoint(body))
        except sqlite3.Error as error:
            _log(
                {"error": type(error).__name__, "about": "the state was not changed, and no cosignature was given out"}
            )
            self._answer(Answer(503, "the witness cannot write its state; no cosignature was given out\n"))

    def do_GET(self) -> None:
        self.close_connection |= self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers
        origin_hash = self.path.removeprefix("/").removesuffix(_CHECKPOINT)
        if self.path != f"/{origin_hash}{_CHECKPOINT}":
            self._answer(Answer(404, "there is nothing at this path; get /<SHA-256 of a log's name>/checkpoint\n"))
            return
        try:
            self._answer(self.server.witness.checkpoint(origin_hash))
        except sqlite3.Error:
            self._answer(Answer(503, "the witness cannot read its state\n"))

    def _refusal(self) -> Answer | None:
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or len(lengths) != 1:
            return Answer(411, "the request needs one header Content-Length with the length of the body\n")
        if not (lengths[0].isascii() and lengths[0].isdigit()):
            return Answer(400, "the header Content-Length must be a number\n")
        if len(lengths[0]) > 9 or int(lengths[0]) > MOST_BYTES:
            return Answer(413, f"the body of a request may have at most {MOST_BYTES} bytes\n")
        return None

    def _answer(self, answer: Answer) -> None:
        _log({"request": self.command, "status": answer.status} | ({"about": answer.about} if answer.about else {}))
        body = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the base class would log lines that quote what was sent."""


def _log(said: dict[str, Any]) -> None:
    """Write a line of JSON to the log of requests, which is standard error."""
    print(json.dumps(said), file=sys.stderr, flush=True)  # noqa: T201
