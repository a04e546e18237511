"""The use of `app.kit.answer_cache` by endpoints and middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.kit.answer_cache import AnswerCache, Finding, Source
from app.kit.fields import Schema

#: The paths whose answers depend on nothing but the body, unless the body names a budget.
PATHS = frozenset(
    f"/v1/{name}"
    for name in ("account", "advise", "calibrate", "calibrate/events", "convert", "import", "sweep", "tuning-cost")
)

#: Longer bodies are rare, and hashing them would keep the event loop busy.
LARGEST_BODY_BYTES = 2**15

_DIGITS = 6

HEADER = "Cache-Status"
_HIT = (HEADER.lower().encode(), Source.HIT.value.encode())
_JSON = (b"content-type", b"application/json")

_Answer = TypeVar("_Answer", bound=Schema)


class KnownAnswers:
    """ASGI middleware before the gate of bodies. A body that was answered before is answered again without being
    parsed.

    Exactly the same bytes have passed the gate, the schema and the engine before. All other bodies go on to the gate.
    """

    def __init__(self, app: ASGIApp, answers: AnswerCache) -> None:
        self.app = app
        self.answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.answers.entries or scope["type"] != "http" or not _may_be_known(scope):
            await self.app(scope, receive, send)
            return
        messages = await _messages(receive)
        path, body = scope["path"], b"".join(message.get("body", b"") for message in messages)
        spelling = self.answers.spelling(path, body)
        text = self.answers.known(spelling)
        if text is None:
            if messages[-1]["type"] == "http.request" and len(body) <= LARGEST_BODY_BYTES:
                scope["state"]["spelling"] = spelling
            await self.app(scope, _again(messages, receive), send)
            return
        # No route is looked up for such an answer, so its template is given here.
        scope["state"]["route"] = path
        headers = [(b"content-length", str(len(text)).encode()), _JSON, _HIT]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


def _may_be_known(scope: Scope) -> bool:
    """Return whether this is one of the remembered calls, with a short body of plain JSON. The gate decides about all
    others."""
    if scope["method"] != "POST" or scope["path"] not in PATHS or scope["query_string"]:
        return False
    is_json, length = False, 0
    for name, value in scope["headers"]:
        if name == b"content-type":
            is_json = value == b"application/json"
        elif name == b"content-length":
            length = int(value) if value.isdigit() and len(value) < _DIGITS else 0
        elif name == b"content-encoding":
            return False
    return is_json and 0 < length <= LARGEST_BODY_BYTES


async def _messages(receive: Receive) -> list[Message]:
    """Return all messages of a body, until they exceed the limit, or the client is gone."""
    messages, length = [await receive()], 0
    while messages[-1].get("more_body", False):
        length += len(messages[-1].get("body", b""))
        if length > LARGEST_BODY_BYTES:
            break
        messages.append(await receive())
    return messages


def _again(messages: list[Message], receive: Receive) -> Receive:
    """Return a receiver that first gives these messages again."""
    waiting = iter(messages)

    async def again() -> Message:
        message = next(waiting, None)
        return await receive() if message is None else message

    return again


class Answers:
    """The cache, as one request uses it."""

    def __init__(self, cache: AnswerCache, path: str, spelling: bytes | None) -> None:
        self._cache = cache
        self._path = path
        self._spelling = spelling

    async def respond(
        self,
        asked: BaseModel,
        compute: Callable[[], _Answer],
        *,
        is_final: Callable[[_Answer], bool] = lambda _: True,
        is_public: bool = True,
        exclude_unset: bool = False,
        exclude_none: bool = False,
    ) -> Response:
        """Return the response to a request, remembered or computed in a thread.

        Args:
            asked: The request.
            compute: Finds the answer.
            is_final: Returns whether the answer would be the same at any other time.
            is_public: Whether the answer depends on the request only, because it names no budget.
            exclude_unset, exclude_none: What the JSON text leaves out.

        Raises:
            Exception: what ``compute`` raised.
        """

        def find() -> Finding:
            answer = compute()
            text = answer.model_dump_json(by_alias=True, exclude_unset=exclude_unset, exclude_none=exclude_none)
            return Finding(text.encode(), is_public and is_final(answer))

        # A body that names a budget, or is long, is not looked up, and equal requests do not wait for it.
        if self._spelling is None or not is_public:
            text, source = await self._cache.compute_alone(find)
        else:
            key = self._cache.key(self._path, asked.model_dump(mode="json", by_alias=True))
            text, source = await self._cache.answer(key, self._spelling, find)
        return Response(text, media_type="application/json", headers={HEADER: source.value})


async def get_answers(request: Request) -> Answers:
    """Return the application's cache for a request, with the key of the body's bytes if the middleware above left
    one."""
    cache = cast(AnswerCache, request.app.state.answers)
    spelling: bytes | None = getattr(request.state, "spelling", None)
    return Answers(cache, request.scope["path"], spelling)


CurrentAnswers = Annotated[Answers, Depends(get_answers)]
