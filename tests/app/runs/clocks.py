"""Private runs on a clock that the test turns: what takes time says so, and waiting takes none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from app.runs import lifecycle, timetable, worker
from app.runs.executors.local import LocalExecutor
from app.runs.executors.paces import Pace
from app.runs.job import Job
from app.runs.work import Work
from tests.app.runs.conftest import Service
from trainer.checkpoint import Checkpoints
from trainer.run import RunResult

#: What the paced executor says of every run.
PACE = Pace(reading_s=0.4, preparing_s=0.2, step_s=0.08, scoring_s=0.12)


class PacedExecutor(LocalExecutor):
    """Trains here, and says of every run that it takes as long as it is told.

    Attributes:
        pace: What it says.
        before_step: Called before each step.
        asked: The shapes of the runs that it was asked about.
    """

    def __init__(self, pace: Pace = PACE, before_step: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._pace, self._before_step = pace, before_step
        self.asked: list[str] = []

    def pace(self, work: Work) -> Pace:
        self.asked.append(work.shape)
        return self._pace

    def train(
        self,
        job: Job,
        checkpoints: Checkpoints,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> RunResult:
        def progress(done: int, total: int) -> None:
            self._before_step()
            on_progress(done, total)

        return super().train(job, checkpoints, progress, is_cancelled)


class TurnedTime:
    """Takes the place of the module `time`: sleeping turns the clock, and takes no time. Threads may share it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            # A hair too little, after rounding, would be waited for for ever.
            self.now += max(1e-6, seconds)


class Watch:
    """Notes when the parts of claims are told, in seconds since the times of the claim were fixed.

    Attributes:
        told: By the name of each part, its moments.
        shown: Pairs of a moment and the steps that were shown then.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float] = time.monotonic) -> None:
        self.told: dict[str, list[float]] = {}
        self.shown: list[tuple[float, int]] = []
        self.began = clock()
        self._clock = clock
        monkeypatch.setattr(worker, "timetable_for", self._beginning(worker.timetable_for))
        for name in ("start", "end", "hand_back"):
            monkeypatch.setattr(lifecycle, name, self._noting(name, getattr(lifecycle, name)))
        monkeypatch.setattr(
            timetable.repository, "record_progress", self._showing(timetable.repository.record_progress)
        )
        monkeypatch.setattr(worker.log, "error", lambda *_args, **_facts: self._note("logged"))

    def elapsed(self) -> float:
        return self._clock() - self.began

    def _note(self, name: str) -> None:
        self.told.setdefault(name, []).append(round(self.elapsed(), 6))

    def _beginning(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            made = make(*args)
            self.began = self._clock()
            return made

        return wrapped

    def _noting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:
            self._note(name)
            return call(*args, **named)

        return wrapped

    def _showing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(session: Any, run: Any, steps: int) -> Any:
            self.shown.append((self.elapsed(), steps))
            return call(session, run, steps)

        return wrapped


class Turned:
    """A service whose private runs take as long as their rows and steps say, on a clock that is turned."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service, self.time = service, TurnedTime()
        monkeypatch.setattr(timetable, "time", self.time)
        self.watch = Watch(monkeypatch, self.time.monotonic)
        self.row_s, self.step_s = 0.0002, 0.03
        self.executor = PacedExecutor(before_step=lambda: self.time.sleep(self.step_s))
        load = worker.load_job

        def slow_load(*args: Any) -> Job:
            job = load(*args)
            self.time.sleep(self.row_s * len(job.training.labels))
            return job

        monkeypatch.setattr(worker, "load_job", slow_load)

    def work(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        assert worker.work_once(self.service.context, "wrk_test", should_stop, self.executor)
