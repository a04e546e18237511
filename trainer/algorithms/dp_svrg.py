"""DP-SVRG: a full gradient at a snapshot, then noisy proximal steps on small batches beside it.

One step is one inner step; the first of an epoch also takes the snapshot's gradient. That gradient has no noise: it is
in nothing that is released, and every direction that it enters is noised. A checkpoint holds it, and is as secret as
the data for that and other reasons.

Source: Wang, Ye & Xu 2017 (arXiv 1802.05251), Algorithm 1, with the clip that makes its Lipschitz constant a fact.
"""

from __future__ import annotations

import numpy as np

from accounting.errors import InvalidValue
from accounting.events import WithoutReplacement
from accounting.relations import NeighboringRelation
from calibrators.phases import VarianceReducedEpochs
from calibrators.plan import Clip
from trainer.arrays import Array, float_dtype, silent
from trainer.batches import SelectedBatch
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS, margin
from trainer.domains import project
from trainer.loop import State, Task
from trainer.samplers import Selection, occupied
from trainer.step import Step


class Svrg:
    """The inner steps of a plan of variance-reduced epochs, each from a fresh batch of the declared slots.

    v = ((sum over the batch of clipped gradients at x) - (the same at x~) + sigma b Z) / b + the snapshot's gradient,
    x <- the penalty's prox, then the projection, of x - eta v. After an epoch x~ is the mean of its points.

    Guarantees:
        - every_gradient_is_clipped: at x, at x~ and in the full gradient, so that between neighbours a batch's sum of
          changes moves by at most 4 G, and not at all where the record is not in it; the full gradient by 2 G/n.
        - every_direction_is_noised: what is released is made of noisy directions and public numbers.
        - nothing_is_drawn_from_the_number_of_rows: batches are of declared slots; divisors are b and n as declared.

    Raises:
        InvalidValue: the plan is no plan of such epochs, or not executable, or its bound is too small for the dtype.
    """

    def __init__(self, task: Task) -> None:
        self._task, self._phase = task, _checked(task)
        records, phase, n = task.records, self._phase, task.plan.dataset_size
        xp = records.xp
        initial = xp.asarray(task.model.initial(task.streams.initialisation), dtype=xp.float64)
        self._snapshot: Array = project(task.plan.domain, xp, initial)
        self._point: Array = self._snapshot
        self._sum: Array = 0.0 * self._snapshot
        self._full_gradient: Array = 0.0 * self._snapshot
        self._noise = task.streams.gaussian_noise()
        sampling = WithoutReplacement(phase.records_per_step, n)
        self._sampler = task.streams.sampler(sampling, phase.steps, phase.records_per_step, n, records)
        everybody = records.count <= n
        self._all: Selection = slice(0, records.count) if everybody else occupied(records.positions, np.arange(n))
        self._done, self._epoch, self._within = 0, 0, 0

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        with silent():
            step = self._next_step()
            if self._within == 0:
                self._point = self._start_of_epoch()
                total = self._sum_at(self._snapshot, self._all, step)
                self._full_gradient = total / self._task.plan.dataset_size
            rows = self._sampler.draw()
            change = self._sum_at(self._point, rows, step) - self._sum_at(self._snapshot, rows, step)
            noisy = (change + step.noise_stddev_on_sum * step.standard_noise) / step.divisor
            direction = noisy + self._full_gradient
            self._point = step.project(step.prox(self._point - step.step_size * direction))
            self._sum = self._sum + self._point
        self._done += 1
        self._within += 1
        if self._within == self._phase.inner_iterations[self._epoch]:
            self._snapshot, self._sum = self._sum / self._within, 0.0 * self._sum
            self._epoch, self._within = self._epoch + 1, 0

    def released(self) -> Array:
        """The mean of the last epoch's points."""
        return self._snapshot

    def state(self) -> State:
        return {
            "done": self._done,
            "epoch": self._epoch,
            "within": self._within,
            "point": self._point,
            "snapshot": self._snapshot,
            "sum": self._sum,
            "full_gradient": self._full_gradient,
            "sampler": self._sampler.state(),
            "sampling": self._task.streams.sampling.state,
            "noise": self._noise.state(),
        }

    def restore(self, state: State) -> None:
        xp = self._task.records.xp
        self._done, self._epoch, self._within = (int(state[name]) for name in ("done", "epoch", "within"))
        self._point, self._snapshot = xp.asarray(state["point"]), xp.asarray(state["snapshot"])
        self._sum, self._full_gradient = xp.asarray(state["sum"]), xp.asarray(state["full_gradient"])
        self._sampler.restore(state["sampler"])
        self._task.streams.sampling.state = state["sampling"]
        self._noise.restore(state["noise"])

    def close(self) -> None:
        self._noise.close()

    def _start_of_epoch(self) -> Array:
        """Algorithm 1 goes back to the snapshot."""
        return self._snapshot

    def _next_step(self) -> Step:
        phase, task = self._phase, self._task
        assert phase.step_size is not None, "an executable plan has a step size"
        return Step(
            gradient_bound=Clip(phase.max_grad_norm),
            divisor=phase.records_per_step,
            noise_stddev_on_sum=phase.noise_stddev_on_mean * phase.records_per_step,
            step_size=phase.step_size,
            standard_noise=task.records.xp.asarray(self._noise.standard_normal(self._point.shape)),
            margin=margin(task.dtype),
            domain=task.plan.domain,
            penalty=task.plan.penalty,
        )

    def _sum_at(self, point: Array, rows: Selection, step: Step) -> Array:
        """The sum of the clipped gradients of these rows at the point."""
        task = self._task
        narrow = task.records.xp.astype(point, float_dtype(task.records.xp, task.dtype), copy=False)
        return SelectedBatch(task.model, task.records, rows, narrow).bounded_sum(step.factors())


def _checked(task: Task) -> VarianceReducedEpochs:
    """The plan's only phase."""
    plan, phase = task.plan, task.plan.phases[0]
    if len(plan.phases) != 1 or not isinstance(phase, VarianceReducedEpochs):
        raise InvalidValue(
            f"{plan.algorithm} runs plans of one phase of {VarianceReducedEpochs.kind}",
            code="invalid_plan",
            pointer=("phases",),
        )
    if not phase.is_executable:
        raise InvalidValue(
            "this plan was made for its privacy alone: a run needs a step_size", pointer=("phases", 0, "step_size")
        )
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue("batches of a fixed size are drawn by position", pointer=("neighboring_relation",))
    if phase.records_per_step > plan.dataset_size:
        raise InvalidValue(
            f"a batch of {phase.records_per_step} is larger than dataset_size {plan.dataset_size}",
            pointer=("phases", 0, "records_per_step"),
        )
    smallest = SMALLEST_MAX_GRAD_NORMS[task.dtype]
    if phase.max_grad_norm < smallest:
        raise InvalidValue(
            f"max_grad_norm must be at least {smallest:g} to be kept in {task.dtype}; rescale the features",
            pointer=("phases", 0, "max_grad_norm"),
        )
    return phase
