"""A cache of answers that depend only on the request. Each answer is computed once and remembered.

The cache holds only public content: specifications that callers wrote, and numbers that follow from them. It never
holds answers about budgets, data sets or runs, nor answers that depend on how busy the service was.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from starlette.concurrency import run_in_threadpool

from accounting import ENGINE_VERSION
from app.problems import Problem

#: The assumed size of an entry besides its text: its key, its place in the order, and its spellings.
ENTRY_BYTES = 500
#: No single answer takes more than this fraction of all bytes, since it would displace many others.
_LARGEST_PART = 16
#: The number of spellings of a request that are remembered for each entry of the cache.
_SPELLINGS = 2
#: The types of JSON values that need no normalization; others are numbers with a fraction, objects and lists.
_LEAVES = (str, int, type(None))


class Source(StrEnum):
    """The source of an answer, as the header Cache-Status (RFC 9211) states it."""

    HIT = "epsilond; hit"
    STORED = "epsilond; fwd=miss; stored"
    NOT_STORED = "epsilond; fwd=miss"
    COLLAPSED = "epsilond; fwd=miss; collapsed"


@dataclass(frozen=True)
class Finding:
    """A computed answer.

    Attributes:
        text: JSON, as it is sent.
        is_final: Whether the same request would get the same answer at any other time.
    """

    text: bytes
    is_final: bool


class _Abandoned(Exception):
    """The computation that others waited for failed for a reason that concerns only its own caller."""


class AnswerCache:
    """The recent answers, limited by ``entries`` and ``size_bytes``. With 0 entries, it remembers nothing.

    Any thread and any event loop may use it. The least recently used answer is dropped first.

    Guarantees:
        - another_question_never_answers: a key is the SHA-256 of the engine's version, the call and everything asked
        - one_computation: of equal requests at the same time, one is computed, and the others wait for it without a
          thread
        - failures_are_not_remembered: after an exception, the next request computes again
        - within_bounds: entries and bytes are within their limits after every call
    """

    def __init__(self, entries: int, size_bytes: int, engine_version: str = ENGINE_VERSION) -> None:
        self.entries = entries
        self.size_bytes = size_bytes
        self.hits = self.misses = self.evictions = self.held_bytes = 0
        self._version = engine_version.encode() + b"\0"
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        #: The hashes of bodies as they were sent, each with the key of the request that the body makes.
        self._spellings: OrderedDict[bytes, bytes] = OrderedDict()
        self._flights: dict[bytes, Future[bytes]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def key(self, call: str, asked: Any) -> bytes:
        """Return the key of a request.

        Args:
            call: The endpoint.
            asked: What the schema read: JSON values with all defaults. Neither the order of keys matters, nor whether
                whole numbers are written as 1 or 1.0.
        """
        text = json.dumps(_plain(asked), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(self._version + call.encode() + b"\0" + text.encode()).digest()

    def spelling(self, call: str, body: bytes) -> bytes:
        """Return the key of the exact bytes of a body, so that the same bytes are found without being parsed."""
        return hashlib.sha256(self._version + call.encode() + b"\0" + body).digest()

    def known(self, spelling: bytes) -> bytes | None:
        """Return the remembered answer to a body with exactly the same bytes."""
        with self._lock:
            key = self._spellings.get(spelling)
            text = None if key is None else self._find(key)
            if text is not None:
                self._spellings.move_to_end(spelling)
                self.hits += 1
            return text

    async def answer(self, key: bytes, spelling: bytes | None, compute: Callable[[], Finding]) -> tuple[bytes, Source]:
        """Return the remembered answer, the answer of an equal request under way, or a computed one.

        Args:
            key: The key of the request.
            spelling: The key of the body's bytes, under which the answer can be found the next time.
            compute: Finds the answer, in a thread.

        Raises:
            Exception: what ``compute`` raised, for this request or for an equal one under way. If the other one was
                refused because the service was full, this request computes its own answer.
        """
        while True:
            with self._lock:
                text = self._find(key)
                if text is not None:
                    self.hits += 1
                    self._remember_spelling(spelling, key)
                    return text, Source.HIT
                flight = self._flights.get(key)
                if flight is None:
                    own: Future[bytes] = Future()
                    # From now on, a waiting request that gives up cannot cancel it.
                    own.set_running_or_notify_cancel()
                    self._flights[key] = own
                    self.misses += 1
            if flight is None:
                return await self._compute(key, spelling, own, compute)
            try:
                return await asyncio.wrap_future(flight), Source.COLLAPSED
            except Problem as problem:
                raise problem.inside() from None
            except _Abandoned:
                continue

    async def compute_alone(self, compute: Callable[[], Finding]) -> tuple[bytes, Source]:
        """Compute an answer for this caller only; it is not remembered."""
        return (await run_in_threadpool(compute)).text, Source.NOT_STORED

    async def _compute(
        self, key: bytes, spelling: bytes | None, own: Future[bytes], compute: Callable[[], Finding]
    ) -> tuple[bytes, Source]:
        try:
            finding = await run_in_threadpool(compute)
        except BaseException as error:
            self._land(key)
            is_about_the_question = isinstance(error, Problem) and error.status not in (429, 503)
            own.set_exception(error if is_about_the_question else _Abandoned())
            raise
        stored = finding.is_final and self._store(key, spelling, finding.text)
        self._land(key)
        own.set_result(finding.text)
        return finding.text, Source.STORED if stored else Source.NOT_STORED

    def _land(self, key: bytes) -> None:
        with self._lock:
            del self._flights[key]

    def _find(self, key: bytes) -> bytes | None:
        text = self._answers.get(key)
        if text is not None:
            self._answers.move_to_end(key)
        return text

    def _store(self, key: bytes, spelling: bytes | None, text: bytes) -> bool:
        size = len(text) + ENTRY_BYTES
        if size * _LARGEST_PART > self.size_bytes:
            return False
        with self._lock:
            self._answers[key] = text
            self.held_bytes += size
            self._remember_spelling(spelling, key)
            while len(self._answers) > self.entries or self.held_bytes > self.size_bytes:
                _, gone = self._answers.popitem(last=False)
                self.held_bytes -= len(gone) + ENTRY_BYTES
                self.evictions += 1
        return True

    def _remember_spelling(self, spelling: bytes | None, key: bytes) -> None:
        if spelling is None:
            return
        self._spellings[spelling] = key
        self._spellings.move_to_end(spelling)
        if len(self._spellings) > _SPELLINGS * self.entries:
            self._spellings.popitem(last=False)


def _plain(value: Any) -> Any:
    """Replace every float that is a whole number by an integer. A negative zero is not replaced."""
    if isinstance(value, _LEAVES):
        return value
    if isinstance(value, float):
        is_whole = value.is_integer() and (value != 0.0 or math.copysign(1.0, value) > 0.0)
        return int(value) if is_whole else value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value]
