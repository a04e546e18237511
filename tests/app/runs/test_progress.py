"""`/v1/runs/{id}/events`: what is sent and when, to how many, and that nobody who only listens holds anything up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import event, update

from app.auth import local_token
from app.main import create_app
from app.runs import progress
from app.runs.progress import ProgressFeed
from app.tables.runs import Run
from app.tables.states import RunState
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

INTERVAL_S = 0.1


class Stream:
    """One client, at the application itself: what it was sent and when."""

    def __init__(self, run: dict[str, Any], *, peer: str = "127.0.0.1", headers: dict[str, str] | None = None) -> None:
        named = {"host": "127.0.0.1", **(headers or {})}
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": f"/v1/runs/{run['id']}/events",
            "raw_path": b"",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
            "client": (peer, 50000),
            "server": ("127.0.0.1", 8000),
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "state": {},
        }
        self._gone = asyncio.Event()
        self._asked = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.sent: list[tuple[float, bytes]] = []
        self.started = asyncio.Event()

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["body"]:
            self.sent.append((time.monotonic(), message["body"]))
        if self.sent or self.status >= 204:
            self.started.set()

    def hang_up(self) -> None:
        self._gone.set()

    @property
    def body(self) -> str:
        return b"".join(body for _, body in self.sent).decode()

    @property
    def events(self) -> list[dict[str, str]]:
        """The messages with their fields, comments and the client's waiting time left out."""
        found = [
            dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            for block in self.body.split("\n\n")
        ]
        return [fields for fields in found if "data" in fields]

    @property
    def data(self) -> list[dict[str, Any]]:
        return [json.loads(fields["data"]) for fields in self.events]

    @asynccontextmanager
    async def open(self, app: FastAPI) -> AsyncIterator[asyncio.Task[None]]:
        """Send the request, with the token of a service without keys where the test shows nothing else."""
        scope, token = self._scope, local_token.read(app.state.context.settings)
        if token is not None and b"authorization" not in dict(scope["headers"]):
            scope = scope | {"headers": [*scope["headers"], (b"authorization", f"Bearer {token}".encode())]}
        task = asyncio.create_task(app(scope, self._receive, self._send))
        try:
            await asyncio.wait_for(self.started.wait(), 5)
            yield task
        finally:
            self.hang_up()
            await asyncio.wait_for(task, 5)


@pytest.fixture
def app(service) -> FastAPI:
    application = create_app(service.context)
    application.state.progress = ProgressFeed(service.context, interval_s=INTERVAL_S, keep_alive_s=0.25)
    return application


@pytest.fixture
def run(service) -> dict[str, Any]:
    return service.queued(dataset_id="ds_breast_cancer")


def change(service, run: dict[str, Any], state: RunState, done: int = 0) -> None:
    with service.context.database.write() as session:
        session.execute(update(Run).where(Run.id == run["id"]).values(state=state, steps_done=done))


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 20))


def test_a_stream_ends_with_the_final_state(service, app, run):
    async def scene() -> None:
        stream = Stream(run)
        async with stream.open(app) as task:
            await asyncio.to_thread(service.work)
            await asyncio.wait_for(task, 5)
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert (stream.headers["cache-control"], stream.headers["x-accel-buffering"]) == ("no-store", "no")
        assert stream.body.startswith("retry: 3000\n\n")
        assert [fields["event"] for fields in stream.events][-1] == "end"
        assert {fields["event"] for fields in stream.events[:-1]} == {"progress"}
        answer = service.get(f"/v1/runs/{run['id']}")
        assert stream.data[-1] == {name: answer[name] for name in ("id", "state", "progress", "problem")}
        assert stream.data[-1]["state"] == "succeeded"

    play(scene())


@on_one_engine
def test_messages_come_once_in_an_interval_at_most_and_only_for_news(service, app, run):
    async def scene() -> None:
        stream = Stream(run)
        # The looks go on since somebody else listens: the first is soon after the stream's first message.
        async with Stream(run).open(app):
            await asyncio.sleep(INTERVAL_S * 0.7)
            async with stream.open(app) as task:
                for done in range(1, 21):
                    change(service, run, RunState.RUNNING, done)
                    await asyncio.sleep(INTERVAL_S / 5)
                change(service, run, RunState.CANCELLED, 20)
                await asyncio.wait_for(task, 5)
        told = [moment for moment, body in stream.sent if b"data:" in body]
        assert 3 <= len(told) < 20
        assert min(later - earlier for earlier, later in pairwise(told)) > 0.9 * INTERVAL_S
        counted = [message["progress"]["done"] for message in stream.data]
        assert counted == sorted(counted)
        assert len({fields["id"] for fields in stream.events}) == len(stream.events)

    play(scene())


