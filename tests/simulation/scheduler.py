"""Who goes on, and what fails: decided by one seeded generator, one step after the other, in one thread."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet


class Crashed(GreenletExit):
    """The process is gone: what it was at ends here, and nothing of it that was not committed stays."""


class Fault(AssertionError):
    """The ledger did what it must not do."""


@dataclass(eq=False)
class Task:
    """Something that a process is at.

    Attributes:
        process: Which one.
        number: In the order in which tasks began.
        about: What it is for; given back when it ends.
        is_blocked: It waits for another task.
    """

    process: Any
    number: int
    about: Any
    work: greenlet
    is_blocked: bool = False


@dataclass
class Scheduler:
    """Runs tasks, each from step to step.

    Attributes:
        rng: The only source of chance.
        steps: How many were taken.
        happened: Counts of faults and other events, for the report.
    """

    rng: random.Random
    steps: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    tasks: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hub = getcurrent()
        self._current: Task | None = None
        self._begun = 0
        self._trace = hashlib.sha256()

    @property
    def current(self) -> Task | None:
        """The task that is running; None between two."""
        return self._current

    @property
    def trace_hash(self) -> str:
        """One hash of all steps so far: who took them, and where."""
        return self._trace.hexdigest()

    def begin(self, process: Any, about: Any, work: Callable[[], Any]) -> None:
        """Have a task that begins when it is chosen."""
        self._begun += 1
        self.tasks.append(Task(process, self._begun, about, greenlet(work, self._hub)))

    def step(self, where: str) -> None:
        """Let others go on: called by a task wherever another process could act, or this one could die."""
        task = self._current
        if task is None:
            return  # what the simulation itself looks at
        self.steps += 1
        self._trace.update(b"%s %d\n" % (where.encode(), task.number))
        self._hub.switch(None)

    def block(self, where: str) -> None:
        """Wait until `wake`, or until something is thrown into the task."""
        task = self._current
        assert task is not None, "the simulation itself waits for nobody"
        task.is_blocked = True
        try:
            self.step(where)
        finally:
            task.is_blocked = False

    def wake(self, task: Task) -> None:
        """Let a blocked task be chosen again."""
        task.is_blocked = False

    def runnable(self) -> list[Task]:
        """The tasks that may go on."""
        return [task for task in self.tasks if not task.is_blocked]

    def go_on(self, task: Task, error: BaseException | None = None) -> tuple[bool, Any]:
        """Let a task take a step, or throw something into it; whether it has ended, and with what."""
        self._current = task
        try:
            value = task.work.switch() if error is None else task.work.throw(error)
        finally:
            self._current = None
        if not task.work.dead:
            return False, None
        self.tasks.remove(task)
        return True, value

    def note(self, what: str, *about: object) -> None:
        """Count something that happened, and let the trace have it."""
        self.happened[what] += 1
        self._trace.update(f"{what} {about}\n".encode())
