"""The memory of a process and of all under it, looked at once a second."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import psutil

LOOK_S = 1.0
MEGABYTE = 2**20
#: A process that lived shorter has no slope.
FEWEST_LOOKS = 30

Looks = dict[str, list[tuple[float, float]]]


@contextmanager
def watched(process: int) -> Iterator[Looks]:
    """Seconds and megabytes of resident memory, by the process's name and number; also of all together (`sum`)."""
    looks: Looks = defaultdict(list)
    ended = threading.Event()

    def watch() -> None:
        began = time.monotonic()
        while not ended.wait(LOOK_S):
            root, total = psutil.Process(process), 0.0
            for one in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    megabytes = one.memory_info().rss / MEGABYTE
                    total += megabytes
                    looks[f"{name_of(one, root)} {one.pid}"].append((time.monotonic() - began, megabytes))
            looks["sum"].append((time.monotonic() - began, total))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield looks
    finally:
        ended.set()
        thread.join()


def name_of(process: psutil.Process, root: psutil.Process) -> str:
    """What the process is for: its module."""
    if process.pid == root.pid:
        return "server"
    arguments = process.cmdline()
    return arguments[arguments.index("-m") + 1] if "-m" in arguments else "process"


def slope(looks: Sequence[tuple[float, float]], after: float) -> float | None:
    """Megabytes a minute, by least squares over the looks after so many seconds; None where there are too few.

    >>> round(slope([(second, 100 + second / 60) for second in range(600)], 60), 6)
    1.0
    """
    seconds, megabytes = np.array([look for look in looks if look[0] >= after]).reshape(-1, 2).T
    if len(seconds) < FEWEST_LOOKS:
        return None
    return 60 * float(np.polyfit(seconds, megabytes, 1)[0])
