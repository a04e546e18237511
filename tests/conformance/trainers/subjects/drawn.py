"""A run as a reference transcription sees it: in the letters of a paper, with what was drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.geometry import L2Penalty
from calibrators.plan import BoundedSteps, Clip, Plan
from trainer.clipping import margin

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A run as a transcription sees it.

    Attributes:
        plan: Of the run.
        start: The first point.
        gradient: Of one record, by its number, at a point.
        batches: Record numbers of each step.
        noises: Of each step.
        order: Record numbers in a secret order, for algorithms that read them by it.
        chosen: The step that a random release takes its point from.
        dtype: Of the records and of the sums of a few lanes.
    """

    plan: Plan
    start: Vector
    gradient: Callable[[Vector, int], Vector]
    batches: Sequence[Sequence[int]]
    noises: Sequence[Vector]
    order: Sequence[int]
    chosen: int
    dtype: str

    @property
    def margin(self) -> float:
        """How far contributions stay below their bound where they are summed in the run's dtype."""
        return margin(self.dtype)

    @property
    def phase(self) -> BoundedSteps:
        [phase] = self.plan.phases
        assert isinstance(phase, BoundedSteps)
        return phase

    @property
    def clip(self) -> float:
        """The threshold that is clipped to; the noise is that of the plan's."""
        bound = self.phase.gradient_bound
        assert isinstance(bound, Clip)
        return bound.max_grad_norm * (1.0 - self.margin)

    @property
    def step_size(self) -> float:
        size = self.phase.step_size
        assert isinstance(size, float)
        return size

    def after_ridge(self, point: Vector) -> Vector:
        """A ridge that the paper does not have is a proximal step after the noisy one."""
        penalty = self.plan.penalty
        strength = penalty.strength if isinstance(penalty, L2Penalty) else 0.0
        return point / (1.0 + self.step_size * strength)


#: From what a run drew to what it releases.
Transcription = Callable[[Drawn], Vector]
