"""The progress of runs for all listeners. The table is read once a second, however many listeners there are.

Messages contain only what `GET /v1/runs/{id}` answers: states and counters. A listener gets at most one message a
second. No messages are queued for a slow listener, which next gets the newest state.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog
from fastapi.sse import format_sse_event
from starlette.concurrency import run_in_threadpool

from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.observability.stack import stack_lines
from app.problems import Problem
from app.runs import repository
from app.runs.schemas import ProgressBody, ProgressMessage, RunProblem
from app.tables.runs import Run
from app.tables.states import RunState

log = structlog.get_logger()

INTERVAL_S = 1.0
#: A comment is sent after this many seconds without a message, so that no proxy closes the connection as idle.
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
#: A stream ends after this many seconds even if the run has not. A client that reconnects must show a valid key again.
MAX_STREAM_S = 900.0
#: The milliseconds that a client waits before it reconnects.
RETRY_MS = 3000
#: The most simultaneous streams of one key, and of all keys together.
LISTENERS_PER_KEY = 20
LISTENERS = 400

ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})


def message_of(run: Run) -> ProgressMessage:
    """Return the message about a run that listeners get."""
    return ProgressMessage(
        id=run.id,
        state=RunState(run.state),
        progress=ProgressBody(done=run.steps_done, total=run.steps_total),
        problem=None if run.problem is None else RunProblem.model_validate(run.problem),
    )


def event_id(message: ProgressMessage) -> str:
    """Return an id for the content of a message, by which a client that has received it can skip it."""
    return f"{message.state}-{message.progress.done}"


def has_ended(message: ProgressMessage) -> bool:
    return message.state in ENDED


@dataclass(eq=False)
class Listener:
    """One stream: the newest message about its run, and whether it was sent."""

    message: ProgressMessage
    ending: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, message: ProgressMessage) -> None:
        if message != self.message:
            self.message = message
            self._news.set()

    def end(self) -> None:
        self.ending = True
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for news for at most so many seconds, and return whether there is any."""
        try:
            await asyncio.wait_for(self._news.wait(), max(0.0, seconds))
        except TimeoutError:
            return False
        self._news.clear()
        return True

    async def rest(self, seconds: float) -> None:
        """Wait for this many seconds even if there is news, unless the stream must end."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while not self.ending and clock() < until:
            await self.wait(until - clock())


class ProgressFeed:
    """All listeners of a process, and the one task that looks at the table for them."""

    def __init__(
        self,
        context: Context,
        *,
        interval_s: float = INTERVAL_S,
        keep_alive_s: float = KEEP_ALIVE_S,
        max_stream_s: float = MAX_STREAM_S,
        per_key: int = LISTENERS_PER_KEY,
        in_all: int = LISTENERS,
    ) -> None:
        self._context = context
        self._interval_s, self._keep_alive_s, self._max_stream_s = interval_s, keep_alive_s, max_stream_s
        self._per_key, self._in_all = per_key, in_all
        self._listeners: dict[Listener, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        """End every stream now, because a stopping server does not wait for listeners."""
        self._closed = True
        for listener in self._listeners:
            listener.end()

    @contextmanager
    def listen(self, message: ProgressMessage, principal_id: str) -> Iterator[Listener]:
        """Yield a listener for as long as the block lasts.

        Raises:
            Problem: 429 ``too_many_listeners``.
        """
        self._check_limits(principal_id)
        listener = Listener(message)
        if self._closed:
            listener.end()
        self._listeners[listener] = principal_id
        if self._task is None:
            # The task starts in an empty context, since its log lines do not belong to one request.
            self._task = asyncio.create_task(self._look(), context=contextvars.Context())
        try:
            yield listener
        finally:
            del self._listeners[listener]
            if not self._listeners:
                self._task.cancel()
                self._task = None

    async def stream(self, listener: Listener, heard: str | None) -> AsyncIterator[bytes]:
        """Yield the bytes for a listener, until the run, the server or the listener's time ends.

        Args:
            listener: The listener that receives them.
            heard: The id of the last message that the client has from an earlier stream; it is not sent again.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + self._max_stream_s
        yield format_sse_event(retry=RETRY_MS)
        while not listener.ending:
            message = listener.message
            if event_id(message) != heard:
                heard = event_id(message)
                yield format_sse_event(
                    event="end" if has_ended(message) else "progress", data_str=message.model_dump_json(), id=heard
                )
                if has_ended(message):
                    return
                # A listener gets at most one message per interval, whenever the next look happens.
                await listener.rest(self._interval_s)
                continue
            if clock() >= until:
                return
            if not await listener.wait(min(self._keep_alive_s, until - clock())):
                yield KEEP_ALIVE

    def _check_limits(self, principal_id: str) -> None:
        of_key = Counter(self._listeners.values())[principal_id]
        if of_key >= self._per_key:
            detail = f"This key has {of_key} streams open, and the limit is {self._per_key}. Close one"
        elif len(self._listeners) >= self._in_all:
            detail = (
                f"This server has {len(self._listeners)} streams open, and the limit is {self._in_all}. Try again later"
            )
        else:
            return
        detail += ", or ask `GET /v1/runs/{id}` now and then."
        raise Problem(429, "too_many_listeners", detail, headers={"Retry-After": "30"})

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            ids = {listener.message.id for listener in self._listeners if not has_ended(listener.message)}
            if not ids:
                continue
            try:
                found = await run_in_threadpool(self._read, sorted(ids))
            except DATABASE_FAILURES as error:
                log.warning("progress_not_read", error_type=type(error).__name__)
                continue
            except Exception as error:
                # The next look may succeed. If this task ended, no listener would get another message.
                log.error("progress_failed", error_type=type(error).__name__, raised_at=stack_lines(error))
                continue
            for listener in self._listeners:
                if listener.message.id in found:
                    listener.tell(found[listener.message.id])

    def _read(self, run_ids: list[str]) -> dict[str, ProgressMessage]:
        with self._context.database.read() as session:
            return {run.id: message_of(run) for run in repository.progress_of(session, run_ids)}
