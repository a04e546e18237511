"""Start, watch and replace worker processes, and take over runs that any worker left."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import structlog

from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.fence.watching import fence_of
from app.kit.process_pool import PROJECT_ROOT, blas_threads
from app.ledger.integration import CannotIntegrate, integrate
from app.observability.stack import stack_lines
from app.reservations.service import release_due_holds
from app.runs import liveness
from app.runs.leases import LEASE_S, LeaseWatch, Sweeper
from app.runs.sweep_progression import advance_all
from app.settings import environment_of
from app.webhooks.overdue import tell_of_overdue

log = structlog.get_logger()

WATCH_INTERVAL_S = 0.5
#: The seconds between two looks at the runs in progress on all machines. For a short lease, the time is a sixth of the
#: lease instead.
SWEEP_INTERVAL_S = 10.0
#: The least number of seconds between two replacements, so that a worker that ends at once is not restarted in a fast
#: loop.
REPLACEMENT_INTERVAL_S = 2.0
#: The most batches of entries that one sweep integrates into the tree, so that the workers are still watched.
INTEGRATED_BATCHES = 8
#: The seconds that workers have to stop before they are killed. Together with the grace of open requests, they stay
#: within the server's limit.
GRACE_S = 5.0


class Supervisor:
    """Keep workers running for ``count`` runs at once, and take over lost runs. With a count of 0, only take over lost
    runs.

    Each run has a worker process of its own. If a Dask cluster takes the steps, one process sends them all.

    A worker that ends with a run in progress loses the run, which is queued again and continues from its last
    checkpoint. If the run was started and has no checkpoint, it is committed in full and fails, because noise may have
    been drawn. Soon after, the same happens to the runs of every dead worker of this data folder, and of every worker
    anywhere that has shown no life for ``lease_s`` seconds.
    """

    def __init__(self, context: Context, count: int, lease_s: float = LEASE_S) -> None:
        self._context = context
        self._sweeper = Sweeper(context, LeaseWatch(lease_s))
        self._sweep_interval_s = min(SWEEP_INTERVAL_S, lease_s / 6)
        is_shared = context.settings.dask_scheduler is not None
        self._slots = count if is_shared else 1
        self._count = min(count, 1) if is_shared else count
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        self._not_before = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker-supervisor", daemon=True)

    def start(self) -> None:
        if fence_of(self._context).look():
            self._sweeper.sweep()
            advance_all(self._context)
        self._fill()
        self._thread.start()

    def stop(self) -> None:
        """Ask the workers to stop, wait a little, then kill them; the next start continues their runs."""
        self._stopping.set()
        self._thread.join()
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for worker_id in list(self._processes):
            self._settle(worker_id, was_told_to_stop=True)

    def wait(self) -> None:
        """Wait until `stop` is called from elsewhere (a signal handler)."""
        self._stopping.wait()

    def _watch(self) -> None:
        last_sweep = time.monotonic()
        while not self._stopping.wait(WATCH_INTERVAL_S):
            try:
                for worker_id, process in list(self._processes.items()):
                    if process.poll() is not None:
                        log.error("worker_ended", worker_id=worker_id, exit_status=process.returncode)
                        self._settle(worker_id)
                if time.monotonic() - last_sweep > self._sweep_interval_s:
                    last_sweep = time.monotonic()
                    self._sweep()
                self._fill()
            except Exception as error:
                # The next look may succeed after any error, such as no memory for a process or no free file descriptor.
                log.error("supervision_failed", error_type=type(error).__name__, raised_at=stack_lines(error))

    def _sweep(self) -> None:
        if not fence_of(self._context).look():
            return  # a database that may have lost entries must not release, take over or continue anything
        for worker_id in self._sweeper.sweep() & self._processes.keys():
            # A stalled worker would take the place of a working one.
            self._processes[worker_id].kill()
        self._release_due_holds()
        self._tell_of_overdue()
        self._integrate()
        advance_all(self._context)

    def _release_due_holds(self) -> None:
        """Release reservations that were not started in time, even if nobody needs the room."""
        try:
            release_due_holds(self._context)
        except DATABASE_FAILURES as error:
            log.error("holds_not_released", error_type=type(error).__name__)

    def _tell_of_overdue(self) -> None:
        """Write messages to webhooks about reservations that were started and are late."""
        try:
            tell_of_overdue(self._context)
        except DATABASE_FAILURES as error:
            log.error("overdue_not_told", error_type=type(error).__name__)

    def _integrate(self) -> None:
        """Give committed entries their places in the tree over all entries, so that checkpoints do not have to wait."""
        try:
            integrate(self._context.database, INTEGRATED_BATCHES)
        except (CannotIntegrate, *DATABASE_FAILURES) as error:
            log.error("entries_not_integrated", error_type=type(error).__name__)

    def _fill(self) -> None:
        """Start missing workers, replacing at most one every `REPLACEMENT_INTERVAL_S`."""
        now = time.monotonic()
        while len(self._processes) < self._count and (self._started < self._count or now >= self._not_before):
            worker_id = liveness.new_worker_id()
            command = [sys.executable, "-m", "app.runs", worker_id, str(os.getpid()), str(self._slots)]
            settings = self._context.settings
            environment = os.environ | environment_of(settings) | blas_threads(settings.worker_threads)
            self._processes[worker_id] = subprocess.Popen(command, cwd=PROJECT_ROOT, env=environment)
            self._started += 1
            self._not_before = now + REPLACEMENT_INTERVAL_S

    def _settle(self, worker_id: str, *, was_told_to_stop: bool = False) -> None:
        """Settle the runs of a dead worker. If that fails, the worker remains listed, and the next call tries again."""
        if self._sweeper.settle(worker_id, was_told_to_stop=was_told_to_stop):
            self._processes.pop(worker_id, None)
