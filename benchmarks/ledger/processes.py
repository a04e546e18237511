"""This module does the same work in several processes at once. Each process waits until all are ready, and then all
begin together."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from queue import Empty
from typing import Any, TypeVar

from benchmarks.http_servers import AUTHORIZATION

T = TypeVar("T")

#: A function that a process calls when it is ready. The call returns when all processes are ready.
Gate = Callable[[], object]
GATE_S = 60.0
POLL_S = 0.5


def at_once(work: Callable[..., T], arguments: Sequence[tuple[Any, ...]], *, limit_s: float = 300.0) -> list[T]:
    """Return the results of ``work(gate, *arguments[i])`` in each of the processes, in the order of ``arguments``.

    Raises:
        RuntimeError: If a process raised (its error is the cause), ended without a result, or did not end in time.
    """
    # This process may have threads, so it is not forked. Instead, a fork server imports the work once and is forked.
    start_method = multiprocessing.get_context("forkserver")
    start_method.set_forkserver_preload([work.__module__])
    results, barrier = start_method.Queue(), start_method.Barrier(len(arguments))
    # The fork server has the environment of its start, so the header is passed to each process.
    header = os.environ.get(AUTHORIZATION, "")
    processes = [
        start_method.Process(target=_work, args=(work, given, number, barrier, results, header), daemon=True)
        for number, given in enumerate(arguments)
    ]
    for process in processes:
        process.start()
    try:
        outcomes = _outcomes(results, processes, time.monotonic() + limit_s)
    finally:
        for process in processes:
            process.join(1.0)
            process.kill()
            process.join()
            process.close()
    for outcome in outcomes.values():
        if isinstance(outcome, BaseException):
            raise RuntimeError("a process of the benchmark failed") from outcome
    return [outcomes[number] for number in range(len(arguments))]


def _outcomes(results: Any, processes: Sequence[Any], until: float) -> dict[int, Any]:
    outcomes: dict[int, Any] = {}
    while len(outcomes) < len(processes):
        # The ended processes are listed before the queue is read. So the queue has everything that they put there.
        silent = [number for number, process in enumerate(processes) if process.exitcode is not None]
        try:
            number, outcome = results.get(timeout=POLL_S)
        except Empty:
            if not outcomes.keys() >= set(silent):
                raise RuntimeError("a process of the benchmark ended without an answer") from None
            if time.monotonic() > until:
                raise RuntimeError("a process of the benchmark did not end within the time limit") from None
        else:
            outcomes[number] = outcome
    return outcomes


def _work(work: Callable[..., T], given: tuple[Any, ...], number: int, barrier: Any, results: Any, header: str) -> None:
    os.environ[AUTHORIZATION] = header
    try:
        results.put((number, work(lambda: barrier.wait(GATE_S), *given)))
    except BaseException as error:
        barrier.abort()
        results.put((number, error))
        raise
