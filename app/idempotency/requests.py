"""The header Idempotency-Key of a request, and what makes two requests the same."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Depends, Header
from pydantic import BaseModel
from starlette.responses import JSONResponse

from app.context import Context
from app.idempotency.once import Keyed
from app.idempotency.records import Answer
from app.problems import Problem, ProblemItem
from app.tables.idempotency import MAX_KEY_LENGTH


def _check_key(key: str) -> str:
    if not 1 <= len(key) <= MAX_KEY_LENGTH or not key.isascii() or not key.isprintable():
        raise _header_problem(
            "idempotency_key_invalid",
            f"The header Idempotency-Key must have 1 to {MAX_KEY_LENGTH} printable ASCII characters.",
        )
    return key


def _header_problem(code: str, detail: str) -> Problem:
    return Problem(400, code, detail, errors=[ProblemItem(pointer="/header/Idempotency-Key", code=code, detail=detail)])


KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description=f"Any text of 1 to {MAX_KEY_LENGTH} characters, new for each command: the same request sent again "
        "with the same key gets the same answer and has no second effect.",
    ),
]


async def optional_idempotency_key(key: KeyHeader = None) -> str | None:
    """Return the key of a request that needs none, such as a dry run."""
    return None if key is None else _check_key(key)


async def required_idempotency_key(key: KeyHeader = None) -> str:
    """Return the key; 400 if it is missing."""
    if key is None:
        raise missing_key()
    return _check_key(key)


def missing_key() -> Problem:
    """Return a 400 for a writing request without a key."""
    return _header_problem(
        "idempotency_key_missing",
        "This request writes, so it needs the header Idempotency-Key: any new text per command.",
    )


IdempotencyKey = Annotated[str, Depends(required_idempotency_key)]
OptionalIdempotencyKey = Annotated[str | None, Depends(optional_idempotency_key)]


def request_fingerprint(operation: str, body: BaseModel | None = None) -> bytes:
    """Return a hash that equal requests share: of the operation with its path parameters, and the validated body."""
    content = None if body is None else body.model_dump(mode="json")
    return json.dumps([operation, content], sort_keys=True, separators=(",", ":")).encode()


def keyed_request(
    context: Context, principal_id: str, key: str, operation: str, body: BaseModel | None = None
) -> Keyed:
    """Return the identity under which a request is remembered; see `request_fingerprint`."""
    return Keyed.of(context, principal_id, key, request_fingerprint(operation, body))


def to_response(answer: Answer) -> JSONResponse:
    """Return the HTTP response of an answer."""
    return JSONResponse(answer.body, answer.status, headers=answer.headers)
