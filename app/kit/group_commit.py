"""Many threads' work in one transaction: whoever comes while one is under way is taken along by the next.

A transaction costs the same few statements, and the same wait for the disk, whether it does one thing or twenty. The
first thread to come does its own work at once; those that come meanwhile wait, and one of them then does the work of
all. Nobody waits for company, and nothing is held back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Done together at most.
LARGEST_GROUP = 64


Work = Callable[[Sequence[Item]], Sequence[Result]]


@dataclass(eq=False)
class _Ticket(Generic[Item, Result]):
    """Someone's item on its way.

    Attributes:
        wake: Called once: when the result is there, or when it is this one's turn to lead.
        leads: It is.
    """

    item: Item
    wake: Callable[[], object]
    leads: bool = False
    results: list[Result] = field(default_factory=list)
    error: BaseException | None = None

    def outcome(self) -> Result:
        if self.error is not None:
            raise self.error
        return self.results[0]


class GroupCommit(Generic[Item, Result]):
    """Does the work of concurrent callers in groups."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Ticket[Item, Result]] = []
        self._has_leader = False
        self._thread = ThreadPoolExecutor(1, "group-commit")

    def submit(self, item: Item, do: Work[Item, Result]) -> Result:
        """The result of ``item``'s work, done in this thread or in another.

        Args:
            item: What to do.
            do: Does the work of a group, in one transaction: a result for each item, in order. The same for everyone.

        Raises:
            Exception: what ``do`` raised for the group that the item was in; it must have left nothing behind then.
        """
        woken = threading.Event()
        ticket: _Ticket[Item, Result] = _Ticket(item, woken.set)
        if not self._join(ticket):
            woken.wait()
        if ticket.leads:
            self._lead(do)
        return ticket.outcome()

    async def submit_soon(self, item: Item, do: Work[Item, Result]) -> Result:
        """`submit` for a coroutine: it waits without a thread, and takes one only when it is its turn to lead.

        That thread is kept for this: all of a server's may be waiting in `submit` for this very turn. Once the turn has
        come it is taken, whatever becomes of the coroutine.
        """
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        ticket: _Ticket[Item, Result] = _Ticket(item, partial(loop.call_soon_threadsafe, woken.set))
        if not self._join(ticket):
            try:
                await woken.wait()
            except asyncio.CancelledError:
                self._leave(ticket)
                raise
        if ticket.leads:
            await asyncio.shield(loop.run_in_executor(self._thread, self._lead, do))
        return ticket.outcome()

    def _join(self, ticket: _Ticket[Item, Result]) -> bool:
        """Whether the ticket leads at once, because nobody else does."""
        with self._lock:
            self._waiting.append(ticket)
            ticket.leads, self._has_leader = not self._has_leader, True
            return ticket.leads

    def _leave(self, ticket: _Ticket[Item, Result]) -> None:
        """Give up waiting; whoever was to lead hands over first. Work that is under way is done nevertheless."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                if ticket.leads:
                    self._hand_over()

    def _lead(self, do: Work[Item, Result]) -> None:
        """Do the work of those who wait, this one's own among it, and hand over to the next who came."""
        with self._lock:
            group, self._waiting = self._waiting[:LARGEST_GROUP], self._waiting[LARGEST_GROUP:]
        try:
            for ticket, result in zip(group, do([ticket.item for ticket in group]), strict=True):
                ticket.results.append(result)
        except BaseException as error:
            for ticket in group:
                ticket.error = error
        with self._lock:
            self._hand_over()
        for ticket in group:
            if not ticket.leads:
                _is_woken(ticket)

    def _hand_over(self) -> None:
        """Let the first of those who still wait lead; the lock is held."""
        while self._waiting:
            self._waiting[0].leads = True
            if _is_woken(self._waiting[0]):
                break
            del self._waiting[0]
        self._has_leader = bool(self._waiting)


def _is_woken(ticket: _Ticket[Item, Result]) -> bool:
    """Wake whoever waits for the ticket; false where its event loop is closed, so that nobody waits any more."""
    try:
        ticket.wake()
    except RuntimeError:
        return False
    return True
