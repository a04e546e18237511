"""This module describes how step sizes change over a run: they are constant, or fall towards the end linearly or along
half a cosine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from accounting.numbers import read_real


class Course(StrEnum):
    """The way in which step sizes fall over a run."""

    CONSTANT = "constant"
    """All are equal."""
    LINEAR = "linear"
    """They fall linearly."""
    COSINE = "cosine"
    """They fall along half a period of a cosine: slowly, fast, then slowly again."""


@dataclass(frozen=True, slots=True)
class StepSizeSchedule:
    """Step sizes relative to the largest step size. They are 1 at first and fall towards the end of the run.

    Let u = (t / T - (1 - cooldown)) / cooldown be the completed part of the fall at step t = 0..T-1 of T, and let f be
    final_share. The relative step size is 1 if u <= 0. Otherwise it is 1 - (1 - f) u for a line and f + (1 - f) (1 +
    cos(pi u)) / 2 for a cosine. It would reach f only at t = T, after the last step, so no step has size 0.

    Attributes:
        kind: The way in which the step sizes fall.
        cooldown: The share of the steps, at the end of the run, in which the step sizes fall; in (0, 1].
        final_share: The last step size as a share of the largest; in [0, 1].

    Raises:
        InvalidValue: If a number is outside its range.

    >>> StepSizeSchedule(Course.LINEAR, cooldown=0.5).shares(8)
    (1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25)
    >>> [round(share, 3) for share in StepSizeSchedule(Course.COSINE, final_share=0.5).shares(4)]
    [1.0, 0.927, 0.75, 0.573]
    """

    kind: Course = Course.CONSTANT
    cooldown: float = 1.0
    final_share: float = 0.0

    def __post_init__(self) -> None:
        read_real("cooldown", self.cooldown, 0.0, 1.0, open_lower=True)
        read_real("final_share", self.final_share, 0.0, 1.0)

    @property
    def is_constant(self) -> bool:
        """Return whether all steps have one size."""
        return self.kind is Course.CONSTANT or self.final_share == 1.0

    def shares(self, steps: int) -> tuple[float, ...]:
        """Return the step sizes of a run of this many steps, divided by the largest one."""
        return tuple(self._share(max(0.0, 1.0 - (1.0 - step / steps) / self.cooldown)) for step in range(steps))

    def _share(self, fallen: float) -> float:
        if self.is_constant:
            return 1.0
        left = 1.0 - fallen if self.kind is Course.LINEAR else 0.5 * (1.0 + math.cos(math.pi * fallen))
        return self.final_share + (1.0 - self.final_share) * left
