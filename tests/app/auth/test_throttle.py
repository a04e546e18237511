"""What is beyond a key's limits is answered 429 with what is left, and nobody else hears of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from app.auth import service, throttle
from app.auth.buckets import TokenBucket
from app.auth.failures import MOST_PEERS, FailedAttempts
from app.auth.guard import Guard
from app.auth.principal import LOOPBACK, Principal
from app.auth.principal import Scope as KeyScope
from app.auth.throttle import Throttle
from app.context import Context
from app.fence.watching import fenced_context
from app.main import create_app
from app.problems import Problem
from app.settings import Settings
from tests.app.conftest import BASE_URL, ConnectAs
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine
from tests.local_access import local_client

ALICE, BOB = Principal("key_a", frozenset()), Principal("key_b", frozenset())


class Server:
    """The middleware before an endpoint that answers when it is told to, at a time that the test sets."""

    def __init__(self, context: Context, rate: float, number: int) -> None:
        settings = context.settings.model_copy(update={"requests_per_second": rate, "concurrent_requests": number})
        self.now = 0.0
        self.may_end = asyncio.Event()
        self.media_type = "application/json"
        self.throttle = Throttle(self._answer, fenced_context(settings, context.database), lambda: self.now)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def parts() -> Any:
            yield b"{}"
            await self.may_end.wait()

        await StreamingResponse(parts(), media_type=self.media_type)(scope, receive, send)

    async def ask(self, principal: Principal | None = ALICE, path: str = "/v1/runs") -> dict[str, Any]:
        """The answer's head."""
        state: dict[str, Any] = {"request_id": "req_1", "principal": principal}
        scope = {"type": "http", "path": path, "state": state, "method": "GET", "headers": []}
        head: dict[str, Any] = {}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                fields = {name.decode(): value.decode() for name, value in message["headers"]}
                head.update(fields, status=message["status"])

        async def receive() -> Any:
            await asyncio.Event().wait()

        await self.throttle(scope, receive, send)
        return head


