"""The schedule of a private run: when its training begins, what progress is shown, and when its end is shown.

This module is pure. The schedule follows from public numbers, and determines every visible time of a private run. A run
that is ready earlier waits. A run that is late ends at the next multiple of a public interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

#: The interval of a late run is the whole time of the run divided by this number, rounded up to a multiple of the usual
#: interval.
LATE_PARTS = 20


@dataclass(frozen=True)
class Schedule:
    """Public times of a run, in seconds.

    Attributes:
        steps: The number of steps of the whole run.
        loading_s: The time from the start of a claim to the start of training, which is enough to read the rows.
        step_s: The time of a step.
        ending_s: The time from the last step to the end, for scores and the model file.
        interval_s: Everything is shown at a multiple of this time after the start of the claim.
        checkpoint_steps: The largest number of steps that are lost with a worker.
    """

    steps: int
    loading_s: float
    step_s: float
    ending_s: float
    interval_s: float
    checkpoint_steps: int

    def bound_s(self, first: int = 0) -> float:
        """Return the time that a claim which begins at step ``first`` needs, from its start to the end of the run.

        >>> Schedule(steps=100, loading_s=1.0, step_s=0.5, ending_s=0.7, interval_s=1.0, checkpoint_steps=10).bound_s()
        52.0
        """
        return self._up(self.loading_s + (self.steps - first) * self.step_s + self.ending_s)

    @property
    def late_interval_s(self) -> float:
        """Return the late interval: a late run ends at a multiple of it, counted from the planned release."""
        return self._up(self.bound_s() / LATE_PARTS)

    def steps_at(self, seconds: float, first: int = 0) -> int:
        """Return the largest number of steps that may be shown ``seconds`` after the start of a claim that began at
        step ``first``.

        >>> schedule = Schedule(100, loading_s=1.0, step_s=0.5, ending_s=0.7, interval_s=1.0, checkpoint_steps=10)
        >>> schedule.steps_at(3.0, first=2)
        6
        """
        return min(self.steps, first + max(0, math.floor((seconds - self.loading_s) / self.step_s)))

    def first_step(self, shown: int) -> int:
        """Return the step at which the next claim appears to begin, if ``shown`` steps of the last claim were shown.

        A worker that kept to the schedule has a checkpoint of that step or of a later one.
        """
        return max(0, shown - self.checkpoint_steps)

    def stop_s(self) -> float:
        """Return the time that a worker has from the order to stop to the end of its part of the run."""
        return self._up(self.step_s + self.interval_s / 2.0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Schedule:
        return Schedule(**stored)

    def _up(self, seconds: float) -> float:
        return next_multiple(seconds, self.interval_s)


def next_multiple(seconds: float, interval_s: float) -> float:
    """Return the first multiple of the interval, at least one, that is not before ``seconds``."""
    # Rounding may raise a multiple slightly. Without the subtraction, the result would then be the next multiple.
    return max(1, math.ceil(seconds / interval_s - 1e-9)) * interval_s


def seconds_to_release(bound_s: float, late_s: float, planned_s: float | None, longest_s: float) -> float:
    """Return the time from the start of a claim to its run's release.

    A run that continues after its worker was lost is released at the time that its first claim announced, if there is
    enough time. Otherwise it is released a multiple of the late interval after that time.

    Args:
        bound_s: The time that this claim needs.
        late_s: The late interval.
        planned_s: The time from now to the release that an earlier claim announced; None for a first claim.
        longest_s: The time that a claim of the whole run needs. A planned time beyond it comes from a clock that was
            changed.
    """
    if planned_s is None:
        return bound_s
    if bound_s <= planned_s <= longest_s:
        return planned_s
    return bound_s + (planned_s - bound_s) % late_s


def longest(schedules: Iterable[Schedule]) -> Schedule:
    """Return a schedule in which each part is as long as in the longest of these. All trials of one selection share it.

    The time of a trial must not reveal its cell.
    """
    found = list(schedules)
    return Schedule(
        max(each.steps for each in found),
        max(each.loading_s for each in found),
        max(each.step_s for each in found),
        max(each.ending_s for each in found),
        max(each.interval_s for each in found),
        max(each.checkpoint_steps for each in found),
    )
