"""Full-batch noisy gradient steps on one block of slots after the other, each block near its starting point.

This module gives slots to blocks, takes their noisy means and goes from block to block. Each algorithm decides the
result of a step.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

import numpy as np

from accounting.errors import InvalidValue
from calibrators.geometry import L2Ball
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.phases.proximal_phases import ProximalPhase
from calibrators.plan import Clip, Plan
from trainer.arrays import Array, Namespace, silent
from trainer.domains import project
from trainer.loop import State, Task
from trainer.records import Indices
from trainer.structured_steps import StructuredSteps, check_kept, check_positions, initial_point
from trainer.sums import BoundedSum


def project_near(domain: L2Ball | None, centre: Array, radius: float, xp: Namespace, point: Array) -> Array:
    """Return the point of the domain within ``radius`` of ``centre`` that is nearest to ``point``.

    If neither ball's own projection lies in the other ball, the nearest point is on both spheres. They meet in a sphere
    about c + h u, with u the direction of the centre c. Its nearest point lies on the same side of the axis as the
    point.

    Args:
        domain: A domain centred at 0; None is all of R^d.
        centre: The centre, in the domain; shape (d,), float64.
        radius: The radius of the ball; infinite for the domain alone.
        point: The point to project, shape (d,), float64.

    Guarantees:
        - localised_points_are_in_both_balls: up to rounding of 1e-15 of the domain's radius.
        - localised_points_are_nearest: up to rounding.

    >>> import numpy as np
    >>> project_near(L2Ball(1.0), np.array([0.8, 0.0]), 0.5, np, np.array([1.5, 0.9])).round(7).tolist()
    [0.86875, 0.4952509]
    """
    inside = project(domain, xp, point)
    if not math.isfinite(radius) or _length(xp, inside - centre) <= radius:
        return inside
    offset = point - centre
    distance = _length(xp, offset)
    near = offset if distance <= radius else offset * (radius / distance)
    if domain is None:
        return centre + near
    # All vectors are relative to the centre, whose norm may be far above the radius.
    apart = _length(xp, centre)
    room = (domain.radius - apart) * (domain.radius + apart)
    if 2.0 * float(xp.sum(centre * near)) + float(xp.sum(near * near)) <= room:
        return centre + near
    if not apart > 0.0:  # concentric balls of the same radius, up to rounding
        return centre + near
    outward = centre / apart
    height = min(radius, (room - radius**2) / (2.0 * apart))
    beside = math.sqrt(max(0.0, (radius - height) * (radius + height)))
    sideways = offset - float(xp.sum(offset * outward)) * outward
    width = _length(xp, sideways)
    if not width > 0.0:  # on the axis, where the nearest point of the domain is in the ball up to rounding
        return centre + height * outward
    return centre + height * outward + sideways * (beside / width)


def _length(xp: Namespace, vector: Array) -> float:
    return float(xp.sqrt(xp.sum(vector * vector)))


#: The most per-record gradients of a run. With a few features, that many take about a quarter of an hour on one core.
MAX_GRADIENT_EVALUATIONS = 10**10


class BlockSteps(StructuredSteps):
    """Steps over all records of one block after the other.

    Slots are given to blocks by a permutation that is drawn before the first step from the declared size alone; a slot
    without a row contributes nothing, and rows beyond the declared size are never read. A block's centre is its
    starting point.

    Args:
        task: The task of a plan that `check_blocks` has seen.
        records: The number of records of each block.
        inner_iterations: The number of steps of each block.

    Guarantees:
        - no_record_is_in_two_blocks: each slot belongs to one block, or to none.
        - one_record_moves_a_blocks_sums_by_at_most_the_bound: or by twice that if a record is replaced; and the sums
          of other blocks, given the points, not at all.
    """

    kept: ClassVar[tuple[str, ...]] = (*StructuredSteps.kept, "_order", "_centre")

    def __init__(self, task: Task, records: Sequence[int], inner_iterations: Sequence[int]) -> None:
        start = project(task.plan.domain, task.records.xp, initial_point(task))
        super().__init__(task, task.streams.gaussian_noise(), start)
        self._records = records
        self._step_ends = list(accumulate(inner_iterations))
        self._record_ends = list(accumulate(records))
        self._sums = BoundedSum(task.model, task.records, task.plan.dtype)
        slots = task.streams.sampling.generator().permutation(task.plan.dataset_size)
        self._order: Indices = slots.astype(np.intp)
        self._centre: Array = self._point
        self._slots = self._slots_of(0)

    @abstractmethod
    def _moved(self, block: int) -> Array:
        """Return the result of the next step, which belongs to this block."""

    def step(self) -> None:
        block = bisect_right(self._step_ends, self._done)
        if block and self._done == self._step_ends[block - 1]:
            self._centre, self._slots = self._point, self._slots_of(block)
        with silent():
            self._point = self._moved(block)
        self._done += 1

    def restore(self, state: State) -> None:
        super().restore(state)
        self._order = np.asarray(state["order"], dtype=np.intp)
        # A block starts with its first step; until then the slots are those of the block before.
        self._slots = self._slots_of(bisect_right(self._step_ends, max(0, self._done - 1)))

    def close(self) -> None:
        self._noise.close()

    def _slots_of(self, block: int) -> Indices:
        """Return the slots of the block's places."""
        last = self._record_ends[block]
        return self._task.records.positions[self._order[last - self._records[block] : last]]

    def _noisy_mean(self, block: int, point: Array, bound: float, stddev: float) -> Array:
        """Return 1/n sum_j min(1, C/|g_j|) g_j + sigma Z: gradients at ``point``, n the block's public size; (d,),
        float64.
        """
        task, records = self._task, self._records[block]
        grid = task.grid(stddev * records / bound)
        total = self._sums.at(point, self._slots, Clip(bound), grid)
        noise = task.records.xp.asarray(self._noise.rounded(point.shape[0], grid.scale))
        return grid.noised(total, noise, bound / records)