async def settle() -> None:
    """Let every task go on until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


@on_one_engine
def test_requests_beyond_the_rate_wait_as_they_are_told(context: Context) -> None:
    async def test() -> None:
        server = Server(context, 2.0, 0)
        server.may_end.set()
        answers = [await server.ask() for _ in range(5)]
        assert [answer["status"] for answer in answers] == [200, 200, 200, 200, 429]
        assert answers[0]["ratelimit-policy"] == '"requests";q=4;w=2'
        assert [answer["ratelimit"] for answer in answers[:2]] == ['"requests";r=3;t=1', '"requests";r=2;t=1']
        assert (answers[4]["ratelimit"], answers[4]["retry-after"]) == ('"requests";r=0;t=2', "1")
        assert (await server.ask(BOB))["status"] == 200, "another key has limits of its own"
        assert (await server.ask(None))["status"] == 200, "what is open to everybody is not limited"
        assert (await server.ask(path="/docs"))["status"] == 200
        server.now += 0.5
        assert [(await server.ask())["status"] for _ in range(2)] == [200, 429]

    run(test)


@on_one_engine
def test_a_key_has_limits_of_its_own_and_zero_is_none(context: Context) -> None:
    async def test() -> None:
        server = Server(context, 1.0, 1)
        server.may_end.set()
        free = Principal("key_f", frozenset(), requests_per_second=0.0, concurrent_requests=0)
        answers = [await server.ask(free) for _ in range(50)]
        assert {answer["status"] for answer in answers} == {200}
        assert "ratelimit" not in answers[0]
        slow = Principal("key_s", frozenset(), requests_per_second=0.1)
        answers = [await server.ask(slow) for _ in range(2)]
        assert [answer["status"] for answer in answers] == [200, 429]
        assert answers[1]["retry-after"] == "10"
        assert answers[1]["ratelimit-policy"] == '"requests";q=1;w=10, "concurrent";q=1;qu="concurrent-requests"'

    run(test)


@on_one_engine
def test_so_many_requests_at_once_and_each_frees_its_place_however_it_ends(context: Context) -> None:
    async def test() -> None:
        server = Server(context, 0.0, 2)
        under_way = [asyncio.create_task(server.ask()) for _ in range(2)]
        await settle()
        refused = await server.ask()
        assert (refused["status"], refused["retry-after"], refused["ratelimit"]) == (429, "1", '"concurrent";r=0')
        under_way[0].cancel()
        await settle()
        third = asyncio.create_task(server.ask())
        await settle()
        assert not third.done(), "who left has made room"
        server.may_end.set()
        assert [(await task)["status"] for task in (under_way[1], third)] == [200, 200]
        assert (await server.ask())["status"] == 200

    run(test)


@on_one_engine
def test_a_stream_of_events_does_not_take_a_place(context: Context) -> None:
    async def test() -> None:
        server = Server(context, 0.0, 1)
        server.media_type = "text/event-stream"
        streams = []
        for _ in range(5):
            streams.append(asyncio.create_task(server.ask()))
            await settle()
        server.media_type = "application/json"
        plain = asyncio.create_task(server.ask())
        await settle()
        assert not any(task.done() for task in (*streams, plain))
        assert (await server.ask())["status"] == 429
        server.may_end.set()
        assert [(await task)["status"] for task in (*streams, plain)] == [200] * 6
        server.may_end.clear()
        plain = asyncio.create_task(server.ask())
        await settle()
        refused = asyncio.create_task(server.ask())
        await settle()
        assert refused.done(), "no place was given back twice"
        assert refused.result()["status"] == 429
        server.may_end.set()
        assert (await plain)["status"] == 200

    run(test)


@on_one_engine
def test_of_many_keys_those_that_ask_nothing_are_forgotten_and_no_other(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "_MOST", 1)

    async def test() -> None:
        server = Server(context, 0.0, 1)
        under_way = asyncio.create_task(server.ask())
        await settle()
        for name in ("key_b", "key_c"):
            other = asyncio.create_task(server.ask(Principal(name, frozenset())))
            await settle()
            other.cancel()
            await settle()
        assert {"key_a", "key_c"} == server.throttle._uses.keys()
        assert (await server.ask())["status"] == 429
        server.may_end.set()
        await under_way

    run(test)


@given(st.floats(0.01, 1000), st.lists(st.floats(0, 3), max_size=60))
def test_a_bucket_never_gives_more_than_flowed_in(rate: float, pauses: list[float]) -> None:
    bucket, now, taken = TokenBucket(rate, max(1.0, 2 * rate), 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        taken += bucket.take(now)
        assert taken <= bucket.capacity + rate * now + 1e-6
        assert 0 <= bucket.left() <= bucket.capacity
        wait = bucket.seconds_until(1.0)
        assert bucket.left() >= 1 or wait >= 1


def refusal() -> Problem:
    return Problem(401, "invalid_key", "The key is unknown.")


def test_failed_attempts_are_counted_by_address_in_bounded_memory() -> None:
    now = [0.0]
    attempts = FailedAttempts(6, lambda: now[0])
    told = [attempts.count(("2001:db8::1", 1), refusal()).status for _ in range(7)]
    assert told == [401] * 6 + [429]
    assert attempts.is_suspect(("2001:db8::ffff", 2)), "another address of the same network"
    assert not attempts.is_suspect(("2001:db9::1", 1))
    now[0] += 10
    assert not attempts.is_suspect(("2001:db8::1", 1))
    assert [attempts.count(("2001:db8::1", 1), refusal()).status for _ in range(2)] == [401, 429]
    for number in range(MOST_PEERS + 10):
        attempts.count((f"198.51.{number // 256}.{number % 256}", 1), refusal())
    assert len(attempts._buckets) == MOST_PEERS
    assert next(iter(attempts._buckets)) == "198.51.0.10", "whoever was not heard of for longest is forgotten"
    assert FailedAttempts(0).count(("192.0.2.1", 1), refusal()).status == 401


def test_who_tries_keys_is_told_429_and_a_valid_key_from_there_is_answered(
    context: Context, settings: Settings
) -> None:
    created = service.create_key(context, "valid", [KeyScope.ANALYST])
    assert created is not None
    limited = fenced_context(settings.model_copy(update={"failed_authentications_per_minute": 5}), context.database)
    client = local_client(create_app(limited))

    def ask(token: str) -> Any:
        return client.get("/v1/keys/self", headers={"Authorization": f"Bearer {token}"})

    wrong = created.token[:-1] + ("a" if created.token[-1] != "a" else "b")
    assert [ask(wrong).status_code for _ in range(6)] == [401] * 5 + [429]
    refused = ask(wrong)
    body = assert_problem(refused, 429, "too_many_requests")
    assert created.token[-52:] not in refused.text
    assert int(refused.headers["retry-after"]) >= 1
    assert "A valid key is still accepted" in body["detail"]
    assert ask(created.token).status_code == 200
    assert client.get("/v1/keys/self").status_code == 429, "no key at all counts as well"
    assert client.get("/health/live").status_code == 200


@on_one_engine
def test_keys_from_where_too_many_were_wrong_are_looked_up_two_at_a_time(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, looked_up = ("192.0.2.1", 50000), threading.Event()

    async def answer(_scope: Any, _receive: Any, _send: Any) -> None: ...

    def look_up(_: Scope) -> Principal:
        assert looked_up.wait(30)
        return LOOPBACK

    async def test() -> None:
        guard = Guard(answer, context)
        while not guard.failures.is_suspect(client):
            guard.failures.count(client, refusal())
        monkeypatch.setattr(guard, "_admit", look_up)
        headers = [(b"authorization", b"Bearer x")]
        scope = {"type": "http", "method": "GET", "path": "/v1/keys", "headers": headers, "client": client}
        asked = [asyncio.create_task(guard({**scope, "state": {}}, answer, answer)) for _ in range(5)]  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(10):
                while guard._suspects.statistics().tasks_waiting < 3:
                    await asyncio.sleep(0)
            assert guard._suspects.statistics().borrowed_tokens == 2
        finally:
            looked_up.set()
            await asyncio.gather(*asked)

    run(test)


@on_one_engine
def test_what_is_refused_for_another_reason_is_no_failed_attempt(context: Context, settings: Settings) -> None:
    limited = fenced_context(settings.model_copy(update={"failed_authentications_per_minute": 1}), context.database)
    client = TestClient(create_app(limited), base_url=BASE_URL, client=("192.0.2.1", 50000))
    for _ in range(3):
        assert_problem(client.get("/v1/keys/self"), 403, "loopback_only")


def test_the_limits_of_a_stored_key_hold_over_http(context: Context, connect: ConnectAs) -> None:
    created = service.create_key(context, "slow", [KeyScope.ANALYST], requests_per_second=0.001)
    assert created is not None
    client = connect(headers={"Authorization": f"Bearer {created.token}"})
    assert client.get("/v1/keys/self").json()["requests_per_second"] == 0.001
    refused = client.get("/v1/keys/self")
    assert_problem(refused, 429, "too_many_requests")
    assert refused.headers["ratelimit-policy"].startswith('"requests";q=1;w=1000')
    for path in ("/health/live", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 200
