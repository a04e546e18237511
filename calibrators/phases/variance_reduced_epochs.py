"""Phases of variance-reduced descent. Each epoch computes a full gradient, which stays secret, and then takes noisy
steps on small batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real, Whole
from accounting.errors import InvalidValue
from accounting.events import RenyiDp
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation
from calibrators.phases.structured import Charge, MaxGradNorm, Noise, Positive, Records, StructuredPhase
from calibrators.provenance import GRADIENT, STEP

#: The most epochs in a plan.
MAX_EPOCHS = 10_000
_WORDS = "a phase of epochs must have one renyi_dp event, whose count is the number of inner steps"


@dataclass(frozen=True, slots=True)
class VarianceReducedEpochs(StructuredPhase):
    """Variance-reduced descent. Every epoch takes the full gradient at a snapshot point, and uses it in steps on
    batches.

    A step draws ``records_per_step`` of the declared records; each set of this size is equally likely. The direction is
    the mean of these records' gradient changes since the snapshot, plus the mean gradient of all records at the
    snapshot, plus noise. Every gradient is clipped to l2 norm ``max_grad_norm``, so a change is at most twice as long.
    The full gradient has no noise of its own and is never released; the noise of each step hides it.

    Attributes:
        event: `RenyiDp` of one inner step. The count is the number of inner steps.
        inner_iterations: The number of steps of each epoch.
        records_per_step: The number b of records per step, the public divisor of a batch's sum.
        max_grad_norm: The clip threshold G, in gradient units.
        noise_stddev_on_mean: The standard deviation sigma of the noise on a step's direction, per coordinate.
        step_size: The size of every step. None in a plan that was made only to compute its privacy and cannot run.
    """

    kind = "variance_reduced_epochs"
    units: ClassVar = {
        "max_grad_norm": GRADIENT,
        "noise_stddev_on_mean": GRADIENT,
        "step_size": STEP,
    }
    charge = Charge((RenyiDp,), _WORDS, once=False, pointer=("event",))
    inner_iterations: tuple[Annotated[int, Whole(1, MAX_COUNT)], ...]
    records_per_step: Records
    max_grad_norm: MaxGradNorm
    noise_stddev_on_mean: Positive
    step_size: Annotated[float | None, Real(0.0, open_lower=True)]

    def check(self) -> None:
        if not 1 <= len(self.inner_iterations) <= MAX_EPOCHS:
            raise InvalidValue(f"the number of epochs must be from 1 to {MAX_EPOCHS}", pointer=("inner_iterations",))
        if self.event.count != self.steps:
            raise InvalidValue(_WORDS, pointer=("event",))

    @property
    def steps(self) -> int:
        """The number of inner steps of all epochs."""
        return sum(self.inner_iterations)

    @property
    def batch_size(self) -> int:
        return self.records_per_step

    @property
    def contribution_bound(self) -> float:
        return self.max_grad_norm

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.noise_stddev_on_mean,)

    @property
    def smallest_noise(self) -> float:
        return self.noise_stddev_on_mean * self.records_per_step / self.max_grad_norm

    def noise(self, relation: NeighboringRelation) -> Noise:
        """Return the noise on a batch's sum of gradient changes. Each change is at most twice as long as the gradient
        bound.
        """
        return Noise(
            stddev_on_sum=self.noise_stddev_on_mean * self.records_per_step,
            stddev_on_mean=self.noise_stddev_on_mean,
            l2_sensitivity=2.0 * relation.sensitivity * self.max_grad_norm,
        )

    @property
    def is_executable(self) -> bool:
        return self.step_size is not None
