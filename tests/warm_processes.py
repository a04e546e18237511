"""Processes for heavy numerics that outlive the service they served: a test need not start interpreters of its own.

Such a process keeps nothing of a job. Limits, places and what a pool counts are each test's own; a process that met a
limit, or ended, is replaced as always and never handed on.
"""

from __future__ import annotations

from collections import defaultdict

from app.context import audit_pool, default_pool
from app.kit.process_pool import ProcessPool, _Worker

#: Bytes of memory, and seconds, that a process was started with.
Limits = tuple[int, float]
#: So many idle processes of the same limits are kept: no pool of a service has more places.
MOST_KEPT = 2


class WarmProcesses:
    """Idle processes of one test session, by their limits."""

    def __init__(self) -> None:
        self._idle: defaultdict[Limits, list[_Worker]] = defaultdict(list)

    def pools(self) -> dict[str, ProcessPool]:
        """Both pools of a `Context`, with the limits that it gives them itself. They must be closed."""
        return {"processes": _WarmPool(self, default_pool()), "audit_processes": _WarmPool(self, audit_pool())}

    def take(self, limits: Limits) -> _Worker | None:
        """A process that is alive."""
        while self._idle[limits]:
            worker = self._idle[limits].pop()
            if worker._process.poll() is None:
                return worker
            worker.end()
        return None

    def keep(self, limits: Limits, worker: _Worker) -> None:
        if len(self._idle[limits]) < MOST_KEPT:
            self._idle[limits].append(worker)
        else:
            worker.end()

    def close(self) -> None:
        for workers in self._idle.values():
            for worker in workers:
                worker.end()
        self._idle.clear()


class _WarmPool(ProcessPool):
    """A pool like another, whose processes come from a stock where there are some, and go there when it is closed."""

    def __init__(self, stock: WarmProcesses, like: ProcessPool) -> None:
        super().__init__(like.gate.places, like.seconds, like.memory_bytes)
        self._stock = stock
        self._limits: dict[_Worker, Limits] = {}

    def _take(self) -> _Worker:
        # A test may change the pool's limits; a process has those that it was started with.
        limits = (self.memory_bytes, self.seconds)
        with self._lock:
            if not self._closed and not self._idle and (warm := self._stock.take(limits)):
                self._workers.add(warm)
                self._idle.append(warm)
        worker = super()._take()
        self._limits.setdefault(worker, limits)
        return worker

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            self._workers.difference_update(idle)
        for worker in idle:
            self._stock.keep(self._limits[worker], worker)
        super().close()
