"""Retries: a request is never sent again if it may have succeeded and could take effect twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx2

#: The errors after which nothing was sent, because no connection was made.
NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
#: The statuses of answers that ask to try later. After 507 the disk was full, and nothing was written.
_LATER = frozenset({429, 502, 503, 504, 507})
#: The only statuses after which certainly nothing was done, even without an idempotency key.
_NOTHING_DONE = frozenset({429})
#: The code for another request with the same key that is still running, whose answer should be awaited.
STILL_RUNNING = "request_in_progress"


@dataclass(frozen=True, slots=True)
class Retries:
    """Settings of repeated attempts: how long they go on, and how long to wait between them.

    Attributes:
        seconds: No attempt begins later than this after the first; 0 for one attempt.
        first_wait: Seconds before the second attempt, at most; doubled from one attempt to the next.
        longest_wait: The longest wait, at which doubling ends. A longer ``Retry-After`` is respected, or the error is
            raised at once.
    """

    seconds: float = 60.0
    first_wait: float = 0.25
    longest_wait: float = 10.0

    def wait_before(self, attempt: int, retry_after: float | None) -> float:
        """Return the seconds to wait after an attempt; the first attempt is number 1. They are random, so that clients
        do not return at the same time."""
        most: float = min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1))
        drawn = random.uniform(most / 2.0, most)  # noqa: S311 (no secret depends on it)
        return drawn if retry_after is None else retry_after + drawn / 4.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and sleep; tests replace them."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def may_try_again(failure: httpx2.TransportError | httpx2.Response, code: str | None, *, repeatable: bool) -> bool:
    """Return whether the same request may be sent again.

    Args:
        failure: A missing answer, or an error.
        code: The code, if the failure is a problem.
        repeatable: Whether the request only reads or has an idempotency key, so that sending it twice is harmless.
    """
    if isinstance(failure, httpx2.TransportError):
        return repeatable or isinstance(failure, NEVER_SENT)
    if failure.status_code in _LATER:
        return repeatable or failure.status_code in _NOTHING_DONE
    return repeatable and code == STILL_RUNNING


def retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds that the server asks to wait. The service always gives a number, never a date."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None
