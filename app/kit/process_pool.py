"""Processes for heavy numerics, with limits of time and memory. A job that exceeds them is ended, and the service goes
on.

Unlike a thread, a process can be stopped, and has memory of its own. Workers start with the first job, do
one job after the other, and are replaced after a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast

from accounting.compiled import is_complete
from app.kit.fair_gate import MOST_WAITING, FairGate
from app.problems import unprocessable

P = ParamSpec("P")
T = TypeVar("T")

PROJECT_ROOT = Path(__file__).resolve().parents[2]

#: Why a job did not finish: a limit of time or memory, the end of its process, or the stop of the service.
Limit = Literal["time", "memory", "ended", "stopping"]

#: A function, its arguments and its keyword arguments.
_Job = tuple[Callable[..., Any], Any, Any]


class JobFailed(Exception):
    """A job has no result. The message says which limit it exceeded."""

    def __init__(self, message: str, limit: Limit = "ended") -> None:
        super().__init__(message)
        self.limit = limit


def blas_threads(count: int) -> dict[str, str]:
    """Return the environment variables that make the matrix products of a new process use this many threads.

    >>> blas_threads(2)["OPENBLAS_NUM_THREADS"]
    '2'
    """
    return {f"{library}_NUM_THREADS": str(count) for library in ("OMP", "OPENBLAS", "MKL")}


@contextmanager
def too_much_work(what: str, remedy: str, *pointer: str | int) -> Iterator[None]:
    """Answer 422 if a job in the block exceeds a limit before it has a result.

    Args:
        what: The job, in words that begin a sentence.
        remedy: What to ask for instead.
        pointer: The field that causes the work.
    """
    try:
        yield
    except JobFailed as failure:
        if failure.limit == "time" and not is_complete():
            remedy = "the server compiles its inner loops, once after its installation: ask again in a minute"
        raise unprocessable("too_much_work", f"{what} was given up: {failure}; {remedy}", *pointer) from None


class ProcessPool:
    """A pool of at most ``size`` jobs at once, each within ``seconds`` (its wait included) and ``memory_bytes``.

    Attributes:
        gate: The gate at which jobs wait for a place; callers take turns.
        failures: The number of jobs without a result so far, by the limit that they exceeded.
    """

    def __init__(self, size: int, seconds: float, memory_bytes: int) -> None:
        self.seconds = seconds
        self.memory_bytes = memory_bytes
        self.gate = FairGate(size, MOST_WAITING, seconds)
        self.failures: dict[Limit, int] = {"time": 0, "memory": 0, "ended": 0, "stopping": 0}
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._workers: set[_Worker] = set()
        self._closed = False

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function(*args, **kwargs)`` in another process; function, arguments and result are pickled.

        Raises:
            JobFailed: time or memory ran out, the process ended, or the pool is closed.
            Problem: 429 or 503 if too many jobs already wait for a place, or no place was free in time.
            Exception: what the function raised.
        """
        return self.run_within(self.seconds, function, *args, **kwargs)

    def run_within(self, seconds: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `run`, with at most this many ``seconds``, and never more than the pool allows."""
        seconds = min(seconds, self.seconds)
        deadline = time.monotonic() + seconds
        self.gate.enter(seconds)
        try:
            return cast(T, self._run((function, args, kwargs), deadline, seconds))
        except JobFailed as failure:
            with self._lock:
                self.failures[failure.limit] += 1
            raise
        finally:
            self.gate.leave()

    def _run(self, job: _Job, deadline: float, seconds: float) -> Any:
        worker = self._take()
        try:
            succeeded, value = worker.call(job, deadline, seconds)
        except BaseException:
            self._end(worker)
            raise
        if isinstance(value, MemoryError):
            self._end(worker)
            raise JobFailed(f"it needed more than {self.memory_bytes / 2**30:g} GiB of memory", "memory")
        self._keep(worker)
        if succeeded:
            return value
        raise cast(Exception, value)

    def close(self) -> None:
        """End every worker, even busy ones. Their jobs fail, and no new job starts."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            self._workers.difference_update(idle)
            busy = list(self._workers)
        for worker in idle:
            worker.end()
        for worker in busy:
            # The waiting thread notices that the process is dead, and ends the job.
            worker.kill()

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise JobFailed("the service is stopping", "stopping")
            if self._idle:
                return self._idle.pop()
            worker = _Worker(self.memory_bytes, self.seconds)
            self._workers.add(worker)
            return worker

    def _keep(self, worker: _Worker) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return
        self._end(worker)

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.end()


class _Worker:
    """One child process and the connection to it."""

    def __init__(self, memory_bytes: int, seconds: float) -> None:
        ours, theirs = Pipe()
        self._connection: Connection = ours
        # The process's own limit is a little later than the parent's, whose message is better.
        limits = [str(memory_bytes), str(seconds + 1.0)]
        with theirs:
            command = [sys.executable, "-m", "app.kit.process_worker", str(theirs.fileno()), *limits]
            self._process = subprocess.Popen(  # noqa: S603  # its own interpreter with its own module
                command,
                cwd=PROJECT_ROOT,
                # A job has one core, and should not start a thread for each of the others.
                env=os.environ | blas_threads(1),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def call(self, job: _Job, deadline: float, seconds: float) -> tuple[bool, Any]:
        try:
            self._connection.send(job)
            if not self._connection.poll(max(0.0, deadline - time.monotonic())):
                raise JobFailed(f"it took longer than {seconds:g} s", "time")
            reply: tuple[bool, Any] = self._connection.recv()
        except (EOFError, OSError):
            raise JobFailed("its process ended before it had a result", "ended") from None
        return reply

    def kill(self) -> None:
        """End the process and wait for it, so that no zombie stays."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End the process and close the connection. Only the thread that may use the connection calls this."""
        self.kill()
        self._connection.close()
