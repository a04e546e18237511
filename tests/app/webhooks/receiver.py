"""A real receiver on a socket, that answers as a test tells it to, and keeps what it was sent."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Received:
    """One request."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        """The JSON in it."""
        return json.loads(self.body)


@dataclass
class Receiver:
    """What was received, and what is answered: bytes, None to close without an answer, or seconds to wait before."""

    port: int
    answer: bytes | float | None = b"HTTP/1.1 204 No Content\r\n\r\n"
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def receiving(certificate: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver that listens until the block ends; over TLS where it has a certificate."""
    listening = socket.create_server(("127.0.0.1", 0))
    receiver, over = Receiver(listening.getsockname()[1]), threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            if certificate is not None:
                try:
                    connection = certificate.wrap_socket(connection, server_side=True)
                except OSError:
                    connection.close()
                    continue
            threading.Thread(target=_answer, args=(receiver, connection, over), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _answer(receiver: Receiver, connection: socket.socket, over: threading.Event) -> None:
    with connection, connection.makefile("rb") as stream:
        line = stream.readline().decode()
        headers = {}
        while (header := stream.readline().decode().strip()) != "":
            name, _, value = header.partition(": ")
            headers[name.lower()] = value
        body = stream.read(int(headers["content-length"]))
        answer = receiver.answer
        receiver.received.append(Received(line.split()[1], headers, body))
        if isinstance(answer, float):
            over.wait(answer)
        elif answer is not None:
            connection.sendall(answer)
