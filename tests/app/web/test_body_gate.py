"""The gate of bodies alone, with an application inside that behaves as a framework may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import anyio
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.db.database import Database
from app.fence.watching import fenced_context
from app.settings import Settings
from app.web.body_gate import BodyGate

LIMIT = 4096


async def swallowing(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads to the end and turns every exception into an answer of its own."""
    try:
        while (await receive()).get("more_body", False):
            pass
    except Exception:
        await PlainTextResponse("an answer of the framework", 400)(scope, receive, send)
        return
    await PlainTextResponse("read")(scope, receive, send)


async def answering_first(scope: Scope, receive: Receive, send: Send) -> None:
    """Begins its answer before it reads."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await swallowing(scope, receive, lambda message: anyio.sleep(0))
    await send({"type": "http.response.body", "body": b"done"})


def ask(application: ASGIApp, folder: Path, headers: dict[str, str], messages: Iterable[Message]) -> list[Message]:
    """Let the application answer ``messages``; reading past the last one would wait for ever, and fails."""
    settings = Settings(data_dir=folder, max_upload_bytes=LIMIT)
    gate = BodyGate(application, fenced_context(settings, Database("sqlite://")))
    waiting, sent = iter(messages), []
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/datasets",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "state": {"request_id": "req_1"},
    }

    async def receive() -> Message:
        try:
            return next(waiting)
        except StopIteration:
            pytest.fail("read past the end of the body")

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        await gate(scope, receive, send)

    anyio.run(run)
    return sent


def part(size: int, *, last: bool) -> Message:
    return {"type": "http.request", "body": b"x" * size, "more_body": not last}


MULTIPART = {"content-type": "multipart/form-data; boundary=x"}
JSON = {"content-type": "application/json"}


def test_an_upload_up_to_the_limit_passes(tmp_path: Path) -> None:
    sent = ask(swallowing, tmp_path, MULTIPART, [part(LIMIT - 1, last=False), part(1, last=True)])
    assert sent[0]["status"] == 200


@pytest.mark.parametrize("parts", [[part(LIMIT + 1, last=True)], [part(LIMIT, last=False), part(1, last=True)]])
def test_the_answer_to_a_long_upload_is_ours_and_not_the_frameworks(tmp_path: Path, parts: list[Message]) -> None:
    sent = ask(swallowing, tmp_path, MULTIPART, parts)
    assert [message["status"] for message in sent if "status" in message] == [413]


def test_the_rest_of_a_long_body_is_read_so_that_the_client_sees_the_answer(tmp_path: Path) -> None:
    for headers in (MULTIPART, JSON):
        read: list[Message] = []

        def parts(read: list[Message] = read) -> Iterator[Message]:
            for message in (part(2**21, last=False), part(2**21, last=False), part(1, last=True)):
                read.append(message)
                yield message

        assert ask(swallowing, tmp_path, headers, parts())[0]["status"] == 413
        assert len(read) == 3


def test_a_client_that_leaves_gets_no_answer(tmp_path: Path) -> None:
    for headers in (MULTIPART, JSON):
        parts = [part(2**21, last=False), {"type": "http.disconnect"}]
        sent = ask(swallowing, tmp_path, headers, parts)
        assert not sent or sent[0]["status"] == 413
    assert ask(swallowing, tmp_path, JSON, [part(10, last=False), {"type": "http.disconnect"}]) == []


def test_an_answer_that_has_begun_goes_on(tmp_path: Path) -> None:
    sent = ask(answering_first, tmp_path, MULTIPART, [part(LIMIT + 1, last=True)])
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
