"""A connection to a Dask cluster. It checks the machines, sends them rows once, and has slices of runs carried out.

All faults of the cluster raise the same exception, because the caller always reacts in the same way: it waits and sends
the slice again. Dask's messages are not logged, since they quote the data that Dask handles.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from sys import getsizeof
from typing import Any

import dask
import structlog
from distributed import Client, Future, KilledWorker, Security
from distributed.client import FutureCancelledError
from distributed.comm import connect
from distributed.utils import LoopRunner

from app.runs.executors.interface import MachinesLost
from app.runs.executors.slices import Machine, Outcome, Rows, Slice, inspect_machine, train_slice
from app.runs.job import Job
from app.runs.versions import code_version
from app.setting_types import is_in_the_clear

log = structlog.get_logger()

CONNECT_S = 3.0
#: The most seconds that a question to the scheduler or to its machines may take.
ASK_S = 3.0
#: The most seconds for fetching an answer from a machine, and for moving rows to one.
ANSWER_S, MOVE_S = 60.0, 600.0
#: A result of `is_ready` is reused for this many seconds.
LOOK_INTERVAL_S = 1.0
#: The interval in seconds at which the caller's function `attend` is called during a wait for the cluster.
ATTEND_INTERVAL_S = 0.2
#: Rows stay in the cluster's memory until all kept rows exceed this many bytes.
KEPT_BYTES = 4 * 2**30

# A slice of a large model contains a large checkpoint. Without this setting, Dask would warn that this is a mistake.
dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"})
for _name in ("distributed", "distributed.client", "tornado", "tornado.application"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class ClusterAway(Exception):
    """The cluster does not answer, is not fit for runs, or has lost work, which can be sent again.

    Attributes:
        why: The type of an exception, or a fault in `ADVICE`, for the log.
    """

    def __init__(self, why: str) -> None:
        super().__init__("the cluster is away")
        self.why = why


class MachineLost(ClusterAway):
    """The machine with the only copy of the rows has died. A slice runs where its rows are, so the slice is the most
    likely cause.

    The scheduler forgets such a slice, and does not count the machine as killed by the slice.
    """


class Cluster:
    """The cluster behind one scheduler, for any number of threads.

    Args:
        address: The address of the scheduler.
        may_be_in_the_clear: Whether rows may go to other machines unencrypted.
    """

    def __init__(self, address: str, *, may_be_in_the_clear: bool) -> None:
        self._address, self._may_be_in_the_clear = address, may_be_in_the_clear
        # All clients share one loop. With loops of their own, clients that never find a scheduler would each leave a
        # thread behind.
        self._loop = LoopRunner()
        self._loop.start()
        self._client: Client | None = None
        self._connecting, self._looking, self._moving = threading.Lock(), threading.Lock(), threading.Lock()
        self._looked_at = float("-inf")
        self._fault: str | None = "cluster_away"
        self._told: tuple[str | None, int] | None = None
        #: By address, what each machine reported about itself, or the exception that kept it from reporting.
        self._inspected: dict[str, Any] = {}
        self._rows: OrderedDict[bytes, tuple[Future, int]] = OrderedDict()

    def close(self) -> None:
        """Release everything that is kept on the cluster."""
        with self._connecting:
            if self._client is not None:
                self._client.close(timeout=ASK_S)
                self._client = None
        self._loop.stop()

    def is_ready(self) -> bool:
        """Return whether there are machines and all of them are fit for runs. If not, the reason is logged when it
        changes.

        While one thread checks, which takes seconds if nobody answers, other threads get the previous result.
        """
        if self._looking.acquire(blocking=False):
            try:
                if time.monotonic() - self._looked_at >= LOOK_INTERVAL_S:
                    self._fault, machines = self._look()
                    self._looked_at = time.monotonic()
                    if (self._fault, machines) != self._told:
                        self._tell(self._fault, machines)
            finally:
                self._looking.release()
        return self._fault is None

    def carry_out(self, work: Slice, job: Job, attend: Callable[[], None]) -> Outcome:
        """Carry out one slice, if all machines are fit for runs. A machine that joined after the claim may be unfit.

        Args:
            attend: Called repeatedly meanwhile. If it raises, the slice is given up: it ends by itself, and its answer
                is dropped.

        Raises:
            ClusterAway, MachineLost: as their docstrings say.
            MachinesLost: the slice has killed as many machines as the scheduler allows.
        """
        if not self.is_ready():
            raise ClusterAway(self._fault or "cluster_away")
        with _sendable_again():
            client = self._connected()
        rows = self._rows_of(client, job, attend)
        done = threading.Event()
        with _sendable_again():
            # Dashboards and logs show the key, so it is random and reveals nothing.
            future = client.submit(train_slice, work, rows, key=f"slice-{secrets.token_hex(8)}", pure=False)
            future.add_done_callback(lambda _future: done.set())
        try:
            while not done.wait(ATTEND_INTERVAL_S) and future.status == "pending":
                attend()
            outcome: Outcome = _attended(client, ANSWER_S, attend, future.result)
            return outcome
        finally:
            future.release()

    def _connected(self) -> Client:
        """Return the client. If it has given up, make a new one.

        Raises:
            OSError: nobody answers, or the next attempt is not due yet.
            TypeError: an address needs certificates, and there are none.
        """
        client = self._client
        if client is not None and client.status == "running":
            return client
        # Connecting takes seconds if nobody answers, so one thread tries, and the others do not queue to try as well.
        if not self._connecting.acquire(blocking=False):
            raise ConnectionError
        try:
            if self._client is not None and self._client.status in ("closed", "closing"):
                self._client = None
            if self._client is None:
                asyncio.run_coroutine_threadsafe(_greet(self._address), self._loop.loop.asyncio_loop).result()
                self._client = Client(
                    self._address, timeout=CONNECT_S, loop=self._loop.loop, set_as_default=False, name="epsilond"
                )
            if self._client.status != "running":
                raise ConnectionError
            return self._client
        finally:
            self._connecting.release()

    def _rows_of(self, client: Client, job: Job, attend: Callable[[], None]) -> Future:
        """Return the job's rows in the cluster. Send them first if they are not there.

        If ``attend`` raises while rows are being sent, the cluster releases them when they have arrived.
        """
        while not self._moving.acquire(timeout=ATTEND_INTERVAL_S):
            attend()
        try:
            kept, _ = self._rows.get(job.rows_digest, (None, 0))
            if kept is None or kept.client is not client or kept.status != "finished":
                rows = Rows(*job.scaled_rows())
                name = f"rows-{secrets.token_hex(8)}"
                kept = _attended(client, MOVE_S, attend, client.scatter, {name: rows}, timeout=ASK_S)[name]
                self._rows[job.rows_digest] = kept, getsizeof(rows)
            self._rows.move_to_end(job.rows_digest)
            while len(self._rows) > 1 and sum(size for _, size in self._rows.values()) > KEPT_BYTES:
                # Slices that need these rows still hold them.
                self._rows.popitem(last=False)
            return kept
        finally:
            self._moving.release()

    def _look(self) -> tuple[str | None, int]:
        """Return the fault of the cluster, or None, and its number of machines."""
        try:
            client = self._connected()
            machines = _within(client, ASK_S, client.scheduler.identity, n_workers=-1)["workers"].keys()
            unknown = [address for address in machines if not isinstance(self._inspected.get(address), Machine)]
            answers = self._inspected
            if unknown:
                asked = _within(client, ASK_S, client.run, inspect_machine, workers=unknown, on_error="return")
                answers = answers | asked
        except Exception as error:
            log.debug("cluster_not_seen", error_type=type(error).__name__)
            return "cluster_away", 0
        self._inspected = {address: answers.get(address) for address in machines}
        return fault_of(self._inspected, may_be_in_the_clear=self._may_be_in_the_clear), len(machines)

    def _tell(self, fault: str | None, machines: int) -> None:
        self._told = fault, machines
        if fault is None:
            log.info("cluster_ready", machines=machines)
        else:
            log.error(fault, scheduler=self._address, machines=machines, advice=ADVICE[fault])


ADVICE = {
    "cluster_away": "No scheduler answers, or it refuses this process's certificates, which a tls:// address needs. "
    "Runs wait until one answers.",
    "cluster_without_machines": "Start workers with `dask worker`. Runs wait until there is one.",
    "cluster_in_the_clear": "The connection to a worker on another machine does not use TLS. Give all certificates and "
    "tls:// "
    "addresses, or set EPSILOND_DASK_WITHOUT_TLS=true. Runs wait until then.",
    "cluster_without_epsilond": "A worker cannot load epsilond: start it in a checkout, with PYTHONPATH=. and the "
    "packages of requirements/dask.lock. Runs wait until all can.",
    "cluster_of_another_version": "A worker has other sources, or another Python, NumPy, SciPy or randomgen, than this "
    "process. Runs wait until all are the same.",
    "cluster_writes_rows_to_disk": "A worker may write rows to its disk: start it with "
    "DASK_CONFIG=app/runs/executors/cluster.yaml. Runs wait until none may.",
}


@contextmanager
def _sendable_again() -> Iterator[None]:
    """Report every exception of Dask in the block as a fault of the cluster. Slices return their own exceptions, and
    never raise them."""
    try:
        yield
    except KilledWorker:
        raise MachinesLost from None
    except FutureCancelledError as error:
        # The scheduler gives this reason for a running task whose inputs were lost with a machine.
        kind = MachineLost if error.reason == "already forgotten" else ClusterAway
        raise kind(type(error).__name__) from None
    except Exception as error:
        raise ClusterAway(type(error).__name__) from None


def fault_of(machines: dict[str, Any], *, may_be_in_the_clear: bool) -> str | None:
    """Return the reason why a cluster gets no runs, as a key of `ADVICE`; None if it gets runs.

    Args:
        machines: What each machine reports about itself, by address.
        may_be_in_the_clear: Whether rows may go to other machines unencrypted.
    """
    answers = [each for each in machines.values() if isinstance(each, Machine)]
    faults = {
        "cluster_without_machines": not machines,
        "cluster_in_the_clear": not may_be_in_the_clear and any(map(is_in_the_clear, machines)),
        "cluster_without_epsilond": len(answers) < len(machines),
        "cluster_of_another_version": any(each.code_version != code_version() for each in answers),
        "cluster_writes_rows_to_disk": any(each.may_spill for each in answers),
    }
    return next((fault for fault, is_there in faults.items() if is_there), None)


async def _greet(address: str) -> None:
    """Contact the scheduler once with a time limit: a client would wait for ever for a scheduler that accepts
    connections and says nothing.

    Raises:
        OSError, TypeError: as `Cluster._connected`; a `TimeoutError` is an `OSError`.
    """
    options = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=CONNECT_S, **options), CONNECT_S)
    await comm.close()


def _within(client: Client, seconds: float, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the answer of the client's call within a time limit."""

    async def answer() -> Any:
        return await call(*arguments, **options)

    return client.sync(answer, callback_timeout=seconds)


def _attended(
    client: Client,
    seconds: float,
    attend: Callable[[], None],
    call: Callable[..., Any],
    *arguments: Any,
    **options: Any,
) -> Any:
    """Return the answer of the client's call within the time limit. If ``attend`` raises first, the answer is dropped.

    Raises:
        ClusterAway, MachinesLost: as `Cluster.carry_out`.
    """

    async def answer() -> Any:
        return await asyncio.wait_for(call(*arguments, **options), seconds)

    with _sendable_again():
        asked = asyncio.run_coroutine_threadsafe(answer(), client.loop.asyncio_loop)
    while not wait([asked], ATTEND_INTERVAL_S).done:
        attend()
    with _sendable_again():
        return asked.result()
