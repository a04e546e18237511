"""What a client may do with its connection: on real sockets, looked at with a clock of the test's own."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from app import connections
from app.connections import BODY_BYTES_PER_S, BODY_S, FILES, HEAD_S, OTHER_FILES, UNREAD_S, Connection
from app.server import listen

#: Longer than every buffer between the two ends of a connection.
LONG_ANSWER = b"x" * 2**25
CHUNK = 2**16
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@dataclass
class Application:
    """Answers what it is asked; keeps what it heard."""

    bodies: list[bytes] = field(default_factory=list)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await self.go_on.wait()
        body = b""
        while scope["path"] != "/unread":
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected.set()
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.bodies.append(body)
        answer = LONG_ANSWER if scope["path"] == "/long" else b"ok"
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(answer), CHUNK):
            await send({"type": "http.response.body", "body": answer[start : start + CHUNK], "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@dataclass
class Server:
    """One that listens; the test looks for slow clients, and says what time it is."""

    application: Application
    state: ServerState
    port: int

    def look(self, now: float) -> None:
        connections.end_overdue(self.state.connections, now)

    async def received(self, count: int) -> Connection:
        """The one connection, once so many bytes have come on it."""

        def has_come() -> bool:
            return any(connection._received == count for connection in self.of_clients())

        await until(has_come)
        [connection] = self.of_clients()
        return connection

    def of_clients(self) -> list[Connection]:
        return [connection for connection in self.state.connections if isinstance(connection, Connection)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    application, state = Application(), ServerState()
    config = uvicorn.Config(application, http=Connection, log_config=None, lifespan="off", ws="none", access_log=False)
    config.load()
    loop = asyncio.get_running_loop()
    listening = listen("127.0.0.1", 0)
    server = await loop.create_server(lambda: Connection(config, state, {}, loop), sock=listening)
    try:
        yield Server(application, state, listening.getsockname()[1])
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()  # type: ignore[union-attr]
        await until(lambda: not state.connections and not state.tasks)


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """The body of the next answer, which is complete."""
        async with asyncio.timeout(30):
            head = await self.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Everything until the server hangs up."""
        async with asyncio.timeout(30):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


