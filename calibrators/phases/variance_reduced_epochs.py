"""Epochs of variance-reduced descent: a full gradient that stays secret, then noisy steps on small batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from accounting.events import RenyiDp
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, read_integer, read_real
from calibrators.phases.structured import StructuredPhase
from calibrators.units import GRADIENT, STEP, Units

#: At most as many epochs.
MAX_EPOCHS = 10_000


@dataclass(frozen=True, slots=True)
class VarianceReducedEpochs(StructuredPhase):
    """Variance-reduced descent: every epoch takes the full gradient at a snapshot and steps on batches beside it.

    A step draws ``records_per_step`` of the declared records, each set of them alike likely, and takes the mean over
    them of each gradient's change since the snapshot, plus the snapshot's mean gradient over all records, plus noise.
    Every gradient, wherever it is taken, is clipped to l2 norm ``max_grad_norm``, so that a change is no longer than
    twice that. The full gradient has no noise of its own and is never released: each step's noise hides it anew.

    Attributes:
        event: `RenyiDp` of one inner step, counted once for each of them.
        inner_iterations: Steps of each epoch.
        records_per_step: b, the public divisor of a batch's sum.
        max_grad_norm: G, in gradient units.
        noise_stddev_on_mean: sigma, per coordinate, of the noise on a step's direction.
        step_size: Of every step; None in a plan that was made for its privacy alone.
    """

    kind: ClassVar[str] = "variance_reduced_epochs"
    units: ClassVar[Mapping[str, Units]] = {
        "max_grad_norm": GRADIENT,
        "noise_stddev_on_mean": GRADIENT,
        "step_size": STEP,
    }
    inner_iterations: tuple[int, ...]
    records_per_step: int
    max_grad_norm: float
    noise_stddev_on_mean: float
    step_size: float | None

    def __post_init__(self) -> None:
        steps = tuple(read_integer("inner_iterations", count, 1, MAX_COUNT) for count in self.inner_iterations)
        if not 1 <= len(steps) <= MAX_EPOCHS:
            raise InvalidValue(f"there are 1 to {MAX_EPOCHS} epochs", pointer=("inner_iterations",))
        if not isinstance(self.event.mechanism, RenyiDp) or self.event.count != sum(steps):
            raise InvalidValue(
                "epochs of inner steps are one renyi_dp event, with as many counts as there are inner steps",
                pointer=("event",),
            )
        object.__setattr__(self, "inner_iterations", steps)
        records = read_integer("records_per_step", self.records_per_step, 1, MAX_DATASET_SIZE)
        object.__setattr__(self, "records_per_step", records)
        for name, largest in (("max_grad_norm", 1e12), ("noise_stddev_on_mean", 1e30)):
            object.__setattr__(self, name, read_real(name, getattr(self, name), 0.0, largest, open_lower=True))
        if self.step_size is not None:
            size = read_real("step_size", self.step_size, 0.0, 1e12, open_lower=True)
            object.__setattr__(self, "step_size", size)

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
    def is_executable(self) -> bool:
        return self.step_size is not None
