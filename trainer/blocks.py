"""Full-batch noisy gradient steps on one block of slots after the other, each block near where it starts.

What gives slots to blocks, takes their noisy means and goes from block to block is here; where a step leads is an
algorithm's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.phases import LocalizedPhase, ProximalPhase
from calibrators.plan import Clip, Plan
from trainer.arrays import Array, silent
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS
from trainer.domains import project
from trainer.loop import State, Task
from trainer.records import Indices
from trainer.sums import BoundedSum

#: Per-record gradients of a run, at most: with a few features that many take about a quarter of an hour on one core.
MAX_GRADIENT_EVALUATIONS = 10**10


class BlockSteps(ABC):
    """Steps over all records of one block after the other.

    Slots are given to blocks by a permutation that is drawn before the first step from the declared size alone; a slot
    without a row contributes nothing, and rows beyond the declared size are never read. A block's centre is the point
    that it starts from.

    Args:
        task: Of a plan that `check_blocks` has seen.
        records: Of each block.
        inner_iterations: Steps of each block.

    Guarantees:
        - no_record_is_in_two_blocks: each slot belongs to one block, or to none.
        - one_record_moves_a_blocks_sums_by_at_most_the_bound: or by twice that where a record is replaced; and the sums
          of other blocks, given the points, not at all.
    """

    def __init__(self, task: Task, records: Sequence[int], inner_iterations: Sequence[int]) -> None:
        self._task, self._records = task, records
        self._step_ends = list(accumulate(inner_iterations))
        self._record_ends = list(accumulate(records))
        self._sums = BoundedSum(task.model, task.records, task.plan.dtype)
        self._noise = task.streams.gaussian_noise()
        slots = np.random.Generator(task.streams.sampling).permutation(task.plan.dataset_size)
        self._order: Indices = slots.astype(np.intp)
        xp = task.records.xp
        initial = xp.asarray(task.model.initial(task.streams.initialisation), dtype=xp.float64)
        self._point: Array = project(task.plan.domain, xp, initial)
        self._centre: Array = self._point
        self._done = 0
        self._slots = self._slots_of(0)

    @abstractmethod
    def _moved(self, block: int) -> Array:
        """The point that the next step, one of this block, leads to."""

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        block = bisect_right(self._step_ends, self._done)
        if block and self._done == self._step_ends[block - 1]:
            self._centre, self._slots = self._point, self._slots_of(block)
        with silent():
            self._point = self._moved(block)
        self._done += 1

    def released(self) -> Array:
        return self._point

    def state(self) -> State:
        return {
            "done": self._done,
            "order": self._order,
            "point": self._point,
            "centre": self._centre,
            "noise": self._noise.state(),
        }

    def restore(self, state: State) -> None:
        xp = self._task.records.xp
        self._done = int(state["done"])
        self._order = np.asarray(state["order"], dtype=np.intp)
        self._point, self._centre = xp.asarray(state["point"]), xp.asarray(state["centre"])
        # A block's start is what its first step does: until then the slots are those of the block before.
        self._slots = self._slots_of(bisect_right(self._step_ends, max(0, self._done - 1)))
        self._noise.restore(state["noise"])

    def close(self) -> None:
        self._noise.close()

    def _slots_of(self, block: int) -> Indices:
        """Return the slots of the block's places."""
        last = self._record_ends[block]
        return self._task.records.positions[self._order[last - self._records[block] : last]]

    def _noisy_mean(self, block: int, point: Array, bound: float, stddev: float) -> Array:
        """1/n sum_j min(1, C/|g_j|) g_j + sigma Z: gradients at ``point``, n the block's public size; (d,), float64."""
        task, records = self._task, self._records[block]
        grid = task.grid(stddev * records / bound)
        total = self._sums.at(point, self._slots, Clip(bound), grid)
        noise = task.records.xp.asarray(self._noise.rounded(point.shape[0], grid.scale))
        return grid.noised(total, noise, bound / records)


def check_blocks(plan: Plan, phase: LocalizedPhase | ProximalPhase) -> None:
    """Refuse blocks that a run cannot carry out.

    Raises:
        InvalidValue: the plan was made for its privacy alone, takes more than a run can do, or has bounds that floating
            point cannot keep; its relation has no slots.
    """
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue("slots are given to blocks by position", pointer=("neighboring_relation",))
    if isinstance(phase, LocalizedPhase):
        needed, smallest = "step_size", min(phase.max_grad_norm)
        in_all = sum(phase.records)
    else:
        needed, smallest = "weak_convexity", phase.max_grad_norm
        in_all = phase.rounds * phase.records
    if not phase.is_executable:
        raise InvalidValue(
            f"this plan was made for its privacy alone: every block of a run needs a {needed}",
            pointer=("phases", 0, needed),
        )
    if in_all > plan.dataset_size:
        raise InvalidValue("the blocks have more records than there are", pointer=("phases", 0, "records"))
    if smallest < SMALLEST_MAX_GRAD_NORMS[plan.dtype]:
        raise InvalidValue(
            f"max_grad_norm must be at least {SMALLEST_MAX_GRAD_NORMS[plan.dtype]:g} to be kept in {plan.dtype}; "
            "rescale the features",
            pointer=("phases", 0, "max_grad_norm"),
        )
    if phase.gradient_evaluations > MAX_GRADIENT_EVALUATIONS:
        raise InvalidValue(
            f"this plan takes {phase.gradient_evaluations:.3g} per-record gradients, and a run at most "
            f"{MAX_GRADIENT_EVALUATIONS:.0e}",
            pointer=("phases", 0, "inner_iterations"),
        )
