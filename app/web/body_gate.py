"""The gate that every request body passes: it checks the size, the content type and the JSON."""

from __future__ import annotations

import re
from email.message import Message as Header

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.context import Context
from app.kit import limits
from app.kit.json_body import read_json
from app.observability.request_id import request_id_of
from app.problems import Problem

#: The paths that take files, for new data sets and for new versions. Dashboard pages forward their bodies to these.
UPLOAD_PATHS = re.compile("/(v1|dashboard)/datasets(/[^/]+/versions)?")
#: The path of the pages; their commands are forms with few short fields.
FORMS = "/dashboard/"
LARGEST_FORM_BYTES = 2**14

#: The bytes that are read and dropped after a body proved too large, so that a client still sending sees the answer.
DRAINED_BYTES = 16 * 2**20

#: Longer bodies are parsed in a thread, so that other requests continue meanwhile.
PARSED_AT_ONCE_BYTES = 2**15


def _takes_files(scope: Scope) -> bool:
    return UPLOAD_PATHS.fullmatch(scope["path"]) is not None


class _TooLarge(Exception):
    pass


class BodyGate:
    """ASGI middleware. JSON bodies are read whole, checked and handed on; uploads are counted while they pass."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self.app = app
        self.context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        try:
            await self._pass(scope, receive, send)
        except Problem as problem:
            await problem.response(request_id_of(scope))(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        media_type = _media_type(headers)
        if media_type == "multipart/form-data" and _takes_files(scope):
            await self._pass_upload(scope, receive, send, headers)
            return
        is_form = media_type == "application/x-www-form-urlencoded" and scope["path"].startswith(FORMS)
        body = await _read(receive, headers, LARGEST_FORM_BYTES if is_form else limits.JSON_BODY_BYTES)
        if body is None:
            return  # The client is gone.
        if body and not is_form:
            _check_is_json(headers, media_type, uploads=_takes_files(scope))
            if len(body) > PARSED_AT_ONCE_BYTES:
                await run_in_threadpool(read_json, body)
            else:
                read_json(body)
        await self.app(scope, _replay(body, receive), send)

    async def _pass_upload(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        limit = self.context.settings.max_upload_bytes
        if _declared_length(headers) > limit:
            raise _upload_too_large(limit)
        received = 0
        exceeded = started = ended = False

        async def counted() -> Message:
            nonlocal received, exceeded, ended
            message = await receive()
            ended = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > limit:
                exceeded = True
                raise _TooLarge
            return message

        async def unless_exceeded(message: Message) -> None:
            # The framework turns the exception above into an answer of its own, which must not be sent.
            nonlocal started
            if not exceeded or started:
                started = True
                await send(message)

        try:
            await self.app(scope, counted, unless_exceeded)
        except _TooLarge:
            if started:
                raise
        if exceeded and not started:
            if not ended:
                await _drain(receive)
            raise _upload_too_large(limit)


async def _read(receive: Receive, headers: Headers, limit: int) -> bytes | None:
    """Read the whole body; None if the client left. More than ``limit`` bytes are refused, whatever the headers say."""
    declared = _declared_length(headers)
    if declared > limit:
        if declared <= DRAINED_BYTES:
            await _drain(receive)
        raise _too_large(limit)
    chunks: list[bytes] = []
    received = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        received += len(chunk)
        if received > limit:
            if message.get("more_body", False):
                await _drain(receive)
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _drain(receive: Receive) -> None:
    drained = 0
    while drained < DRAINED_BYTES:
        message = await receive()
        drained += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives the body once and then waits for the connection's end."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _check_is_json(headers: Headers, media_type: str, *, uploads: bool) -> None:
    if headers.get("content-type") == "application/json" and "content-encoding" not in headers:
        return  # nearly every request sends this
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, "unsupported_media_type", "Send the body without Content-Encoding.")
    charset = _charset(headers)
    if media_type != "application/json" or charset not in ("utf-8", "utf8", ""):
        wanted = "application/json or multipart/form-data" if uploads else "application/json"
        raise Problem(
            415, "unsupported_media_type", f"This call takes {wanted} in UTF-8; set Content-Type accordingly."
        )


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _charset(headers: Headers) -> str:
    header = Header()
    header["content-type"] = headers.get("content-type", "")
    charset = header.get_param("charset", "")
    return charset.strip().lower() if isinstance(charset, str) else "unknown"


def _declared_length(headers: Headers) -> int:
    declared = headers.get("content-length", "")
    return int(declared) if declared.isascii() and declared.isdigit() and len(declared) < 20 else 0


def _upload_too_large(limit: int) -> Problem:
    return _too_large(
        limit,
        " That is this server's setting EPSILOND_MAX_UPLOAD_BYTES, which its operator may raise. The same rows take "
        "less space as compressed NPZ or Parquet, with numbers in the smallest types that hold them: uint8 for pixels, "
        "else float32.",
    )


def _too_large(limit: int, remedy: str = "") -> Problem:
    return Problem(
        413, "body_too_large", f"The body is larger than {limit} bytes.{remedy}", headers={"Connection": "close"}
    )
