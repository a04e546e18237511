"""The work of many callers in one transaction. Work that arrives during a transaction joins the next one.

A transaction costs the same few statements, and the same wait for the disk, whether it does one thing or twenty. One
thread does the work, a group at a time. Work is never delayed to make a group larger. A caller gets a future: a thread
waits for its result, and a coroutine awaits it by `asyncio.wrap_future`, without a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: The most items that are done together.
LARGEST_GROUP = 64
#: The most items that are done singly, at the same time, after their group failed.
MOST_ALONE = 32

Work = Callable[[Sequence[Item]], Sequence[Result]]
Rescue = Callable[[Item, BaseException], Result]


@dataclass(frozen=True)
class _Ticket(Generic[Item, Result]):
    """One caller's item that is not done yet."""

    item: Item
    do: Work[Item, Result]
    rescue: Rescue[Item, Result]
    future: Future[Result] = field(default_factory=Future)


class GroupCommit(Generic[Item, Result]):
    """Does the work of concurrent callers in groups."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Ticket[Item, Result]] = []
        self._is_at_work = False
        self._thread = ThreadPoolExecutor(1, "group-commit")
        self._rescuers = ThreadPoolExecutor(MOST_ALONE, "alone")

    def submit(self, item: Item, do: Work[Item, Result], rescue: Rescue[Item, Result]) -> Future[Result]:
        """Submit an item, and return the future of its result. An item that is cancelled before its work begins is not
        done.

        Args:
            item: The item to work on.
            do: Does the work of a group in one transaction, and returns the results in the order of the items. All
                callers pass the same function. If it raises, it must have changed nothing.
            rescue: Does the work of a single item after its group failed, or raises the exception of the failure.
        """
        ticket = _Ticket(item, do, rescue)
        with self._lock:
            self._waiting.append(ticket)
            is_at_work, self._is_at_work = self._is_at_work, True
        if not is_at_work:
            self._thread.submit(self._work)
        return ticket.future

    def _work(self) -> None:
        """Do the work that waits, group by group, until none is left."""
        while group := self._next_group():
            at_work = [ticket for ticket in group if ticket.future.set_running_or_notify_cancel()]
            if at_work:
                self._do_together(at_work)
            # Clients that have their answers often send another request at once; this lets them.
            time.sleep(0)

    def _next_group(self) -> list[_Ticket[Item, Result]]:
        with self._lock:
            group, self._waiting = self._waiting[:LARGEST_GROUP], self._waiting[LARGEST_GROUP:]
            self._is_at_work = bool(group)
        return group

    def _do_together(self, group: list[_Ticket[Item, Result]]) -> None:
        try:
            done = list(zip(group, group[0].do([ticket.item for ticket in group]), strict=True))
        except BaseException as error:
            for ticket in group:
                self._rescuers.submit(_do_alone, ticket, error)
            return
        for ticket, result in done:
            ticket.future.set_result(result)


def _do_alone(ticket: _Ticket[Item, Result], error: BaseException) -> None:
    try:
        ticket.future.set_result(ticket.rescue(ticket.item, error))
    except BaseException as failure:
        ticket.future.set_exception(failure)
