"""This module starts, stops and times the training loop of a side from another process. Commands and answers are lines
of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Command:
    """A command to take ``warm`` steps that are not timed, and then ``steps`` steps that are. If both are 0, the side
    is to stop."""

    warm: int
    steps: int


@dataclass(frozen=True, slots=True)
class Timed:
    """The answer to a command.

    Attributes:
        seconds: The time of all timed steps together.
        peak_bytes: The process's largest resident memory so far.
    """

    seconds: float
    peak_bytes: int


class Pace:
    """An object that holds a side back until it may take the next step. A side calls it once when it is ready, and
    again after every step.

    Between two rounds the side waits, and may prepare work for later steps. The steps that are not timed use this work
    up.

    Attributes:
        over: Whether the side is to take no further step.
        settle: A function that waits until a device has finished its work. It is called before the clock is read.
    """

    def __init__(
        self, commands: Iterator[str], answers: TextIO, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.settle: Callable[[], object] = lambda: None
        self._clock = clock
        self._commands = commands
        self._answers = answers
        self._left = 1
        self._timed = 0
        self._began: float | None = None
        self.over = False

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._end_of_part()

    def _end_of_part(self) -> None:
        self.settle()
        now = self._clock()
        if self._timed:  # the steps that are not timed have ended
            self._left, self._timed, self._began = self._timed, 0, now
            return
        if self._began is not None:
            self._say(Timed(now - self._began, peak_bytes()))
        command = Command(**json.loads(next(self._commands)))
        self._left, self._timed, self._began = command.warm, command.steps, None
        self.over = command.steps == 0
        if command.warm == 0 and not self.over:
            self._end_of_part()

    def _say(self, timed: Timed) -> None:
        self._answers.write(json.dumps(asdict(timed)) + "\n")
        self._answers.flush()


def peak_bytes() -> int:
    """Return the largest resident memory of this program so far. The kernel's ``ru_maxrss`` is not used, since it may
    be that of the parent process.

    Raises:
        RuntimeError: If the system does not report it. Linux does.
    """
    return _memory("VmHWM")


def resident_bytes() -> int:
    """Return the present resident memory of this program. It raises the same errors as `peak_bytes`."""
    return _memory("VmRSS")


def _memory(name: str) -> int:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    raise RuntimeError("this benchmark reads its memory from /proc/self/status, which is not here")