@on_one_engine
def test_many_listeners_share_one_look_an_interval_and_no_thread(service, app, run):
    other = service.queued(dataset_id="ds_breast_cancer")
    app.state.progress = ProgressFeed(service.context, interval_s=INTERVAL_S, per_key=300)
    looks: list[str] = []

    async def scene() -> None:
        streams = [Stream(each) for each in (run, other) for _ in range(50)]
        tasks = [asyncio.create_task(_heard(stream, app)) for stream in streams]
        while len(app.state.progress._listeners) < len(streams):
            await asyncio.sleep(0.01)

        def note(*arguments: Any) -> None:
            looks.append(arguments[2])

        event.listen(service.context.database.engine, "before_cursor_execute", note)
        began = time.monotonic()
        await asyncio.sleep(6 * INTERVAL_S)
        passed, seen = time.monotonic() - began, list(looks)
        event.remove(service.context.database.engine, "before_cursor_execute", note)
        selects = [statement for statement in seen if "FROM runs" in statement]
        assert 1 <= len(selects) <= passed / INTERVAL_S + 1
        # Every one of them hears the end, though there are not half as many threads.
        for each in (run, other):
            change(service, each, RunState.SUCCEEDED, 20)
        await asyncio.gather(*tasks)
        assert {stream.data[-1]["state"] for stream in streams} == {"succeeded"}

    play(scene())


async def _heard(stream: Stream, app: FastAPI) -> None:
    async with stream.open(app) as task:
        await task


@on_one_engine
def test_who_comes_back_is_not_told_again_what_was_heard(service, app, run):
    async def scene() -> None:
        back = Stream(run, headers={"last-event-id": "queued-0"})
        async with back.open(app):
            await asyncio.sleep(2 * INTERVAL_S)
            assert back.events == []
            change(service, run, RunState.FAILED, 3)
            await asyncio.sleep(4 * INTERVAL_S)
        assert [fields["id"] for fields in back.events] == ["failed-3"]
        done = Stream(run, headers={"last-event-id": "failed-3"})
        async with done.open(app):
            pass
        assert (done.status, done.body) == (204, "")  # which tells a browser not to come back
        odd = Stream(run, headers={"last-event-id": "x" * 3000})
        async with odd.open(app) as task:
            await task
        assert [fields["event"] for fields in odd.events] == ["end"]

    play(scene())


@on_one_engine
def test_limits_of_streams_are_429_and_a_stream_that_closes_makes_room(service, app, run):
    for limits, words in (({"per_key": 2}, "This key has 2"), ({"in_all": 2}, "This server has 2")):
        app.state.progress = ProgressFeed(service.context, interval_s=INTERVAL_S, **limits)

        async def scene(words: str = words) -> None:
            first, second, third = (Stream(run) for _ in range(3))
            async with first.open(app), second.open(app):
                async with third.open(app):
                    pass
                assert third.status == 429
                problem = json.loads(third.body)
                assert problem["code"] == "too_many_listeners"
                assert words in problem["detail"]
                assert int(third.headers["retry-after"]) > 0
            fourth = Stream(run)
            async with fourth.open(app):
                assert fourth.status == 200
            assert not app.state.progress._listeners

        play(scene())


@on_one_engine
def test_a_client_that_hangs_up_is_noticed_and_the_last_one_ends_the_looking(service, app, run):
    async def scene() -> None:
        stream = Stream(run)
        async with stream.open(app) as task:
            assert app.state.progress._task is not None
            stream.hang_up()
            await asyncio.wait_for(task, 1)
        assert not app.state.progress._listeners
        assert app.state.progress._task is None

    play(scene())


@on_one_engine
def test_comments_keep_a_quiet_stream_alive_and_it_ends_when_its_time_is_over(service, app, run):
    app.state.progress = ProgressFeed(service.context, interval_s=0.02, keep_alive_s=0.05, max_stream_s=1.0)

    async def scene() -> None:
        stream = Stream(run)
        async with stream.open(app) as task:
            await asyncio.wait_for(task, 10)
        assert stream.body.count(": keep-alive\n\n") >= 2
        assert len(stream.events) == 1

    play(scene())


@on_one_engine
def test_a_server_that_stops_ends_every_stream_at_once(service, app, run):
    async def scene() -> None:
        stream = Stream(run)
        async with stream.open(app) as task:
            app.state.progress.close()
            await asyncio.wait_for(task, 0.1)
        late = Stream(run)
        async with late.open(app) as task:
            await asyncio.wait_for(task, 0.1)
        assert late.events == []

    play(scene())


@on_one_engine
def test_neither_a_database_that_is_away_for_a_while_nor_a_fault_of_ours_ends_a_stream(service, app, run, monkeypatch):
    read = ProgressFeed._read
    failures = iter([progress.DATABASE_FAILURES[1], ValueError])

    def sometimes(self: ProgressFeed, run_ids: list[str]) -> Any:
        if (failure := next(failures, None)) is not None:
            raise failure("gone")
        return read(self, run_ids)

    monkeypatch.setattr(ProgressFeed, "_read", sometimes)

    async def scene() -> None:
        stream = Stream(run)
        async with stream.open(app) as task:
            change(service, run, RunState.SUCCEEDED, 20)
            await asyncio.wait_for(task, 5)
        assert stream.data[-1]["state"] == "succeeded"

    play(scene())


def test_a_run_that_is_not_there_is_404(service):
    assert_problem(service.client.get("/v1/runs/run_nothing/events"), 404, "not_found")
    run = service.queued(dataset_id="ds_breast_cancer")
    service.work()
    assert "event: end" in service.client.get(f"/v1/runs/{run['id']}/events").text
    assert service.client.get(f"/v1/runs/{run['id']}/events?every=1").status_code == 422
