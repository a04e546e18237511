"""Processes for heavy numbers: limits of time and memory, and nothing left behind."""

from __future__ import annotations

import math
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from accounting.errors import Unsupported
from app.kit import process_pool, process_worker
from app.kit.caller import CALLER
from app.kit.fair_gate import MOST_WAITING
from app.kit.process_pool import JobFailed, ProcessPool
from app.problems import Problem

MEMORY = 2 * 2**30


@pytest.fixture
def pool() -> Iterator[ProcessPool]:
    pool = ProcessPool(size=2, seconds=60.0, memory_bytes=MEMORY)
    yield pool
    pool.close()


def impatient(pool: ProcessPool, seconds: float) -> None:
    """The same workers with less patience; they are up already, so that starting one does not count."""
    pool.seconds = seconds


def refuse() -> None:
    raise Unsupported("no theorem covers it", pointer=("events", 3))


def allocate(count: int) -> int:
    return int(np.ones(count).sum())


def process_and_parent() -> tuple[int, int]:
    return os.getpid(), os.getppid()


def end_by_itself() -> None:
    os._exit(3)


def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def is_alive(process: int) -> bool:
    """Return whether the process exists, even as a zombie."""
    return Path(f"/proc/{process}").exists()


def test_a_job_runs_in_another_process_which_is_kept(pool: ProcessPool) -> None:
    first, parent = pool.run(process_and_parent)
    assert parent == os.getpid() != first
    assert pool.run(process_and_parent) == (first, parent)
    assert pool.run(math.hypot, 3.0, 4.0) == 5.0
    assert pool.run(sorted, [1, 3, 2], reverse=True) == [3, 2, 1]


def test_what_the_job_raises_is_raised_here_and_the_worker_stays(pool: ProcessPool) -> None:
    worker, _ = pool.run(process_and_parent)
    with pytest.raises(Unsupported) as refusal:
        pool.run(refuse)
    assert (refusal.value.detail, refusal.value.pointer) == ("no theorem covers it", ("events", 3))
    assert pool.run(process_and_parent)[0] == worker


def test_a_job_that_takes_too_long_is_ended(pool: ProcessPool) -> None:
    worker, _ = pool.run(process_and_parent)
    impatient(pool, 0.2)
    with pytest.raises(JobFailed, match=r"longer than 0\.2 s"):
        pool.run_within(30.0, nap, 5.0)
    assert not is_alive(worker)
    impatient(pool, 60.0)
    assert pool.run(math.sqrt, 4.0) == 2.0


def test_a_job_that_takes_too_much_memory_fails_alone(pool: ProcessPool) -> None:
    worker, _ = pool.run(process_and_parent)
    with pytest.raises(JobFailed, match="more than 2 GiB"):
        pool.run(allocate, MEMORY // 4)
    assert not is_alive(worker)
    assert pool.run(allocate, 10) == 10


def test_a_process_that_ends_is_replaced(pool: ProcessPool) -> None:
    with pytest.raises(JobFailed, match="ended before"):
        pool.run(end_by_itself)
    worker, _ = pool.run(process_and_parent)
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(JobFailed, match="ended before"):
        pool.run(math.sqrt, 4.0)
    assert not is_alive(worker)
    assert pool.run(math.sqrt, 4.0) == 2.0


def test_no_more_jobs_than_places_run_at_once(pool: ProcessPool) -> None:
    with ThreadPoolExecutor(6) as threads:
        workers = set(threads.map(lambda _: pool.run(nap, 0.05), range(12)))
    assert len(workers) <= 2
    held = [threading.Thread(target=pool.run, args=(nap, 1.5)) for _ in range(2)]
    for thread in held:
        thread.start()
    time.sleep(0.3)
    impatient(pool, 0.1)
    with pytest.raises(Problem, match="busy") as refused:
        pool.run(math.sqrt, 4.0)
    assert (refused.value.status, refused.value.code) == (503, "numerics_busy")
    impatient(pool, 60.0)
    for thread in held:
        thread.join()


def test_closing_ends_idle_and_busy_processes_and_takes_no_more(pool: ProcessPool) -> None:
    failures: list[BaseException] = []
    workers = {pool.run(process_and_parent)[0]}

    def wait() -> None:
        try:
            pool.run(nap, 50.0)
        except JobFailed as failure:
            failures.append(failure)

    busy = threading.Thread(target=wait)
    busy.start()
    time.sleep(0.3)
    workers.add(pool.run(process_and_parent)[0])
    assert len(workers) == 2
    pool.close()
    busy.join(10)
    assert "ended before" in str(failures[0])
    assert not any(is_alive(worker) for worker in workers)
    with pytest.raises(JobFailed, match="stopping"):
        pool.run(math.sqrt, 4.0)
    pool.close()


def test_a_worker_whose_job_ends_while_the_pool_closes_is_not_kept(pool: ProcessPool) -> None:
    worker = pool._take()
    pool.close()
    pool._keep(worker)
    assert (pool._idle, worker._connection.closed) == ([], True)
    assert not is_alive(worker._process.pid)


def test_ctrl_c_in_the_terminal_is_for_the_parent(pool: ProcessPool) -> None:
    worker, _ = pool.run(process_and_parent)
    os.kill(worker, signal.SIGINT)
    assert pool.run(process_and_parent)[0] == worker


def test_a_worker_ends_when_its_parent_is_gone_or_its_time_is_up() -> None:
    pool = ProcessPool(size=1, seconds=30.0, memory_bytes=MEMORY)
    worker, _ = pool.run(process_and_parent)
    # As after the parent's death: its end of the connection is closed.
    pool._idle[0]._connection.close()
    assert pool._idle[0]._process.wait(20) == 0
    pool.close()
    assert not is_alive(worker)
    # Its own alarm, a second after the parent's limit.
    short = ProcessPool(size=1, seconds=0.5, memory_bytes=MEMORY)
    impatient(short, 30.0)
    with pytest.raises(JobFailed, match="ended before"):
        short_worker(short)
    short.close()


def short_worker(pool: ProcessPool) -> None:
    """A job on a worker that was made with half a second, by a pool that would wait longer."""
    impatient(pool, 0.5)
    worker = pool._take()
    impatient(pool, 30.0)
    pool._keep(worker)
    pool.run(nap, 25.0)


def own_limits() -> tuple[tuple[int, int], tuple[int, int], set[str | None]]:
    threads = {os.environ.get(f"{library}_NUM_THREADS") for library in ("OMP", "OPENBLAS", "MKL")}
    return resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CORE), threads


