"""This module limits the number of threads of the matrix library, so that a core can be left free."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController


class _Limit:
    """A limit that takes one core from products as long as any run of this process asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._limiter: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._holders == 0:
                blas = ThreadpoolController().select(user_api="blas")
                # The limit is never above the present number of threads: a worker may have fewer threads than there are
                # cores.
                now = [library["num_threads"] for library in blas.info()]
                self._limiter = blas.limit(limits=max(1, min([_cores() - 1, *now])))
            self._holders += 1

    def leave(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._limiter.restore_original_limits()


_LIMIT = _Limit()


@contextmanager
def one_core_left() -> Iterator[None]:
    """Make NumPy's products leave a core to the thread that draws the noise, within the block.

    A product waits for the slowest of its threads, and one that shares its core is slow: where noise takes about as
    long as products do, they are done sooner on fewer cores.
    """
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
