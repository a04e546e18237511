"""Lets threads wait for a group commit in a known order, so that the next group is the one that a test is about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from app.kit.group_commit import GroupCommit

Result = TypeVar("Result")

PATIENCE_S = 60


def start(work: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Work in a thread of its own, which does not keep the tests from ending if it never ends."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def refuse(_: Any, error: BaseException) -> Any:
    """Rescue nobody whose group failed."""
    raise error


def waiting(commits: GroupCommit[Any, Any]) -> int:
    """How many wait for their group."""
    return len(commits._waiting)


def wait_until_waiting(commits: GroupCommit[Any, Any], count: int) -> None:
    """Until so many wait."""
    wait_for(lambda: waiting(commits) >= count)


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds; the test fails if it does not in a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


class Line:
    """Those who come while someone holds everyone up, each behind the one before; they are the next group."""

    def __init__(self, commits: GroupCommit[Any, Any]) -> None:
        self._commits = commits

    def join(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Let ``work``, which submits once, come next."""
        others = waiting(self._commits)
        future = start(work, *arguments)
        wait_until_waiting(self._commits, others + 1)
        return future


@contextmanager
def held_up(commits: GroupCommit[Any, Any]) -> Iterator[Line]:
    """Hold everyone up until the block ends."""
    begun, released = threading.Event(), threading.Event()

    def hold_up(items: Any) -> Any:
        begun.set()
        assert released.wait(PATIENCE_S)
        return items

    first = commits.submit(None, hold_up, refuse)
    assert begun.wait(PATIENCE_S)
    try:
        yield Line(commits)
    finally:
        released.set()
    first.result(PATIENCE_S)
