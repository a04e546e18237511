"""This module starts, stops and times a side's loop of steps from outside, by lines of JSON: a command and its
answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Command:
    """A command to take ``warm`` steps without timing, then ``steps`` timed ones. If both are 0, it is the command to
    stop."""

    warm: int
    steps: int


@dataclass(frozen=True, slots=True)
class Timed:
    """The answer to a command.

    Attributes:
        seconds: The time from the end of the last step without timing to the end of the last step.
        peak_bytes: The process's largest resident memory so far.
    """

    seconds: float
    peak_bytes: int


class Pace:
    """A side calls this once when it is ready to step, and again after every step. The call returns when the side may
    take the next step.

    Between two rounds the side waits and may prepare work ahead; the steps without timing use this work up.

    Attributes:
        over: Whether no further step is wanted.
        settle: A function that is called before the clock is read; it waits until a device has finished its work.
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
        if self._timed:  # these steps are not timed
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
    """Return the largest resident memory of this program so far. The kernel's ``ru_maxrss`` may be that of its parent.

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
