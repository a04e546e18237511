"""Places for work that takes a core, given to callers in turn. So nobody waits behind another caller's long queue."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

from app.kit.caller import CALLER
from app.problems import Problem

#: The most requests that wait at a gate. Each holds a thread of the service, which is cheap. A lower number would
#: refuse requests that arrive while the first process starts, or in a short burst.
MOST_WAITING = 128
#: The seconds after which a request that was refused a place should be sent again.
RETRY_AFTER_S = 2


class FairGate:
    """A gate with this many ``places``. A block `with gate:` waits for a place and gives it back.

    A waiting request holds a thread of the service, so only ``most_waiting`` requests may wait. If another comes, the
    newest request of the caller with the most waiting requests is refused; this may be the one that came.

    Attributes:
        places: How many blocks may run at once.
        most_waiting: How many requests may wait.
        seconds: How long a request waits at most.
        refused: How many requests were refused so far.

    Guarantees:
        - callers_take_turns: between two places for one caller, every other caller that waits meanwhile gets a place
        - nobody_passes: the requests of one caller are served in order, and a new request takes no place that others
          wait for
        - the_longest_queue_gives_way: a full gate refuses no caller that has at least two waiting requests fewer than
          another
    """

    def __init__(self, places: int, most_waiting: int, seconds: float) -> None:
        self.places = places
        self.most_waiting = most_waiting
        self.seconds = seconds
        self.refused = 0
        self._free = places
        self._lock = threading.Lock()
        #: The waiting requests of each caller; callers are in the order of their turns.
        self._queues: dict[str, deque[_Waiter]] = {}

    @property
    def running(self) -> int:
        """Return how many places are taken."""
        return self.places - self._free

    @property
    def waiting(self) -> int:
        """Return how many requests wait for a place."""
        with self._lock:
            return self._count()

    def __enter__(self) -> None:
        self.enter(self.seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def enter(self, seconds: float) -> None:
        """Take a place; wait for it at most ``seconds``. `leave` gives it back.

        Raises:
            Problem: 429 ``too_many_waiting``: this caller has the most waiting requests. 503 ``numerics_busy``: too
                many callers wait, or no place was free in time.
        """
        caller = CALLER.get()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            waiter = self._join(caller)
        try:
            waiter.told.wait(seconds)
        finally:
            with self._lock:
                came_in_time = waiter.told.is_set()
                if not came_in_time:
                    self._forget(caller, waiter)
        if not came_in_time:
            raise _busy(f"No place was free within {seconds:g} s.")
        if not waiter.is_admitted:
            raise _too_many(self.most_waiting)

    def leave(self) -> None:
        """Give the place to the caller whose turn it is; if nobody waits, it becomes free."""
        with self._lock:
            caller = next(iter(self._queues), None)
            if caller is None:
                self._free += 1
                return
            queue = self._queues.pop(caller)
            waiter = queue.popleft()
            if queue:
                self._queues[caller] = queue  # the caller's next turn is after all others
            waiter.is_admitted = True
            waiter.told.set()

    def _join(self, caller: str) -> _Waiter:
        """Add a request at the end of the caller's queue."""
        if self._count() >= self.most_waiting:
            self.refused += 1
            self._make_room(caller)
        waiter = _Waiter()
        self._queues.setdefault(caller, deque()).append(waiter)
        return waiter

    def _make_room(self, caller: str) -> None:
        own = len(self._queues.get(caller, ()))
        longest = max(self._queues, key=lambda each: len(self._queues[each]), default=caller)
        if len(self._queues.get(longest, ())) < own + 2:
            raise _too_many(self.most_waiting) if own else _busy(f"{self.most_waiting} requests are already waiting.")
        self._queues[longest].pop().told.set()

    def _forget(self, caller: str, waiter: _Waiter) -> None:
        self.refused += 1
        queue = self._queues[caller]
        queue.remove(waiter)
        if not queue:
            del self._queues[caller]

    def _count(self) -> int:
        return sum(map(len, self._queues.values()))


class _Waiter:
    """A waiting request. It learns once that it has a place, or that it is refused."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.is_admitted = False


def _too_many(most_waiting: int) -> Problem:
    detail = (
        f"At most {most_waiting} requests may wait for a core, and too many of them are yours already. Nothing was "
        "done; send fewer at a time."
    )
    return Problem(429, "too_many_waiting", detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def _busy(reason: str) -> Problem:
    detail = f"Every core for calculations is busy. {reason} Nothing was done; ask again."
    return Problem(503, "numerics_busy", detail, headers={"Retry-After": str(RETRY_AFTER_S)})
