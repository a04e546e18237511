"""The id that an answer and its log lines share."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from itertools import count
from typing import cast

from starlette.datastructures import Headers
from starlette.types import Scope

HEADER = "X-Request-Id"

#: The id of the request that this context works for; it is added to each log line.
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)

# An id consists of a random text, one per process, and a number. It must be unique in a log, but need not be secret.
# Fetching random bytes for each request would release the interpreter's lock each time.
_PROCESS, _NUMBERS = secrets.token_hex(6), count(1)

# The request ids that a client may choose. Any other is replaced, since ids are written to logs.
_ACCEPTED = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def choose_request_id(scope: Scope) -> str:
    """Return the request's id, and keep it in the request's state. This is the client's own id if it has an accepted
    form, and otherwise a new id."""
    offered = Headers(scope=scope).getlist(HEADER)
    accepted = len(offered) == 1 and _ACCEPTED.fullmatch(offered[0])
    request_id = offered[0] if accepted else f"req_{_PROCESS}{next(_NUMBERS):x}"
    scope.setdefault("state", {})["request_id"] = request_id
    return request_id


def request_id_of(scope: Scope) -> str:
    """Return the id that `choose_request_id` kept."""
    return cast(str, scope["state"]["request_id"])
