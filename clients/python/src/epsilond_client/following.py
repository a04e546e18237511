"""The progress of a run: streamed by the service, or polled if there is no stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import httpx2

from epsilond_client.answers import ENDED, ProgressMessage, Run
from epsilond_client.problems import ProblemError, RateLimited, RunFailed, Unavailable
from epsilond_client.transport import Transport

#: The seconds between two polls, if the service does not stream.
POLL_S = 1.0


def follow(http: Transport, path: str) -> Iterator[ProgressMessage]:
    """Yield the messages about a run until it has ended.

    If a stream breaks off, or the service ends it after a quarter of an hour, it is resumed at the same place.

    Args:
        http: The server.
        path: The path of the run.

    Raises:
        RateLimited: too many streams are open.
        Unavailable: the stream broke off, and asking for the run fails, too.
    """
    heard: str | None = None
    while True:
        try:
            for message, name in _stream(http, path, heard):
                heard = name
                yield message
                if message.state in ENDED:
                    return
        except Unavailable:
            pass
        # This request is retried as often as any other, so a service that is gone for good raises an error here.
        run = http.get(path, Run)
        if run.has_ended:
            if heard != _event_id(run):
                yield _message_of(run)
            return
        time.sleep(POLL_S)


def wait_for(
    http: Transport,
    path: str,
    on_progress: Callable[[ProgressMessage], object] | None,
    timeout: float | None,
    *,
    check: bool,
) -> Run:
    """Return the run once it has ended, as `Runs.wait` describes."""
    deadline = None if timeout is None else time.monotonic() + timeout
    for message in _told_or_asked(http, path, deadline):
        if on_progress is not None:
            on_progress(message)
    run = http.get(path, Run)
    if not run.has_ended:
        raise TimeoutError(f"the run {run.id} is {run.state} after {timeout} seconds, {run.progress.done} steps done")
    if check and run.state != "succeeded":
        raise RunFailed(run.id, run.state, run["problem"])
    return run


def _told_or_asked(http: Transport, path: str, deadline: float | None) -> Iterator[ProgressMessage]:
    if deadline is None:
        try:
            yield from follow(http, path)
            return
        except RateLimited:
            pass  # There are too many listeners already, but polling is always possible.
    told: str | None = None
    while True:
        run = http.get(path, Run)
        if told != _event_id(run):
            told = _event_id(run)
            yield _message_of(run)
        if run.has_ended or (deadline is not None and time.monotonic() + POLL_S > deadline):
            return
        time.sleep(POLL_S)


def _stream(http: Transport, path: str, heard: str | None) -> Iterator[tuple[ProgressMessage, str]]:
    headers = {"Accept": "text/event-stream"} | ({} if heard is None else {"Last-Event-ID": heard})
    with http.stream(f"{path}/events", headers) as answer:
        if answer.status_code == 204:
            return
        for event in httpx2.EventSource(answer):
            if event.event in ("progress", "end"):
                fields = event.json()
                if not isinstance(fields, dict):
                    raise ProblemError(0, "no_answer", "the stream of progress has an event of an unknown form")
                yield ProgressMessage(fields), event.id


def _event_id(run: Run) -> str:
    return f"{run.state}-{run.progress.done}"


def _message_of(run: Run) -> ProgressMessage:
    return ProgressMessage({name: run[name] for name in ("id", "state", "progress", "problem")})
