"""Keep one claim of a private run to its schedule, so that nothing about the claim is shown before its public time.

The worker trains as fast as it can. Only this object decides what others see of the run. A thread of its own writes the
progress at the ticks of the schedule, at most as far as the schedule allows, and looks whether the run is to be
cancelled. So neither the shown progress nor the time of showing it depends on the worker's speed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

import structlog

from app.context import Context
from app.runs import lifecycle, marks, repository
from app.runs.executors.interface import Executor
from app.runs.marks import INTERVALS_AHEAD, Permits
from app.runs.pacing import schedule_for
from app.runs.schedule import Schedule, next_multiple, seconds_to_release
from app.tables.runs import Run
from app.tables.states import RunState
from trainer.exact.gaussian import load_noise

log = structlog.get_logger()

#: The seconds after which a waiting worker checks again whether it must stop.
LOOK_INTERVAL_S = 0.05
#: The farthest time of release that is shown, in seconds from now: some 30 years.
FARTHEST_S = 10**9


class Timetable:
    """The public times of one claim, counted from its start on a clock that nobody sets.

    The block lasts as long as the claim; progress is shown from `begin` on.

    Args:
        context: The process's context.
        claimed: The claimed run.
        schedule: The schedule of the run.
        release_s: The seconds from now to the release.

    Attributes:
        first: The step at which the claim appears to others to begin.
        is_cancelled: Whether the run is known to be cancelled or taken over.
    """

    def __init__(self, context: Context, claimed: Run, schedule: Schedule, release_s: float) -> None:
        self.first = schedule.first_step(claimed.steps_done)
        self._context, self._claimed, self._schedule, self._release_s = context, claimed, schedule, release_s
        self._began = time.monotonic()
        self._done = self.first
        self._given_up_at: float | None = None
        self._permits = Permits(None)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="timetable", daemon=True)

    def __enter__(self) -> Timetable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def is_cancelled(self) -> bool:
        return self._given_up_at is not None

    def on_progress(self, done: int, total: int) -> None:
        """Note the number of finished steps. It is shown when the schedule has reached it.

        If the run has marks, wait until the next step is marked.
        """
        self._done = done
        if done < total:
            self._permits.wait_for(done + 1)

    @property
    def first_mark(self) -> int:
        """Return how many steps are marked when training begins."""
        return self._mark_at(self._schedule.loading_s)

    def _mark_at(self, seconds: float) -> int:
        return self._schedule.steps_at(seconds + INTERVALS_AHEAD * self._schedule.interval_s, self.first)

    def wait_for_training(self) -> None:
        """Wait until the loading time is over, even if loading failed or the worker was told to stop."""
        late_s = self._schedule.interval_s
        self._sleep_until(_due(self._elapsed(), self._schedule.loading_s, late_s))

    def begin(self, marked: int | None = None) -> None:
        """Note that the charge has started. From now on, show progress, and mark further steps if some are already
        marked."""
        self._permits = Permits(marked)
        self._thread.start()

    def give_up(self) -> None:
        """Note that the run was cancelled before its start. The cancellation was noticed at a public time."""
        self._given_up_at = self._elapsed()

    def wait_for_release(self, must_stop: Callable[[], bool]) -> bool:
        """Wait until the end of the run may be shown; return False if this claim must not show it.

        Args:
            must_stop: Says whether the claim is lost or the worker is to stop. Then this claim ends at the next tick.
        """
        ready_s = self._elapsed()
        while not must_stop():
            # The end is computed anew each time, since a cancellation changes it.
            left = self._end(ready_s) - self._elapsed()
            if left <= 0.0:
                return True
            time.sleep(min(left, LOOK_INTERVAL_S))
        self.wait_for_tick()
        return False

    def wait_for_tick(self) -> None:
        """Wait until the next tick, at which a claim ends if its run is handed back."""
        self._sleep_until(next_multiple(self._elapsed(), self._schedule.interval_s))

    def _end(self, ready_s: float) -> float:
        schedule = self._schedule
        if self._given_up_at is None:
            return _due(ready_s, self._release_s, schedule.late_interval_s)
        given_up = next_multiple(self._given_up_at, schedule.interval_s)
        return _due(ready_s, given_up + schedule.stop_s(), schedule.interval_s)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _sleep_until(self, moment: float) -> None:
        time.sleep(max(0.0, moment - self._elapsed()))

    def _tell(self) -> None:
        """Write the progress that the schedule allows at each tick. If the database is slow, ticks are skipped."""
        interval_s = self._schedule.interval_s
        while True:
            tick = (math.floor(self._elapsed() / interval_s) + 1) * interval_s
            if self._over.wait(max(0.0, tick - self._elapsed())):
                return
            marked = self._permits.marked
            if marked is not None:
                marked = max(marked, self._mark_at(tick))
            shown = min(self._done, self._schedule.steps_at(tick, self.first), self._claimed.steps_total)
            try:
                with self._context.database.write() as session:
                    state = repository.record_progress(session, self._claimed, shown)
                    if state == RunState.RUNNING and marked is not None:
                        marks.raise_to(session, self._claimed, marked)
            except Exception as error:
                # A run that is paid for must not fail because a counter was not stored. The database may be back before
                # the end.
                log.warning("progress_not_stored", run_id=self._claimed.id, error_type=type(error).__name__)
                continue
            if state != RunState.RUNNING:
                self._given_up_at = tick
                self._permits.end()
                return
            if marked is not None:
                self._permits.give(marked)


def timetable_for(context: Context, claimed: Run, executor: Executor) -> Timetable | None:
    """Return the timetable of a claim, made before anything private is read. None for public data, which have nothing
    to hide.

    Raises:
        RefusedError: the run was taken over.
    """
    schedule = schedule_for(context, claimed, executor)
    if schedule is None:
        return None
    # The compiled code is loaded here, since the schedule includes no time for that: another process may have measured
    # it.
    load_noise()
    now = context.clock()
    planned_s = None if claimed.release_at is None else (claimed.release_at - now).total_seconds()
    bound_s = schedule.bound_s(schedule.first_step(claimed.steps_done))
    release_s = seconds_to_release(bound_s, schedule.late_interval_s, planned_s, schedule.bound_s())
    lifecycle.schedule(
        context, claimed, schedule.to_json(), now + timedelta(seconds=min(math.ceil(release_s), FARTHEST_S))
    )
    return Timetable(context, claimed, schedule, release_s)


def _due(ready_s: float, planned_s: float, late_s: float) -> float:
    """Return the first moment at which the end may be shown: the planned one, or a multiple of the late interval after
    it."""
    if ready_s <= planned_s:
        return planned_s
    return planned_s + next_multiple(ready_s - planned_s, late_s)