def run(test: Callable[[Server, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with serving() as server, client_of(server) as client:
            await test(server, client)

    asyncio.run(main())


def problem(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    for line in (
        b"connection: close",
        b"cache-control: no-store",
        b"x-content-type-options: nosniff",
        b"x-request-id: ",
    ):
        assert line in head.lower()
    document = json.loads(body)
    assert int(head.split()[1]) == document["status"]
    return document["status"], document["code"]


def test_a_connection_on_which_nothing_comes_is_closed() -> None:
    async def test(server: Server, client: Client) -> None:
        await until(lambda: len(server.of_clients()) == 1)
        server.look(0.0)
        server.look(HEAD_S)
        assert len(server.of_clients()) == 1
        server.look(HEAD_S + 0.1)
        assert await client.rest() == b""

    run(test)


@pytest.mark.parametrize("answered_before", [0, 1])
def test_a_head_that_trickles_is_answered_408_in_the_end(answered_before: int) -> None:
    async def test(server: Server, client: Client) -> None:
        await client.send(REQUEST * answered_before)
        for _ in range(answered_before):
            assert await client.answer() == b"ok"
        for second, byte in enumerate(REQUEST[: int(HEAD_S) + 1]):
            await client.send(bytes([byte]))
            await server.received(len(REQUEST) * answered_before + second + 1)
            server.look(float(second))
        server.look(HEAD_S + 0.1)
        assert problem(await client.rest()) == (408, "request_timeout")

    run(test)


def test_a_client_that_asks_nothing_more_has_the_time_between_two_requests() -> None:
    async def test(server: Server, client: Client) -> None:
        await client.send(REQUEST)
        assert await client.answer() == b"ok"
        server.look(0.0)
        server.look(10 * HEAD_S)
        await client.send(REQUEST)
        assert await client.answer() == b"ok"

    run(test)


def test_a_body_that_trickles_is_answered_408_and_its_application_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # The application is told at once, and not by the end of the connection.
    monkeypatch.setattr(connections, "LINGER_S", 1000.0)

    async def test(server: Server, client: Client) -> None:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
        await client.send(head)
        for second in range(int(BODY_S) + 1):
            await server.received(len(head) + second)
            server.look(float(second))
            await client.send(b"x")
        await server.received(len(head) + int(BODY_S) + 1)
        server.look(BODY_S + 0.5)
        assert problem(await client.rest()) == (408, "request_timeout")
        await asyncio.wait_for(server.application.disconnected.wait(), 30)
        assert server.application.bodies == []

    run(test)


def test_what_came_with_an_earlier_request_gives_a_body_no_more_time() -> None:
    async def test(server: Server, client: Client) -> None:
        long = 100 * BODY_BYTES_PER_S
        earlier = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {long}\r\n\r\n".encode() + b"x" * long
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"
        await client.send(earlier)
        assert await client.answer() == b"ok"
        await client.send(head)
        await server.received(len(earlier) + len(head))
        server.look(0.0)
        server.look(BODY_S + 0.1)
        assert problem(await client.rest()) == (408, "request_timeout")

    run(test)


def test_a_body_that_comes_slowly_but_comes_has_all_the_time_it_needs() -> None:
    async def test(server: Server, client: Client) -> None:
        a_minutes, minutes = 60 * BODY_BYTES_PER_S, 10
        head = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {a_minutes * minutes}\r\n\r\n".encode()
        await client.send(head)
        await server.received(len(head))
        for minute in range(minutes):
            server.look(60.0 * minute)
            await client.send(b"x" * a_minutes)
            await server.received(len(head) + a_minutes * (minute + 1))
        assert await client.answer() == b"ok"
        assert server.application.bodies == [b"x" * a_minutes * minutes]

    run(test)


def test_nobody_is_hurried_who_waits_for_the_server() -> None:
    async def test(server: Server, client: Client) -> None:
        # The application does not read yet: the client may not send more than the buffers hold.
        content = b"x" * 2**22
        head = f"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        sending = asyncio.create_task(client.send(head + content))
        await until(lambda: any(connection.flow.read_paused for connection in server.of_clients()))
        server.look(0.0)
        server.look(100 * BODY_S)
        server.application.go_on.set()
        assert await client.answer() == b"ok"
        await sending
        assert server.application.bodies == [content]

    run(test)


def test_a_client_that_waits_to_be_asked_for_its_body_owes_nothing() -> None:
    async def test(server: Server, client: Client) -> None:
        head = b"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        await client.send(head)
        await server.received(len(head))
        server.look(0.0)
        server.look(100 * BODY_S)
        server.application.go_on.set()
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await client.send(b"{}")
        assert await client.answer() == b"ok"

    run(test)


def test_a_client_that_reads_nothing_loses_its_answer_and_one_that_reads_slowly_does_not() -> None:
    async def test(server: Server, client: Client) -> None:
        await client.send(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: any(connection.flow.write_paused for connection in server.of_clients()))
        [connection] = server.of_clients()
        got = 0
        for look in range(4):
            server.look(look * UNREAD_S)
            unread = connection.transport.get_write_buffer_size()  # type: ignore[union-attr]
            while connection.transport.get_write_buffer_size() == unread:  # type: ignore[union-attr]
                piece = await client.reader.read(CHUNK)
                assert piece, "the answer was given up"
                got += len(piece)
        server.look(4 * UNREAD_S)
        server.look(5 * UNREAD_S + 0.1)
        assert got + len(await client.rest()) < len(LONG_ANSWER)
        await until(lambda: not server.state.tasks)

    run(test)


def test_the_system_asks_whether_a_silent_client_is_still_there() -> None:
    options = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        values = [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in options]
    assert values == [connections.PROBE_AFTER_S, connections.PROBE_EVERY_S, connections.PROBES]


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a client that speaks TLS\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nName : before the colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nName: \0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffffffffff\r\n",
    ],
)
def test_what_is_not_http_is_a_problem_of_the_usual_form(content: bytes) -> None:
    async def test(server: Server, client: Client) -> None:
        await client.send(content)
        assert problem(await client.rest()) == (400, "malformed_request")
        assert server.application.bodies == []

    run(test)


@pytest.mark.parametrize("fields", [b"Name: " + b"x" * 2**15, b"X: y\r\n" * 2**12])
def test_a_long_head_is_431_and_its_client_hears_it_even_if_it_sends_on(fields: bytes) -> None:
    async def test(server: Server, client: Client) -> None:
        head = b"GET / HTTP/1.1\r\nHost: a\r\n" + fields
        await client.send(head)
        await server.received(len(head))
        await client.send(fields)
        await server.received(len(head + fields))
        assert problem(await client.rest()) == (431, "head_too_large")

    run(test)


@pytest.mark.parametrize("first", ["Content-Length: 6", "Transfer-Encoding: chunked"])
def test_a_second_request_inside_a_body_of_two_lengths_is_never_answered(first: str) -> None:
    both = {"Content-Length: 6", "Transfer-Encoding: chunked"}
    lines = ["POST / HTTP/1.1", "Host: a", first, *(both - {first}), "", ""]

    async def test(server: Server, client: Client) -> None:
        await client.send("\r\n".join(lines).encode() + b"0\r\n\r\n" + REQUEST)
        answers = await client.rest()
        assert problem(answers) == (400, "malformed_request")
        assert answers.count(b"HTTP/1.1 ") == 1
        assert server.application.bodies == []

    run(test)


def test_requests_that_are_sent_at_once_are_answered_one_after_the_other() -> None:
    async def test(server: Server, client: Client) -> None:
        bodies = [f"number {number}".encode() for number in range(20)]
        await client.send(
            b"".join(
                f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies
            )
        )
        for _ in bodies:
            assert await client.answer() == b"ok"
        assert server.application.bodies == bodies

    run(test)


def test_a_bad_chunk_behind_an_answer_closes_the_connection_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: Server, client: Client) -> None:
        await client.send(b"POST /unread HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert await client.answer() == b"ok"
        await client.send(b"xyz\r\n")
        assert await client.rest() == b""

    with caplog.at_level(logging.DEBUG):
        run(test)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "clients"),
    [
        (1024, 4096, 4096, 4096 - OTHER_FILES),
        (1024, 1 << 20, FILES, FILES - OTHER_FILES),
        (1024, resource.RLIM_INFINITY, FILES, FILES - OTHER_FILES),
        (1 << 20, 1 << 20, None, (1 << 20) - OTHER_FILES),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, FILES - OTHER_FILES),
    ],
)
def test_the_limit_of_files_is_raised_and_some_are_not_for_clients(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, clients: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(connections.resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    connections.allow_many_files()
    assert limits[1:] == ([] if raised is None else [(raised, hard)])
    assert connections.most_connections() == clients


def test_connections_beyond_the_files_that_may_be_open_are_closed_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 2)

    async def test(server: Server, client: Client) -> None:
        async with client_of(server) as second, client_of(server) as third:
            assert await third.rest() == b""
            for other in (client, second):
                await other.send(REQUEST)
                assert await other.answer() == b"ok"
        await until(lambda: len(server.of_clients()) == 1)
        async with client_of(server) as later:
            await later.send(REQUEST)
            assert await later.answer() == b"ok"

    run(test)
