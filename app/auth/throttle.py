"""Limit how often and how much at once one key may ask. This comes after the guard, and before anything is read or
computed.

The limits are those of each server process. Answers show what is left of them in the fields `RateLimit` and
`RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.auth.buckets import TokenBucket
from app.auth.principal import ANYBODY, Principal
from app.context import Context
from app.observability.request_id import request_id_of
from app.problems import Problem

#: A key may save up the unused requests of this many seconds, and then send them at once.
BURST_S = 2.0
#: The number of keys whose use is remembered; beyond that, keys without current use are forgotten.
_MOST = 10_000
#: The paths that are limited; documentation and health are not.
_LIMITED = "/v1/"
_STREAM = b"text/event-stream"


@dataclass(frozen=True)
class Limits:
    """The limits of one key; 0 means that there is no limit."""

    requests_per_second: float
    concurrent_requests: int

    @property
    def burst(self) -> int:
        """Return the number of requests that may come at once."""
        return max(1, math.floor(self.requests_per_second * BURST_S))


@dataclass
class Use:
    """The current use of the server by one key."""

    bucket: TokenBucket | None
    under_way: int = 0

    def is_at_rest(self, now: float) -> bool:
        """Return whether it can be forgotten without losing anything."""
        return not self.under_way and (self.bucket is None or self.bucket.is_full(now))


class Throttle:
    """ASGI middleware that answers 429 to requests beyond a key's limits.

    Args:
        app: The next application.
        context: The context, whose settings have the limits of keys without limits of their own.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, app: ASGIApp, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self._settings, self._clock = context.settings, clock
        self._uses: dict[str, Use] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = scope["state"].get("principal") if scope["type"] == "http" else None
        if not isinstance(principal, Principal) or not scope["path"].startswith(_LIMITED):
            await self.app(scope, receive, send)
            return
        limits = limits_of(principal, self._settings.requests_per_second, self._settings.concurrent_requests)
        use, now = self._use_of(principal, limits), self._clock()
        refusal = None
        if use.bucket is not None and not use.bucket.take(now):
            refusal = _too_often(use, limits, principal)
        elif limits.concurrent_requests and use.under_way >= limits.concurrent_requests:
            refusal = _too_many(limits, principal)
        if refusal is not None:
            await refusal.response(request_id_of(scope))(scope, receive, _with_fields(send, use, limits))
            return
        use.under_way += 1
        is_counted = True

        def end() -> None:
            nonlocal is_counted
            if is_counted:
                use.under_way, is_counted = use.under_way - 1, False

        try:
            await self.app(scope, receive, _with_fields(send, use, limits, end))
        finally:
            end()

    def _use_of(self, principal: Principal, limits: Limits) -> Use:
        use = self._uses.get(principal.id)
        if use is None:
            if len(self._uses) >= _MOST:
                self._forget()
            rate = limits.requests_per_second
            bucket = TokenBucket(rate, limits.burst, self._clock()) if rate else None
            use = self._uses[principal.id] = Use(bucket)
        return use

    def _forget(self) -> None:
        now = self._clock()
        self._uses = {key: use for key, use in self._uses.items() if not use.is_at_rest(now)}


def limits_of(principal: Principal, requests_per_second: float, concurrent_requests: int) -> Limits:
    """Return the key's own limits, or those of the settings if it has none."""
    own_rate, own_number = principal.requests_per_second, principal.concurrent_requests
    return Limits(
        requests_per_second if own_rate is None else own_rate,
        concurrent_requests if own_number is None else own_number,
    )


def _too_often(use: Use, limits: Limits, principal: Principal) -> Problem:
    assert use.bucket is not None, "the caller looked"
    who, what_helps = ("This key asks", "ask the person who made the key for more")
    if principal == ANYBODY:
        who, what_helps = ("All who show no token together ask", "show the token in the file `local-token`")
    detail = (
        f"{who} more than {limits.requests_per_second:g} times a second, with at most {limits.burst} at once. "
        f"Wait as Retry-After says, or {what_helps}."
    )
    return Problem(429, "too_many_requests", detail, headers={"Retry-After": str(use.bucket.seconds_until(1.0))})


def _too_many(limits: Limits, principal: Principal) -> Problem:
    whose = "all who show no token" if principal == ANYBODY else "this key"
    detail = (
        f"{limits.concurrent_requests} requests of {whose} are under way, and that is the limit. Wait for one of them "
        "to end."
    )
    return Problem(429, "too_many_requests", detail, headers={"Retry-After": "1"})


def _with_fields(send: Send, use: Use, limits: Limits, end: Callable[[], None] | None = None) -> Send:
    """Return a sender that adds what is left of the limits, and calls ``end`` when a stream begins. A client that
    follows a run sends no requests meanwhile, and the number of streams has a limit of its own.
    """

    async def send_with_fields(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            if end is not None and any(_is_of_a_stream(*header) for header in headers):
                end()
            message = {**message, "headers": [*headers, *_fields(use, limits)]}
        await send(message)

    return send_with_fields


def _is_of_a_stream(name: bytes, value: bytes) -> bool:
    return name == b"content-type" and value.startswith(_STREAM)


def _fields(use: Use, limits: Limits) -> list[tuple[bytes, bytes]]:
    policy = _policy(limits)
    return [(b"ratelimit-policy", policy), (b"ratelimit", _what_is_left(use, limits))] if policy else []


@lru_cache(maxsize=256)
def _policy(limits: Limits) -> bytes:
    items = []
    if limits.requests_per_second:
        window = math.ceil(limits.burst / limits.requests_per_second)
        items.append(f'"requests";q={limits.burst};w={window}')
    if limits.concurrent_requests:
        items.append(f'"concurrent";q={limits.concurrent_requests};qu="concurrent-requests"')
    return ", ".join(items).encode()


def _what_is_left(use: Use, limits: Limits) -> bytes:
    items = []
    if use.bucket is not None:
        items.append(f'"requests";r={use.bucket.left()};t={use.bucket.seconds_until(use.bucket.capacity)}')
    if limits.concurrent_requests:
        items.append(f'"concurrent";r={max(0, limits.concurrent_requests - use.under_way)}')
    return ", ".join(items).encode()
