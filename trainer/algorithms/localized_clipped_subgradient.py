"""Localised noisy clipped subgradient steps: full batches of one block of records after the other, each near its start.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithms 3 and 4.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.geometry import L2Ball
from calibrators.phases import LocalizedPhase
from calibrators.plan import Plan
from trainer.arrays import Array, float_dtype, silent
from trainer.batches import SelectedBatch
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS, clip_factors, margin
from trainer.domains import project
from trainer.localisation import project_near
from trainer.loop import State, Task
from trainer.penalties import gradient
from trainer.samplers import Indices, occupied

#: Per-record gradients of a run, at most: with a few features that many take about a quarter of an hour on one core.
MAX_GRADIENT_EVALUATIONS = 10**10
#: Records of a block, up to which the margin covers rounding.
MAX_RECORDS = 1 << 22


class LocalizedSubgradient:
    """The steps of a plan of localised blocks.

    Slots are given to blocks by a permutation that is drawn before the first step from the declared size alone; a slot
    without a row contributes nothing, and rows beyond the declared size are never read.

    Guarantees:
        - no_record_is_in_two_blocks: each slot belongs to one block, or to none.
        - one_record_moves_a_blocks_sums_by_at_most_the_bound: which is C_i, or 2 C_i where a record is replaced; and
          the sums of other blocks, given the points, not at all.
        - points_stay_near_their_blocks_start: within its radius, and in the domain.

    Raises:
        InvalidValue: the plan has not the one phase of this algorithm, takes more than a run can do, or has bounds that
            floating point cannot keep.
    """

    def __init__(self, task: Task) -> None:
        self._phase = _checked(task.plan, task.dtype)
        self._task = task
        self._step_ends = list(accumulate(self._phase.inner_iterations))
        self._record_ends = list(accumulate(self._phase.records))
        self._noise = task.streams.gaussian_noise()
        slots = np.random.Generator(task.streams.sampling).permutation(task.plan.dataset_size)
        self._order: npt.NDArray[np.intp] = slots.astype(np.intp)
        xp = task.records.xp
        initial = xp.asarray(task.model.initial(task.streams.initialisation), dtype=xp.float64)
        self._point: Array = project(task.plan.domain, xp, initial)
        self._centre: Array = self._point
        self._done = 0
        self._rows = self._rows_of(0)

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        block = bisect_right(self._step_ends, self._done)
        if block and self._done == self._step_ends[block - 1]:
            self._centre, self._rows = self._point, self._rows_of(block)
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
        # A block's start is what its first step does: until then the rows are those of the block before.
        self._rows = self._rows_of(bisect_right(self._step_ends, max(0, self._done - 1)))
        self._noise.restore(state["noise"])

    def close(self) -> None:
        self._noise.close()

    def _rows_of(self, block: int) -> Indices:
        """Positions of the block's records, ascending, since sums go lane by lane."""
        last = self._record_ends[block]
        slots = self._order[last - self._phase.records[block] : last]
        return occupied(self._task.records.positions, slots)

    def _moved(self, block: int) -> Array:
        """Pi(w - eta (1/n sum_j min(1, C/|g_j|) g_j + sigma Z + lambda (w - w') + penalty's gradient))."""
        task, phase, point = self._task, self._phase, self._point
        xp, bound, room = task.records.xp, phase.max_grad_norm[block], margin(task.dtype)
        narrow = xp.astype(point, float_dtype(xp, task.dtype), copy=False)
        total = SelectedBatch(task.model, task.records, self._rows, narrow).bounded_sum(
            lambda norms: clip_factors(norms, bound, room)
        )
        noise = xp.asarray(self._noise.standard_normal(point.shape))
        direction = total / phase.records[block] + phase.noise_stddev_on_mean[block] * noise
        direction = direction + phase.regularizer[block] * (point - self._centre) + gradient(task.plan.penalty, point)
        domain = task.plan.domain
        assert domain is None or isinstance(domain, L2Ball), "as was checked"
        radius = phase.radius[block] if phase.radius else float("inf")
        return project_near(domain, self._centre, radius, xp, point - phase.step_size[block] * direction)


def _checked(plan: Plan, dtype: str) -> LocalizedPhase:
    """The plan's only phase."""
    phase = plan.phases[0]
    if len(plan.phases) != 1 or not isinstance(phase, LocalizedPhase) or not isinstance(plan.domain, L2Ball | None):
        raise InvalidValue(
            f"{plan.algorithm} runs plans of one phase of localized_phases, in an l2 ball if in any domain",
            code="invalid_plan",
            pointer=("phases",),
        )
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue("slots are given to blocks by position", pointer=("neighboring_relation",))
    if not phase.is_executable:
        raise InvalidValue(
            "this plan was made for its privacy alone: every block of a run needs a step_size",
            pointer=("phases", 0, "step_size"),
        )
    if sum(phase.records) > plan.dataset_size:
        raise InvalidValue("the blocks have more records than there are", pointer=("phases", 0, "records"))
    smallest = SMALLEST_MAX_GRAD_NORMS[dtype]
    if min(phase.max_grad_norm) < smallest:
        raise InvalidValue(
            f"max_grad_norm must be at least {smallest:g} to be kept in {dtype}; rescale the features",
            pointer=("phases", 0, "max_grad_norm"),
        )
    if max(phase.records) > MAX_RECORDS:
        raise InvalidValue(
            f"sums of more than {MAX_RECORDS} records are not known to be exact enough",
            pointer=("phases", 0, "records"),
        )
    if phase.gradient_evaluations > MAX_GRADIENT_EVALUATIONS:
        raise InvalidValue(
            f"this plan takes {phase.gradient_evaluations:.3g} per-record gradients, and a run at most "
            f"{MAX_GRADIENT_EVALUATIONS:.0e}",
            pointer=("phases", 0, "inner_iterations"),
        )
    return phase
