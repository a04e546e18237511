"""Phases of full-batch noisy subgradient steps on blocks of records. Each block starts where the one before ended, and
stays near that point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real, Whole
from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian
from calibrators.phases.structured import Charge, MaxGradNorm, Positive, Records, StructuredPhase
from calibrators.provenance import GRADIENT, PARAMETER, SMOOTHNESS, STEP

#: The most blocks of a plan, and the most steps of a block. Every JSON reader can represent 2^53 exactly.
MAX_BLOCKS = 1000
MAX_BLOCK_STEPS = 2**53
#: A block's noise may be below the charged noise by this relative amount because of rounding. The trainer's margin
#: covers this.
_ROUNDING = 1e-12
#: The form of the event that charges steps on disjoint blocks of records.
ONE_GAUSSIAN = Charge(
    (Gaussian,), "a phase of blocks must have one gaussian event over full batches, with count 1", full_batch=True
)


@dataclass(frozen=True, slots=True)
class LocalizedPhase(StructuredPhase):
    """Blocks of full-batch noisy steps. Block i starts from the point w' at which block i - 1 ended, and stays near w'.

    A step of block i takes the mean over all its records of gradients clipped to l2 norm ``max_grad_norm[i]``, adds
    Gaussian noise of standard deviation ``noise_stddev_on_mean[i]`` per coordinate and ``regularizer[i]`` (w - w'),
    moves by ``step_size[i]`` in the opposite direction, and is projected on the domain and on the l2 ball of
    ``radius[i]`` about w'. No record is in two blocks, so a record pays only for the steps of one block.

    Attributes:
        event: One Gaussian mechanism over full batches, count 1. The steps of each block together cost no more than
            this event: with z the event's noise multiplier, ``inner_iterations`` C^2 / n^2 <= sigma^2 / z^2.
        records: The number n_i of records of each block.
        inner_iterations: The number of steps in each block.
        max_grad_norm: The clip threshold C_i.
        noise_stddev_on_mean: The standard deviation sigma_i of the noise on the mean.
        step_size: The step size eta_i. Empty in a plan that was made only to compute its privacy and cannot run.
        regularizer: The regularizer lambda_i; empty in such a plan.
        radius: The radius D_i; empty if points are projected only on the domain.
    """

    kind = "localized_phases"
    units: ClassVar = {
        "max_grad_norm": GRADIENT,
        "noise_stddev_on_mean": GRADIENT,
        "step_size": STEP,
        "regularizer": SMOOTHNESS,
        "radius": PARAMETER,
    }
    charge = ONE_GAUSSIAN
    records: tuple[Records, ...]
    inner_iterations: tuple[Annotated[int, Whole(1, MAX_BLOCK_STEPS)], ...]
    max_grad_norm: tuple[MaxGradNorm, ...]
    noise_stddev_on_mean: tuple[Positive, ...]
    step_size: tuple[Positive, ...]
    regularizer: tuple[Annotated[float, Real(0.0, 1e60, open_lower=True)], ...]
    radius: tuple[Positive, ...]

    def check(self) -> None:
        blocks = len(self.records)
        if not 1 <= blocks <= MAX_BLOCKS:
            raise InvalidValue(f"the number of blocks must be from 1 to {MAX_BLOCKS}", pointer=("records",))
        for name in ("inner_iterations", "max_grad_norm", "noise_stddev_on_mean"):
            if len(getattr(self, name)) != blocks:
                raise InvalidValue(f"{name} must have one number for each block", pointer=(name,))
        for name in ("step_size", "regularizer", "radius"):
            if len(getattr(self, name)) not in (0, blocks):
                raise InvalidValue(f"{name} must have one number for each block, or none", pointer=(name,))
        if len(self.step_size) != len(self.regularizer):
            raise InvalidValue("step_size and regularizer must be given together", pointer=("regularizer",))
        each = zip(self.records, self.inner_iterations, self.max_grad_norm, self.noise_stddev_on_mean, strict=True)
        for index, (records, steps, bound, stddev) in enumerate(each):
            check_block_noise(self.event, records, steps, bound, stddev, pointer=("noise_stddev_on_mean", index))

    @property
    def steps(self) -> int:
        """The number of steps of all blocks."""
        return sum(self.inner_iterations)

    @property
    def gradient_evaluations(self) -> int:
        """The number of gradients of single records in all steps."""
        return sum(steps * records for steps, records in zip(self.inner_iterations, self.records, strict=True))

    @property
    def batch_size(self) -> int:
        return self.records[0]

    @property
    def contribution_bound(self) -> float:
        return max(self.max_grad_norm)

    @property
    def smallest_bound(self) -> float:
        return min(self.max_grad_norm)

    @property
    def smallest_noise(self) -> float:
        sums = zip(self.noise_stddev_on_mean, self.records, self.max_grad_norm, strict=True)
        return min(stddev * records / bound for stddev, records, bound in sums)

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return self.noise_stddev_on_mean

    @property
    def is_executable(self) -> bool:
        return bool(self.step_size)


def check_block_noise(
    event: Event, records: int, steps: int, bound: float, stddev: float, *, pointer: tuple[str | int, ...]
) -> None:
    """Refuse noise on a block's means with which the block's steps together cost more than is charged.

    Args:
        event: The charged event: one Gaussian mechanism.
        records: The number by which the block's sums are divided.
        steps: The number of steps of the block.
        bound: The bound on a record's contribution to a sum.
        stddev: The standard deviation of the noise on a mean, per coordinate.
        pointer: The place of the noise in the request.

    Raises:
        InvalidValue: If the noise is below ``charged * bound * sqrt(steps) / records`` by more than rounding.
    """
    assert isinstance(event.mechanism, Gaussian), "as is charged"
    charged = event.mechanism.noise_multiplier
    if stddev * records < charged * bound * math.sqrt(steps) * (1.0 - _ROUNDING):
        raise InvalidValue(
            "a block has less noise than the event is charged for: noise_stddev_on_mean must be at least "
            f"{charged * bound * math.sqrt(steps) / records:g}, got {stddev!r}",
            pointer=pointer,
        )