def check_blocks(plan: Plan, phase: LocalizedPhase | ProximalPhase) -> None:
    """Refuse blocks that a run cannot carry out.

    Raises:
        InvalidValue: If the plan was made for its privacy alone, takes more than a run can do, or has bounds that
            floating point cannot keep; or if its relation has no slots.
    """
    check_positions(plan, "slots are given to blocks by position")
    if isinstance(phase, LocalizedPhase):
        needed, smallest = "step_size", min(phase.max_grad_norm)
        in_all = sum(phase.records)
    else:
        needed, smallest = "weak_convexity", phase.max_grad_norm
        in_all = phase.rounds * phase.records
    if not phase.is_executable:
        raise InvalidValue(
            f"this plan only states a privacy cost: every block of a run needs a {needed}",
            pointer=("phases", 0, needed),
        )
    if in_all > plan.dataset_size:
        raise InvalidValue("the blocks need more records than are declared", pointer=("phases", 0, "records"))
    check_kept("max_grad_norm", smallest, plan.dtype, "features")
    if phase.gradient_evaluations > MAX_GRADIENT_EVALUATIONS:
        raise InvalidValue(
            f"this plan takes {phase.gradient_evaluations:.3g} per-record gradients, but a run may take at most "
            f"{MAX_GRADIENT_EVALUATIONS:.0e}",
            pointer=("phases", 0, "inner_iterations"),
        )


def check_evaluations(phase: LocalizedPhase | ProximalPhase, constant: str, instead: str) -> None:
    """Refuse more per-record gradients than a run takes, before anything is charged.

    Args:
        phase: A phase of blocks.
        constant: The request's assumption from which their number follows.
        instead: The remedy that the refusal names.

    Raises:
        InvalidValue: If there are more than that. The error points at the assumption.
    """
    if phase.gradient_evaluations > MAX_GRADIENT_EVALUATIONS:
        raise InvalidValue(
            f"this plan takes {phase.gradient_evaluations:.3g} per-record gradients, but a run may take at most "
            f"{MAX_GRADIENT_EVALUATIONS:.0e}: {instead}",
            pointer=("assumptions", constant),
        )
