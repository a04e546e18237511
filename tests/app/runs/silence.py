"""A worker that is not heard of, without waiting for it: its claim, and a sweeper whose clock the test turns."""

from __future__ import annotations

from app.context import Context
from app.runs import lifecycle
from app.runs.leases import LEASE_S, LOOKS_PER_LEASE, LeaseWatch, Sweeper
from app.tables.runs import Run


class Monotonic:
    """A monotonic clock that the test turns."""

    def __init__(self) -> None:
        self.now = 1e6

    def __call__(self) -> float:
        return self.now


def silence(context: Context) -> list[set[str]]:
    """A sweeper watches all runs in progress for one lease in which no time passes in fact."""
    monotonic = Monotonic()
    sweeper = Sweeper(context, LeaseWatch(clock=monotonic))
    swept = [sweeper.sweep()]
    for _ in range(LOOKS_PER_LEASE):
        monotonic.now += LEASE_S / LOOKS_PER_LEASE
        swept.append(sweeper.sweep())
    return swept


def claim(context: Context, worker_id: str = "wrk_silent") -> Run:
    claimed = lifecycle.claim(context, worker_id)
    assert claimed is not None
    return claimed


def start(context: Context, claimed: Run, stream_id: str = "stream") -> None:
    """Start the charge, without a checkpoint: a worker keeps one before."""
    lifecycle.start(context, claimed, lifecycle.read_plan(claimed), stream_id)
