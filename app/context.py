"""The objects that a request handler or a worker needs from its process. They are made once and passed down, never
global."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, cast

from fastapi import Depends, Request

from app.db.database import Database
from app.kit.fair_gate import MOST_WAITING, FairGate
from app.kit.group_commit import GroupCommit
from app.kit.process_pool import ProcessPool
from app.observability.metrics import Metrics
from app.secrets.material import SecretMaterial
from app.settings import Settings


def utc_now() -> datetime:
    """Return the time in UTC, without fractions of a second. No stored time is finer, because it could reveal something
    about the data."""
    return datetime.now(UTC).replace(microsecond=0)


def default_gate() -> FairGate:
    """Return a gate that admits one computation per core. More at once would only make all of them slower."""
    return FairGate(os.cpu_count() or 1, MOST_WAITING, seconds=30.0)


def verification_gate() -> FairGate:
    """Return a gate that admits one verification at a time. It is separate from the gate for other computations, so
    that many verifications do not delay them."""
    return FairGate(1, most_waiting=4, seconds=30.0)


def default_pool() -> ProcessPool:
    """Return a pool of at most two processes, with a memory limit that suits a small machine."""
    return ProcessPool(size=min(2, os.cpu_count() or 1), seconds=20.0, memory_bytes=2 * 2**30)


def audit_pool() -> ProcessPool:
    """Return a pool for one attack at a time. An attack may take as long as clients wait for an answer."""
    return ProcessPool(size=1, seconds=120.0, memory_bytes=4 * 2**30)


@dataclass(frozen=True)
class Context:
    """The settings, the database, the clock and the limits on numerical work of one process."""

    settings: Settings
    database: Database
    clock: Callable[[], datetime] = field(default=utc_now)
    #: Admits numerics that take milliseconds, which run in the thread of the request.
    numerics: FairGate = field(default_factory=default_gate, repr=False)
    #: Admits verifications of the ledger, which take a minute for a million entries.
    verifications: FairGate = field(default_factory=verification_gate, repr=False)
    #: Runs numerics that take seconds. No process starts before the first job; `close` ends them all.
    processes: ProcessPool = field(default_factory=default_pool, repr=False)
    #: Runs audits, which train with plans many times.
    audit_processes: ProcessPool = field(default_factory=audit_pool, repr=False)

    #: The counters and timers of this process for `GET /metrics`.
    metrics: Metrics = field(default_factory=Metrics, repr=False)
    #: Limits how many processes read uploaded Parquet and NPZ files at a time; each has a memory limit.
    file_readers: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(2), repr=False)
    #: Limits the threads and connections that wait long for a locked budget.
    patience: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(8), repr=False)
    #: Puts ledger commands that come at the same time into one transaction.
    ledger_commits: GroupCommit[Any, Any] = field(default_factory=GroupCommit, repr=False)

    @property
    def threads_of_numerics(self) -> int:
        """Return the largest number of threads that may compute or wait to compute."""
        gates = (self.numerics, self.verifications, self.processes.gate, self.audit_processes.gate)
        return sum(gate.places + gate.most_waiting for gate in gates)

    @cached_property
    def secrets(self) -> SecretMaterial:
        """Return the secrets that this process can read."""
        return SecretMaterial(self.settings)

    def keyed_hash(self, label: str, data: bytes, version: int = 1) -> str:
        """Return the hexadecimal HMAC-SHA256 under the secret that ``label`` belongs to (`app.secrets.material`)."""
        return self.secrets.keyed_hash(label, data, version)


# This is a coroutine, as every dependency that does not block should be: FastAPI would send a plain function to a
# thread.
async def get_context(request: Request) -> Context:
    return cast(Context, request.app.state.context)


CurrentContext = Annotated[Context, Depends(get_context)]
