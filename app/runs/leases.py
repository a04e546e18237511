"""Leases on runs: every host notices a worker that dies or stalls, without using a wall clock.

A claim raises the run's epoch, and every later write of the worker names that epoch. So writes of a worker that was
considered lost are refused. A worker raises a counter, the heartbeat. The worker is considered lost if another process
has seen no change of the counter for a certain time, on that process's own monotonic clock. Clocks of hosts and
databases may be years off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

import structlog

from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.runs import doorbell, lifecycle, liveness, repository
from app.runs.checkpoint_files import sweep_checkpoints
from app.runs.repository import Lease
from app.tables.runs import Run

log = structlog.get_logger()

#: The seconds after which a worker raises the heartbeat of its run again.
HEARTBEAT_INTERVAL_S = 5.0
#: A worker has lost its run if nobody saw its heartbeat change for this many seconds.
LEASE_S = 60.0
#: The time between two looks counts for at most a lease divided by this number, so that a lease lapses only after at
#: least this many looks.
LOOKS_PER_LEASE = 4


class Heartbeat:
    """Raise the heartbeat of a claimed run inside the block, in a thread of its own.

    Attributes:
        is_lost: Whether another claim is known to have the run. The worker's writes are refused in any case; this flag
            only ends useless work.
    """

    def __init__(self, context: Context, claimed: Run) -> None:
        self.is_lost = False
        self._context = context
        self._claimed = claimed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self.is_lost and not self._ended.wait(HEARTBEAT_INTERVAL_S):
            try:
                with self._context.database.write() as session:
                    self.is_lost = not repository.raise_heartbeat(session, self._claimed)
            except Exception as error:
                # The usual cause is that the database is unavailable. That time does not count for the lease. After
                # other failures the next heartbeat may succeed. If the exception ended this thread, the run would be
                # considered lost.
                log.warning("heartbeat_not_stored", run_id=self._claimed.id, error_type=type(error).__name__)


class LeaseWatch:
    """Find the leases that have lapsed, from what this process saw of them on its own monotonic clock."""

    def __init__(self, lease_s: float = LEASE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease_s = lease_s
        self._clock = clock
        self._looked_at = clock()
        self._watched_s = 0.0
        self._first_seen: dict[Lease, float] = {}

    def lapsed(self, leases: Iterable[Lease]) -> list[Lease]:
        """Look at all leases, and return those that have not changed for the duration of a lease."""
        now = self._clock()
        # The worker is not to blame for time in which nobody watched, because the database was unavailable or this
        # process slept.
        self._watched_s += min(now - self._looked_at, self._lease_s / LOOKS_PER_LEASE)
        self._looked_at = now
        self._first_seen = {lease: self._first_seen.get(lease, self._watched_s) for lease in leases}
        return [lease for lease, since in self._first_seen.items() if self._watched_s - since >= self._lease_s]


class Sweeper:
    """Find runs whose worker is dead or stalled, on any host, and take them from it."""

    def __init__(self, context: Context, watch: LeaseWatch) -> None:
        self._context = context
        self._watch = watch

    def sweep(self) -> set[str]:
        """Look once, and return the workers that lost a run because its lease had lapsed.

        If the database is unavailable, the next sweep tries again.
        """
        for worker_id in liveness.dead_workers(self._context.settings.data_dir):
            self.settle(worker_id)
        try:
            with self._context.database.read() as session:
                leases = repository.leases(session)
        except DATABASE_FAILURES as error:
            log.error("runs_not_swept", error_type=type(error).__name__)
            return set()
        lapsed = {lease.worker_id for lease in self._watch.lapsed(leases) if self._take_over(lease)}
        sweep_checkpoints(self._context)
        return lapsed

    def settle(self, worker_id: str, *, was_told_to_stop: bool = False) -> bool:
        """Settle the runs of a dead worker without waiting for their leases; return False while the database is
        unavailable."""
        try:
            lifecycle.give_up_runs_of(self._context, worker_id, was_told_to_stop=was_told_to_stop)
        except DATABASE_FAILURES as error:
            log.error("worker_not_settled", worker_id=worker_id, error_type=type(error).__name__)
            return False
        sweep_checkpoints(self._context)
        liveness.forget(self._context.settings.data_dir, worker_id)
        doorbell.forget(self._context.settings.data_dir, worker_id)
        return True

    def _take_over(self, lease: Lease) -> bool:
        try:
            return lifecycle.take_over(self._context, lease)
        except DATABASE_FAILURES as error:
            log.error("run_not_taken_over", run_id=lease.run_id, error_type=type(error).__name__)
            return False