def test_a_worker_has_its_memory_one_thread_and_leaves_no_core_file(pool: ProcessPool) -> None:
    assert pool.run(own_limits) == ((MEMORY, MEMORY), (0, 0), {"1"})


def test_the_alarm_of_a_worker_is_set_for_its_jobs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would end in the middle of the time in which nobody asks, and the next job with it."""
    done: list[object] = []
    jobs = iter([(done.append, ("job",), {})])

    class Parent:
        def __init__(self, _: int) -> None: ...
        def __enter__(self) -> Parent:
            return self

        def __exit__(self, *_: object) -> None: ...
        def recv(self) -> object:
            try:
                return next(jobs)
            except StopIteration:
                raise EOFError from None

        def send_bytes(self, _: bytes) -> None:
            done.append("reply")

    monkeypatch.setattr(process_worker, "Connection", Parent)
    monkeypatch.setattr(process_worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(process_worker.signal, "setitimer", lambda _, seconds: done.append(seconds))
    monkeypatch.setattr(process_worker.resource, "setrlimit", lambda *_: None)
    process_worker.main(0, MEMORY, 5.0)
    assert done == [5.0, "job", 0.0, "reply"]


def test_the_wait_for_a_place_is_part_of_a_jobs_time(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, _ = pool.run(process_and_parent)
    now = [0.0]
    monkeypatch.setattr(process_pool, "time", SimpleNamespace(monotonic=lambda: now[0]))
    enter = pool.gate.enter

    def enter_late(seconds: float) -> None:
        enter(seconds)
        now[0] += seconds

    monkeypatch.setattr(pool.gate, "enter", enter_late)
    with pytest.raises(JobFailed, match="longer than 10 s"):
        pool.run_within(10.0, nap, 0.5)
    assert not is_alive(worker)


def test_an_answer_is_a_value_or_an_exception() -> None:
    assert process_worker.answer(math.sqrt, (4.0,), {}) == (True, 2.0)
    succeeded, error = process_worker.answer(math.sqrt, (-1.0,), {})
    assert not succeeded
    assert isinstance(error, ValueError)


def test_a_reply_that_is_too_large_fails_where_it_was_made(pool: ProcessPool) -> None:
    with pytest.raises(JobFailed, match="memory"):
        pool.run(bytes, process_worker.MOST_REPLY_BYTES)
    assert len(pool.run(bytes, process_worker.MOST_REPLY_BYTES // 2)) == process_worker.MOST_REPLY_BYTES // 2


def test_only_a_few_wait_for_a_place() -> None:
    pool = ProcessPool(size=1, seconds=30.0, memory_bytes=MEMORY)

    def wait() -> None:
        with suppress(JobFailed):  # the pool is closed before most get a place
            pool.run(nap, 1.0)

    waiting = [threading.Thread(target=wait, daemon=True) for _ in range(1 + MOST_WAITING)]
    for thread in waiting:
        thread.start()
    while pool.gate.waiting < MOST_WAITING:
        time.sleep(0.01)
    with pytest.raises(Problem, match="too many of them are yours already") as refused:
        pool.run(math.sqrt, 4.0)
    assert (refused.value.status, refused.value.code) == (429, "too_many_waiting")
    pool.close()
    for thread in waiting:
        thread.join(20)
    assert (pool.gate.running, pool.gate.waiting) == (0, 0)


def test_one_callers_jobs_are_not_in_anothers_way() -> None:
    pool = ProcessPool(size=1, seconds=30.0, memory_bytes=MEMORY)
    done: list[str] = []

    def ask(caller: str) -> None:
        CALLER.set(caller)
        pool.run(math.sqrt, 4.0)
        done.append(caller)

    with pool.gate, ThreadPoolExecutor(8) as threads:
        for number, caller in enumerate(["a", "a", "a", "a", "b"]):
            threads.submit(copy_context().run, ask, caller)
            while pool.gate.waiting <= number:
                time.sleep(0.001)
        pool.gate.leave()
        while len(done) < 5:
            time.sleep(0.001)
        pool.gate.enter(30.0)
    pool.close()
    assert done == ["a", "b", "a", "a", "a"]


def test_failures_are_counted_by_their_limit(pool: ProcessPool) -> None:
    pool.run(process_and_parent)
    with pytest.raises(JobFailed):
        pool.run_within(0.0, nap, 60.0)
    with pytest.raises(JobFailed):
        pool.run(end_by_itself)
    pool.close()
    with pytest.raises(JobFailed):
        pool.run(math.sqrt, 4.0)
    assert pool.failures == {"time": 1, "memory": 0, "ended": 1, "stopping": 1}
