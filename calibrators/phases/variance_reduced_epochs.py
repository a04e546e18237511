"""Epochs of variance-reduced descent: a full gradient that stays secret, then noisy steps on small batches."""

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

#: The most epochs.
MAX_EPOCHS = 10_000
_WORDS = "epochs of inner steps are one renyi_dp event, with as many counts as there are inner steps"


@dataclass(frozen=True, slots=True)
class VarianceReducedEpochs(StructuredPhase):
    """Variance-reduced descent: every epoch takes the full gradient at a snapshot and steps on batches beside it.

    A step draws ``records_per_step`` of the declared records, each set of them equally likely, and takes the mean over
    them of each gradient's change since the snapshot, plus the snapshot's mean gradient over all records, plus noise.
    Every gradient, wherever it is taken, is clipped to l2 norm ``max_grad_norm``, so a change is no longer than twice
    that. The full gradient has no noise of its own and is never released: each step's noise hides it anew.

    Attributes:
        event: `RenyiDp` of one inner step, counted once for each of them.
        inner_iterations: The number of steps of each epoch.
        records_per_step: The number b of records per step, the public divisor of a batch's sum.
        max_grad_norm: The clip threshold G, in gradient units.
        noise_stddev_on_mean: sigma of the noise on a step's direction, per coordinate.
        step_size: The size of every step; None in a plan that was made for its privacy alone.
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
            raise InvalidValue(f"the number of epochs must be 1 to {MAX_EPOCHS}", pointer=("inner_iterations",))
        if self.event.count != self.steps:
            raise InvalidValue(_WORDS, pointer=("event",))

    @property
    def steps(self) -> int:
        """Inner steps of all epochs."""
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
        """Return the noise on a batch's sum of changes of gradients, each at most twice as long as the bound."""
        return Noise(
            stddev_on_sum=self.noise_stddev_on_mean * self.records_per_step,
            stddev_on_mean=self.noise_stddev_on_mean,
            l2_sensitivity=2.0 * relation.sensitivity * self.max_grad_norm,
        )

    @property
    def is_executable(self) -> bool:
        return self.step_size is not None
