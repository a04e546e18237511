"""Serve queues of runs in turn, however long each queue is.

A queue holds the runs that one budget pays for, or one key's runs on public data. Each process remembers when it last
served each queue. A queue that the process never served comes first. Among several such queues, the one that has waited
longest comes first. If a process ends and forgets this, nobody loses more than one turn.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

#: The largest number of remembered queues. Empty queues are remembered, too, since a queue that fills again has already
#: had its turn.
_MOST = 10_000


class Turns:
    """The queues that were served, in the order of their last turns."""

    def __init__(self) -> None:
        self._served: dict[str, None] = {}
        #: The threads of one process may each carry out a run.
        self._lock = threading.Lock()

    def order(self, waiting: Sequence[str]) -> list[str]:
        """Return the queues with runs in the order of their turns.

        Args:
            waiting: The queues in the order of their oldest runs.
        """
        with self._lock:
            place = {queue: number for number, queue in enumerate(self._served, 1)}
        return sorted(waiting, key=lambda queue: place.get(queue, 0))

    def serve(self, queue: str) -> None:
        with self._lock:
            self._served.pop(queue, None)
            self._served[queue] = None
            if len(self._served) > _MOST:
                del self._served[next(iter(self._served))]


_OF: WeakKeyDictionary[Engine | Connection, Turns] = WeakKeyDictionary()


def turns_of(bind: Engine | Connection) -> Turns:
    """Return this process's memory of a database's queues."""
    return _OF.setdefault(bind, Turns())
