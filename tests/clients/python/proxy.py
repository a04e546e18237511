"""A proxy before a real server: it passes requests on, loses answers, or answers that the server is not available."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PASS = "pass"
#: The request arrives and is carried out; its answer is lost.
LOSE = "lose"


@dataclass(frozen=True)
class Answer:
    """What the proxy says itself; the request does not arrive."""

    status: int
    code: str | None = None
    retry_after: int | None = None
    location: str | None = None


@dataclass
class Proxy:
    """What was asked, and what becomes of the next requests; those beyond the script pass.

    Attributes:
        url: Where it listens.
        script: For the next requests, one after the other.
        rules: For every request whose path ends so; they come before the script.
        seen: Method, path and idempotency key of each request, in their order.
    """

    url: str
    script: list[str | Answer] = field(default_factory=list)
    rules: dict[str, str | Answer] = field(default_factory=dict)
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)

    def action(self, path: str) -> str | Answer:
        """What becomes of a request."""
        for ending, action in self.rules.items():
            if path.endswith(ending):
                return action
        return self.script.pop(0) if self.script else PASS


@contextmanager
def proxy_before(upstream: str) -> Iterator[Proxy]:
    """A proxy of a server's address."""
    target = urlsplit(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def do_DELETE(self) -> None:
            self._handle()

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            proxy.seen.append((self.command, self.path, self.headers.get("Idempotency-Key")))
            action = proxy.action(self.path)
            if isinstance(action, Answer):
                self._say(action)
                return
            connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
            names = ("Content-Type", "Idempotency-Key", "Authorization", "Accept")
            headers = {name: self.headers[name] for name in names if name in self.headers}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if action == LOSE:
                self.close_connection = True
                return
            self._send(answer.status, answer.headers.get_content_type(), content, {})

        def _say(self, action: Answer) -> None:
            given = {"Retry-After": action.retry_after, "Location": action.location}
            headers = {name: str(value) for name, value in given.items() if value is not None}
            if action.code is None:
                self._send(action.status, "text/html", b"<h1>bad gateway</h1>", headers)
                return
            problem = {"status": action.status, "code": action.code, "detail": "said by the proxy", "errors": []}
            self._send(action.status, "application/problem+json", json.dumps(problem).encode(), headers)

        def _send(self, status: int, media_type: str, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
